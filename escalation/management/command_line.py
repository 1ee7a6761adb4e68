"""The command line: `claudeops`, and `manage.py` for those who know Django.

Both run the same code. `claudeops` knows our commands alone, `manage.py` Django's as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from escalation.management.command_table import BY_NAME
from escalation.management.exit_codes import ExitCode
from escalation.management.help_text import help_lines

PROGRAM, DJANGO_PROGRAM = "claudeops", "manage.py"
HELP_WORDS = {"", "help", "-h", "--help"}


def main() -> None:
    """Of `claudeops` and of `python -m escalation.management`."""
    _enter()
    with_django = Path(sys.argv[0]).name == DJANGO_PROGRAM
    sys.exit(run(sys.argv[1:], DJANGO_PROGRAM if with_django else PROGRAM, with_django=with_django))


def _enter() -> None:
    os.umask(0o077)  # what Claude Ops writes is for its own user alone
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")


def run(words: Sequence[str], program: str, *, with_django: bool) -> int:
    """Our own words first; what is left is a command, whose exit code may also be raised."""
    first, *rest = words or [""]
    if first in HELP_WORDS and not rest:
        return _print_help(program, with_django=with_django)
    if first == "--version" and not rest:
        return _print_version()
    if first == "help" and rest[0] in BY_NAME:
        return _execute(program, rest[0], "--help")
    name = first.replace("-", "_")
    if name in BY_NAME:
        return _execute(program, name, *rest)
    if with_django:
        return _execute(program, *words)
    return _refuse_unknown(program, first)


def _execute(program: str, *words: str) -> int:
    from django.core.management import ManagementUtility

    ManagementUtility([program, *words]).execute()
    return ExitCode.WELL


def _print_help(program: str, *, with_django: bool) -> int:
    from django.core.management.color import color_style

    heading = color_style().MIGRATE_HEADING
    print("\n".join(help_lines(program, heading, with_django=with_django)))
    return ExitCode.WELL


def _print_version() -> int:
    from django.conf import settings

    print(f"Claude Ops {settings.CLAUDEOPS_VERSION}")
    return ExitCode.WELL


def _refuse_unknown(program: str, name: str) -> int:
    meant = get_close_matches(name, BY_NAME, 1)
    remedy = f"Did you mean {meant[0]}?" if meant else f"{program} help lists the commands."
    print(f"{program} has no command {name!r}. {remedy}", file=sys.stderr)
    return ExitCode.REFUSED
