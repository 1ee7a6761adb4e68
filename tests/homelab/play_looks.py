"""Plays the looks of looks.txt in a home lab, by hand and through the command runner at Tier 1.

It runs inside of the lab, as the user who looks, and prints one JSON object for each look:

    python -m tests.homelab.play_looks [WORDS…] < looks    plays the looks that contain the words
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import django

LINE_BREAK = "⏎"
LOOK_SECONDS = 60


def looks_in(text: str) -> list[str]:
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return [line.replace(LINE_BREAK, "\n") for line in lines]


def output_of(argv: list[str], workdir: Path, environment: Mapping[str, str]) -> dict[str, Any]:
    """Run it as the CLI runs a Bash call: both outputs in one, no input."""
    try:
        ended = subprocess.run(
            argv,
            cwd=workdir,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LOOK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return {"code": -1, "output": (late.output or b"").decode(errors="replace")}
    return {"code": ended.returncode, "output": ended.stdout.decode(errors="replace")}


@contextmanager
def serving_client(
    state: Path, workdir: Path, tier: int, *, grants: str = ""
) -> Iterator[tuple[Path, list[str]]]:
    """Serve the sandbox of a run; give its command client, and the denials as they happen."""
    from escalation.agent.process import Traces
    from escalation.sandbox.setup import SandboxRequest, in_sandbox
    from escalation.tiers import get_tier
    from sessions_app.models.session import Verdict

    run = state / "run"
    for directory in (run, state / "config"):
        directory.mkdir(mode=0o700, parents=True)
    denials: list[str] = []
    request = SandboxRequest(
        tier=get_tier(tier),
        workdir=workdir,
        config_directory=state / "config",
        run_directory=run,
        run_environment=dict(os.environ),
        login={},
        watch_grants=grants,
        traces=Traces(mark=f"tier {tier}", tool_log=run / "tools"),
    )
    with in_sandbox(
        request,
        on_decision=lambda record: (
            denials.append(f"{record.command}: {record.rule}: {record.reason}")
            if record.verdict == Verdict.DENY
            else None
        ),
        on_end=lambda record, end: None,
    ) as sandbox:
        yield sandbox.paths.client, denials


def shell_text(command: str) -> str:
    """Return the text as the CLI gives it to CLAUDE_CODE_SHELL_PREFIX."""
    import shlex

    return f"eval {shlex.quote(command)} < /dev/null"


def main() -> None:
    looks = [
        look
        for look in looks_in(sys.stdin.read())
        if not sys.argv[1:] or any(word in look for word in sys.argv[1:])
    ]
    workdir = Path.home() / "lab"
    by_hand = dict(os.environ)
    with tempfile.TemporaryDirectory(prefix="claudeops-looks-", dir="/var/tmp") as name:
        state = Path(name)
        os.environ |= {
            "CLAUDEOPS_STATE_DIR": str(state / "state"),
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
        }
        django.setup()
        with serving_client(state, workdir, 1) as (client, denials):
            for look in looks:
                before = output_of(["bash", "-c", look], workdir, by_hand)
                denials.clear()
                seen = output_of([str(client), shell_text(look)], workdir, by_hand)
                told = list(denials)
                after = output_of(["bash", "-c", look], workdir, by_hand)
                row = {"look": look, "before": before, "seen": seen, "after": after, "denied": told}
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
