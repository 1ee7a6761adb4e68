"""The suite on PostgreSQL: `python -m tests.on_postgres [what pytest takes]`.

The server is the tests' own, in a directory that goes with it, and never one that is already there:
tests make and fill databases. Nothing of them is dropped one by one: they go with the server.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.devtools.postgres import new_database, postgres_server


def main(arguments: list[str]) -> int:
    with postgres_server() as port:
        environment = {**os.environ, "DATABASE_URL": new_database(port)}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "--reuse-db", *arguments], env=environment, check=False
        ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
