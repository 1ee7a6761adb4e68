"""Sets up the installation and runs web server and worker."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from types import FrameType
from typing import Any

from django.conf import settings
from django.db import OperationalError, connection, connections

from escalation.agent.binary import credentials_configured, find_binary
from escalation.agent.capabilities import capabilities_of
from escalation.drills.drill import start_drill
from escalation.errors import CliMissing, RefusalCode
from escalation.management.arguments import NOTHING_WATCHED, local_address
from escalation.management.commands.apply import APPLIER, apply_at_start
from escalation.management.commands.drill import DEFAULT_SCENARIO
from escalation.management.output import Refused, TerminalCommand, trouble_with_database, waiting
from escalation.management.session_text import moment
from escalation.sandbox.proof.proof import proof_ahead
from escalation.worker import installation
from escalation.worker.installation import carry_out, ensure_operator, upgrade_ahead
from escalation.worker.parent import Instructions, become_parent
from escalation.worker.schedules import ensure_default_watch
from escalation.worker.web_server import fresh_log, why_not_bound
from sessions_app.credentials import API_KEY
from sessions_app.models import Cycle, Watch

WIDTH = 96
INDENT = 11


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    version: str
    address: str
    account: str
    next_steps: tuple[str, ...]
    log: str


def screen_lines(screen: Screen, highlight: Callable[[str], str]) -> Iterator[str]:
    yield ""
    yield highlight(f"Claude Ops is running at {screen.address}")
    yield ""
    yield from _entry("Account", screen.account)
    for number, step in enumerate(screen.next_steps):
        yield from _entry("Next" if number == 0 else "", step)
    if screen.log:
        yield from _entry("Logs", f"{screen.log} (what the runs do: claudeops logs -f)")
    yield from _entry("Version", screen.version)
    yield from _entry("Stop", "Ctrl-C. Running tiers end cleanly; the next start continues.")
    yield ""


def _entry(title: str, text: str) -> Iterator[str]:
    """Wrap text, without breaking paths and addresses."""
    lines = wrap(text, WIDTH - INDENT, break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        yield f"{title if number == 0 else '':{INDENT}}{line}"


DATABASE_TIMEOUT_SECONDS = 60.0


class Command(TerminalCommand):
    help = "Set up this installation and run it: web server and queue worker. Ctrl-C stops both."

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT
        address = f"{local_address(host, port)}/"
        self._take_state_directory(address)
        if why := why_not_bound(host, port):
            raise Refused(RefusalCode.CANNOT_LISTEN, why)
        self._await_database()
        account = self._prepare()
        on_terminal = self.stdout.isatty()
        log = str(fresh_log(Path(settings.CLAUDEOPS_STATE_DIR))) if on_terminal else ""
        screen = Screen(
            version=settings.CLAUDEOPS_VERSION,
            address=address,
            account=account,
            next_steps=tuple(filter(None, [*self._first_drill(), *_next_runs(), proof_ahead()])),
            log=log,
        )
        lines = list(screen_lines(screen, self.style.SUCCESS))
        connections.close_all()
        become_parent(Instructions(host=host, port=port, screen=lines, log=log))

    def _take_state_directory(self, address: str) -> None:
        try:
            installation.take(Path(settings.CLAUDEOPS_STATE_DIR), address)
        except installation.Taken as taken:
            raise Refused(RefusalCode.IN_USE, taken) from taken

    def _await_database(self) -> None:
        """Wait for a database that is starting."""
        give_up = time.monotonic() + DATABASE_TIMEOUT_SECONDS
        said = False
        with remembered_interrupts() as interrupts:
            while True:
                try:
                    return connection.ensure_connection()
                except OperationalError as error:
                    if connection.vendor == "sqlite" or time.monotonic() > give_up:
                        raise
                    if not said:
                        self.stderr.write(trouble_with_database(error))
                        seconds = f"{DATABASE_TIMEOUT_SECONDS:.0f} s"
                        self.stderr.write(f"Waiting for it, up to {seconds}.")
                        said = True
                    time.sleep(0.5)
                if interrupts:
                    raise KeyboardInterrupt

    def _prepare(self) -> str:
        """Make database, account and CLI ready, and return the line about the account."""
        ahead = upgrade_ahead()
        if ahead.objection:
            raise Refused(ahead.refusal_code, ahead.objection)
        if ahead.waiting:
            self._say("Setting up the database." if ahead.is_new else "Upgrading the database.")
            with waiting(self.stderr, "Preparing the database"):
                carry_out()
        ensure_default_watch()
        account = ensure_operator() or "as before; others are added in admin"
        apply_at_start(self)
        os.environ[APPLIER] = ""  # the worker is a process of this one, and need not do it again
        try:
            with waiting(self.stderr, "Trying out what the claude CLI can do"):
                binary = find_binary()
                capabilities = capabilities_of(binary)
        except CliMissing as missing:
            raise Refused(missing.why_not, missing) from missing
        state = "ready" if capabilities.is_usable else capabilities.verdict
        self._say(f"Claude CLI {binary.version}, {binary.source}: {state}.")
        return account

    def _first_drill(self) -> list[str]:
        """Start a drill in a new installation without a key, and return the lines about it."""
        if credentials_configured():
            return []
        said = []
        if not Cycle.objects.exclude(drill="").exists():
            cycle = start_drill(DEFAULT_SCENARIO)
            said.append(
                f"The drill {cycle.drill} is running, which costs nothing: watch it on the "
                "dashboard."
            )
        said.append(
            "No API key is configured, so only drills can run. To watch a real system, set "
            f"{API_KEY} in {settings.CLAUDEOPS_ENV_FILE} and start again."
        )
        return said

    def _say(self, sentence: str) -> None:
        """Write and flush a line."""
        self.stdout.write(sentence)
        self.stdout.flush()


@contextlib.contextmanager
def remembered_interrupts() -> Iterator[list[int]]:
    """Handle Ctrl-C, also where a database driver would swallow the exception."""
    seen: list[int] = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        seen.append(number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield seen
    finally:
        signal.signal(signal.SIGINT, before)


def _next_runs() -> list[str]:
    watches = list(Watch.objects.select_related("schedule"))
    if not watches:
        return [NOTHING_WATCHED]
    due = [(watch.next_run, watch.name) for watch in watches if watch.next_run]
    if not due:
        return ["Every watch is paused: `claudeops watch unpause NAME`, or run one by hand."]
    at, name = min(due)
    return [f"{name} runs next, at {moment(at)}; {len(watches)} watched in all."]
