"""Output of commands: exit codes, refusals, plain text, tables and progress.

Text of tools, models and pages may hold control sequences and secrets, so every command writes
through `PlainOutput`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TextIO, cast

from django.conf import settings
from django.core.checks import CheckMessage, run_checks
from django.core.management.base import (
    BaseCommand,
    CommandError,
    CommandParser,
    OutputWrapper,
    handle_default_options,
)
from django.db import OperationalError, ProgrammingError, connection, connections
from django.db.utils import Error

from escalation.errors import RefusalCode, WhyNot
from sessions_app.redaction.redact import redacted, redacted_data
from sessions_app.text import clean, one_line

# rich is imported where it is used: most commands print no table.
if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live
    from rich.text import Text

    from sessions_app.models import Cycle


class ExitCode(IntEnum):
    WELL = 0
    PERSON = 1
    REFUSED = 2


MEANINGS = {
    ExitCode.WELL: "it went well: healthy, fixed, shown, done",
    ExitCode.PERSON: "it ran, and a person is needed",
    ExitCode.REFUSED: "it could not run, or was refused: the message says what to do",
}


def exit_code_of(
    cycle: Cycle, *, waits_for_person: bool = False, branch_outcome: str = ""
) -> ExitCode:
    """Returns the code of a cycle, or of a branch. A reopened one still has its earlier outcome."""
    outcome = branch_outcome or cycle.outcome
    if waits_for_person:
        return ExitCode.PERSON
    if cycle.is_active or outcome == cycle.Outcome.COULD_NOT_RUN:
        return ExitCode.REFUSED
    return ExitCode.WELL if outcome in cycle.GOOD_OUTCOMES else ExitCode.PERSON


class Refused(CommandError):
    """Ends a command with exit code 2. The message is for people, the code for callers."""

    def __init__(self, code: RefusalCode | WhyNot, reason: object) -> None:
        super().__init__(str(reason), returncode=ExitCode.REFUSED)
        self.code = code


def refused_for(code: RefusalCode, reasons: Iterable[str]) -> Refused:
    """Return a refusal with all reasons, each on a line of its own."""
    return Refused(code, "\n".join(reasons))


LONGEST = 300


def trouble_with_rights(error: PermissionError) -> str:
    """Describe a file or directory that the user of this process may not use."""
    path, reason = error.filename or "A file", error.strerror or error
    return (
        f"{path}: {reason} for this command, which runs as user id {os.getuid()}. "
        "Give another path, or give that user the right."
    )


def trouble_with_database(error: Error) -> str:
    """Describe a database error. A missing table means that the database is not migrated."""
    said = one_line(str(error), LONGEST)
    if "no such table" in said or "does not exist" in said or "no such column" in said:
        return (
            f"The database is not set up for this version ({said}). "
            "`claudeops upgrade` does that, and so does `claudeops up`."
        )
    return f"The database does not answer ({said}). {_remedy()} Nothing was changed."


def _remedy() -> str:
    where = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"Look at {where['NAME']}: is its disk full, or is it another user's?"
    place = f"{where['HOST'] or 'the local socket'}:{where['PORT'] or 5432}"
    return f"Is PostgreSQL running at {place}, and is DATABASE_URL right?"


DJANGOS_OPTIONS = {
    *("version", "verbosity", "settings", "pythonpath", "traceback", "no_color", "force_color"),
    "skip_checks",
}
WHOLE = 100_000
"""Width of output that is not cut."""


class PlainOutput(OutputWrapper):
    def write(  # type: ignore[override]  # as Django's own
        self,
        msg: str = "",
        style_func: Callable[[str], str] | None = None,
        ending: str | None = None,
    ) -> None:
        """Remove control sequences and secrets; our own colours are added afterwards."""
        super().write(redacted(clean(msg)), style_func, ending)

    def write_secret(self, text: str) -> None:
        """Write a secret that was just made, once, for the person who asked for it."""
        super().write(clean(text))

    def write_json(self, data: Any, indent: int | None = None) -> None:
        """Write data as JSON without secrets, which are looked for before it becomes text."""
        super().write(json.dumps(redacted_data(data), indent=indent))


def console_on(out: OutputWrapper, *, in_color: bool, width: int | None = None) -> Console:
    """Return a rich console on the raw stream of `out`: only for text that is plain already."""
    from rich.console import Console

    return Console(
        file=cast(TextIO, out._out),
        force_terminal=out.isatty(),
        color_system="standard" if in_color else None,
        no_color=False,  # decided with `in_color`
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
    )


class TerminalCommand(BaseCommand):
    def __init__(
        self,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        no_color: bool = False,
        force_color: bool = False,
    ) -> None:
        no_color = no_color or (_wants_no_color() and not force_color)
        super().__init__(stdout, stderr, no_color, force_color)
        self.stdout: PlainOutput = PlainOutput(stdout or sys.stdout)
        self.stderr = PlainOutput(stderr or sys.stderr)
        self.stderr.style_func = self.style.ERROR

    def get_version(self) -> str:
        return str(settings.CLAUDEOPS_VERSION)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Hide Django's own options from the help; they still work."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        for action in parser._actions:
            if action.dest in DJANGOS_OPTIONS:
                action.help = SUPPRESS
        return parser

    def run_from_argv(self, argv: list[str]) -> None:
        """Run as Django does, without the name of a class before a refusal."""
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
        except BrokenPipeError:  # the reader has closed the pipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        finally:
            connections.close_all()

    def execute(self, *args: Any, **options: Any) -> str | None:
        for name in ("stdout", "stderr"):
            if stream := options.pop(name, None):
                setattr(self, name, PlainOutput(stream))
        options["no_color"] = options["no_color"] or (
            _wants_no_color() and not options["force_color"]
        )
        try:
            return super().execute(*args, **options)
        except (OperationalError, ProgrammingError) as error:
            raise Refused(RefusalCode.DATABASE, trouble_with_database(error)) from error
        except PermissionError as error:
            raise Refused(RefusalCode.FILE, trouble_with_rights(error)) from error

    def write_rendered(
        self, what: RenderableType, *, is_whole: bool, width: int | None = None
    ) -> None:
        """Write what rich renders, in the colours that this command may use."""
        in_color = self.style.SUCCESS("x") != "x"
        console = console_on(
            self.stdout, in_color=in_color, width=width or (WHOLE if is_whole else None)
        )
        with console.capture() as rendered:
            console.print(what)
        for line in rendered.get().splitlines():
            console.file.write(f"{line.rstrip()}\n")

    def check(self, *args: Any, **options: Any) -> None:
        """Print warnings about the configuration, and refuse with all errors and their hints.

        Django's own checks look at the code, for which they load every page and the admin.
        """
        found = run_checks(tags=["claudeops"])
        for message in found:
            if not message.is_serious():
                self.stderr.write(_advice(message), self.style.WARNING)
        if wrong := [_advice(message) for message in found if message.is_serious()]:
            raise refused_for(
                RefusalCode.CONFIGURATION, ["Claude Ops cannot start like this:", *wrong]
            )


def _wants_no_color() -> bool:
    """Test `NO_COLOR` (no-color.org), which Django does not know."""
    return bool(os.environ.get("NO_COLOR"))


def _advice(message: CheckMessage) -> str:
    return f"- {message.msg}" + (f" {message.hint}" if message.hint else "")


def add_verbose_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print every event: also decisions on commands and their results (or -v 2)",
    )


def is_verbose(options: Mapping[str, Any]) -> bool:
    """Test `--verbose`, and Django's own `-v`."""
    return bool(options.get("verbose")) or int(options.get("verbosity") or 1) > 1


