"""Programs that bash really starts: a check that shares no code with the parser."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

# One write for each program, so that those of a pipe do not mix.
LOGGED = """() { printf '%s\\0' "$@" $'\\1' >> "$LOG"; return 0; }"""


def ran_by_bash(text: str, log: Path, directory: Path, programs: str = "") -> list[tuple[str, ...]]:
    """Every program that bash wanted to start and did not find; only `programs` are there."""
    log.write_text("")
    places = log.with_name("programs")
    places.mkdir(exist_ok=True)
    for name in programs.split():
        found = places / name
        if not found.exists():
            found.symlink_to(str(shutil.which(name)))
    environment = {"BASH_FUNC_command_not_found_handle%%": LOGGED, "PATH": str(places)}
    subprocess.run(
        ["/bin/bash", "--noprofile", "--norc", "-c", text],
        env={**environment, "LOG": str(log), "LC_ALL": "C.UTF-8"},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=20,
    )
    runs = log.read_bytes().decode(errors="surrogateescape").split("\1\0")
    return [tuple(run.split("\0")[:-1]) for run in runs if run]
