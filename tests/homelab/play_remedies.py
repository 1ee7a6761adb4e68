"""Plays remedies in a home lab through the command runner, as the user who runs this program.

It reads the grants of the watch from the first line of stdin and an object with `tier` and
`command` from each further one, all as JSON, and prints an object with the exit code, the output
and the denials. What a remedy has done, its caller looks up.

    python -m tests.homelab.play_remedies < remedies
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import django

from tests.homelab.play_looks import output_of, serving_client, shell_text


def main() -> None:
    workdir = Path.home() / "lab"
    environment = dict(os.environ)
    # Not an argument: `pkill nginx` spares processes of Claude Ops with that word in their line.
    grants = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory(prefix="claudeops-remedies-", dir="/var/tmp") as name:
        os.environ |= {
            "CLAUDEOPS_STATE_DIR": f"{name}/state",
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
        }
        django.setup()
        with ExitStack() as stack:
            clients = {
                tier: stack.enter_context(
                    serving_client(Path(name) / str(tier), workdir, tier, grants=grants)
                )
                for tier in (2, 3)
            }
            print(json.dumps("ready"), flush=True)
            for line in sys.stdin:
                asked = json.loads(line)
                client, denials = clients[asked["tier"]]
                denials.clear()
                done = output_of([str(client), shell_text(asked["command"])], workdir, environment)
                print(json.dumps({**done, "denied": list(denials)}), flush=True)


if __name__ == "__main__":
    main()