LONGEST_CELL = 400
STYLES = {"good": "bold green", "bad": "bold red", "warn": "bold yellow", "live": "bold"}
HEADING_STYLE = "bold cyan"


@dataclass(frozen=True, slots=True)
class Cell:
    text: str
    tone: str = ""
    """`good`, `bad`, `warn`, `live` or empty."""


def write_table(
    command: TerminalCommand,
    headings: Sequence[str],
    rows: Sequence[Sequence[Cell | str]],
    width: int | None = None,
) -> None:
    """Write a table: with headings and colours on a terminal, plain and uncut in a pipe unless a
    width is given."""
    from rich.table import Table

    if not rows:
        return
    on_terminal = command.stdout.isatty()
    table = Table(
        box=None,
        padding=(0, 2, 0, 0),
        pad_edge=False,
        show_header=on_terminal,
        header_style=HEADING_STYLE,
    )
    *others, last = headings
    for heading in others:
        table.add_column(heading.upper(), no_wrap=True)
    # Only this column is made narrower; its cells are cut, so that a row stays one line.
    table.add_column(last.upper())
    for row in rows:
        table.add_row(*map(_text, row))
    command.write_rendered(table, is_whole=not on_terminal, width=width)


def _text(cell: Cell | str) -> Text:
    """Remove control sequences and secrets before a colour is added."""
    from rich.text import Text

    text, tone = (cell, "") if isinstance(cell, str) else (cell.text, cell.tone)
    harmless = redacted(one_line(text, LONGEST_CELL))
    return Text(harmless, style=STYLES.get(tone, ""), no_wrap=True, overflow="ellipsis")


