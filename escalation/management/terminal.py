"""Commands write to a terminal, and what they write is often not ours.

What a tool printed, a model reported or a page said may hold sequences that a terminal obeys. Every
command of ours writes through here, so none has to think of it. Secrets are masked, too.
"""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, Namespace
from collections.abc import Callable
from typing import Any, TextIO

from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    OutputWrapper,
    handle_default_options,
)
from django.db import OperationalError, ProgrammingError, connections

from escalation.management.database_trouble import trouble_with_database
from escalation.management.exit_codes import ExitCode
from escalation.management.refusal import Refused, refused_for
from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import clean

DJANGOS_OPTIONS = {
    *("version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color"),
    "skip_checks",
}


class PlainOutput(OutputWrapper):
    def write(  # type: ignore[override]  # as Django's own
        self,
        msg: str = "",
        style_func: Callable[[str], str] | None = None,
        ending: str | None = None,
    ) -> None:
        """Our own colours are put on afterwards, and stay."""
        super().write(masked(clean(msg)), style_func, ending)


class TerminalCommand(BaseCommand):
    def __init__(
        self,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        no_color: bool = False,
        force_color: bool = False,
    ) -> None:
        super().__init__(stdout, stderr, no_color, force_color)
        self.stdout = PlainOutput(stdout or sys.stdout)
        self.stderr = PlainOutput(stderr or sys.stderr)
        self.stderr.style_func = self.style.ERROR

    def get_version(self) -> str:
        return str(settings.CLAUDEOPS_VERSION)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Django's own options work as ever; the help is about the command itself."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        for action in parser._actions:
            if action.dest in DJANGOS_OPTIONS:
                action.help = SUPPRESS
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        """As Django's, without a class's name before each refusal."""
        self._called_from_command_line = True
        options = vars(self.create_parser(argv[0], argv[1]).parse_args(argv[2:]))
        try:
            handle_default_options(Namespace(**options))
            self.execute(*options.pop("args", ()), **options)
        except CommandError as refused:
            if options["traceback"]:
                raise
            self.stderr.write(str(refused))
            sys.exit(refused.returncode)
        except KeyboardInterrupt:
            self.stderr.write("Stopped.")
            sys.exit(ExitCode.REFUSED)
        except BrokenPipeError:  # whoever read it has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            connections.close_all()

    def execute(self, *args: Any, **options: Any) -> str | None:
        for name in ("stdout", "stderr"):
            if stream := options.pop(name, None):
                setattr(self, name, PlainOutput(stream))
        try:
            return super().execute(*args, **options)
        except (OperationalError, ProgrammingError) as error:
            raise Refused(trouble_with_database(error)) from error

    def check(self, *args: Any, **options: Any) -> None:
        """All that is wrong at once, in our words: what, and what to do about it."""
        found = run_checks()
        for message in found:
            if not message.is_serious():
                self.stderr.write(_advice(message), self.style.WARNING)
        if wrong := [_advice(message) for message in found if message.is_serious()]:
            raise refused_for(["Claude Ops cannot start like this:", *wrong])


def _advice(message: CheckMessage) -> str:
    return f"- {message.msg}" + (f" {message.hint}" if message.hint else "")
