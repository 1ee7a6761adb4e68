"""The help of the whole command line: our commands by group, and nothing of Django's."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from escalation.management.command_table import COMMANDS, GROUPS, in_group

WIDTH = max(len(entry.name) for entry in COMMANDS) + 2


def help_lines(program: str, heading: Callable[[str], str], *, with_django: bool) -> Iterator[str]:
    yield f"{program} COMMAND …    Claude Code on call"
    for group, title in GROUPS.items():
        yield ""
        yield heading(f"{title} ({group})")
        for entry in in_group(group):
            yield f"  {entry.name:{WIDTH}}{entry.summary}"
    yield ""
    yield f"{program} COMMAND --help tells more about a command; {program} --version the version."
    yield "Exit codes: 0 it went well, 1 a person is needed, 2 it could not run or was refused."
    if with_django:
        yield f"Django's own commands work here as well: {program} help --commands lists them."