TIMEOUT_SECONDS = 2.0
STEP_SECONDS = 0.5
FIRST_LINE_SECONDS, NEXT_LINE_SECONDS = 30.0, 60.0
"""Without a terminal: time until the first line, and between the next ones."""


class Waiting:
    """Progress on a terminal: one line that is updated, and removed at the end."""

    def __init__(self, out: OutputWrapper, words: str) -> None:
        self.out = out
        self.words = words
        self._lock = threading.Lock()
        self._line: Live | None = None
        self._timer: threading.Timer | None = None
        self._since = time.monotonic()

    def tell(self, words: str) -> None:
        self.words = words

    def make_room(self) -> None:
        """Remove the line before other output, and start the time anew."""
        if self._timer:
            self.stop()
            self.start()

    def start(self) -> None:
        self._since = time.monotonic()
        self._timer = threading.Timer(TIMEOUT_SECONDS, self._show)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        with self._lock:
            if self._timer:
                self._timer.cancel()
            self._timer = None
            if self._line:
                self._line.stop()
            self._line = None

    def _show(self) -> None:
        from rich.live import Live

        with self._lock:
            if self._timer is not threading.current_thread():
                return  # stopped while it waited for the lock
            self._line = Live(
                get_renderable=self._text,
                console=console_on(self.out, in_color=False),
                transient=True,
                refresh_per_second=1 / STEP_SECONDS,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._line.start(refresh=True)

    def _text(self) -> Text:
        from rich.text import Text

        seconds = time.monotonic() - self._since
        return Text(f"{self.words} … {seconds:.0f} s", no_wrap=True, overflow="ellipsis")


class SparseLines(Waiting):
    """Progress without a terminal: a line after half a minute, and then one a minute."""

    def start(self) -> None:
        self._since = time.monotonic()
        self._wait(FIRST_LINE_SECONDS)

    def _wait(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._show)
        self._timer.daemon = True
        self._timer.start()

    def _show(self) -> None:
        with self._lock:
            if self._timer is not threading.current_thread():
                return  # stopped while it waited for the lock
            self.out.write(self._text().plain)
            self.out.flush()
            self._wait(NEXT_LINE_SECONDS)


@contextmanager
def waiting(out: OutputWrapper, words: str) -> Iterator[Waiting]:
    shown = Waiting(out, words) if out.isatty() else SparseLines(out, words)
    shown.start()
    try:
        yield shown
    finally:
        shown.stop()
