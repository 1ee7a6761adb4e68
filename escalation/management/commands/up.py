"""Set the installation up, start the web server and the worker, and stop both cleanly."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from django.conf import settings
from django.db import OperationalError, connection, connections

from escalation import queue
from escalation.agent import capabilities_of, credentials_configured, find_binary
from escalation.errors import CliMissing
from escalation.host import up_lock
from escalation.host.default_watch import ensure_default_watch
from escalation.host.listening import why_not_bound
from escalation.host.log_file import fresh_log
from escalation.host.operator_account import ensure_operator
from escalation.host.parent import Orders, become_parent
from escalation.host.upgrading import carry_out, upgrade_ahead
from escalation.management.address import local_address
from escalation.management.commands.drill import DEFAULT_SCENARIO
from escalation.management.cycle_text import moment
from escalation.management.database_trouble import trouble_with_database
from escalation.management.progress import waiting
from escalation.management.references import NOTHING_WATCHED
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand
from escalation.management.up_screen import Screen, screen_lines
from escalation.rehearsal.drills.drill import start_drill
from sessions_app.models import Cycle, Watch

DATABASE_PATIENCE_SECONDS = 60.0


class Command(TerminalCommand):
    help = "Set up this installation and run it: web server and queue worker. Ctrl-C stops both."

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT
        address = f"{local_address(host, port)}/"
        self._take_state_directory(address)
        if why := why_not_bound(host, port):
            raise Refused(why)
        self._await_database()
        account = self._prepare()
        on_terminal = self.stdout.isatty()
        log = str(fresh_log(Path(settings.CLAUDEOPS_STATE_DIR))) if on_terminal else ""
        screen = Screen(
            version=settings.CLAUDEOPS_VERSION,
            address=address,
            account=account,
            next_steps=tuple([*self._first_drill(), *_next_runs()]),
            log=log,
        )
        lines = list(screen_lines(screen, self.style.SUCCESS))
        connections.close_all()
        become_parent(Orders(host=host, port=port, screen=lines, log=log))

    def _take_state_directory(self, address: str) -> None:
        try:
            up_lock.take(Path(settings.CLAUDEOPS_STATE_DIR), address)
        except up_lock.Taken as taken:
            raise Refused(taken) from taken

    def _await_database(self) -> None:
        """One that is just being started is waited for."""
        give_up = time.monotonic() + DATABASE_PATIENCE_SECONDS
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
                        seconds = f"{DATABASE_PATIENCE_SECONDS:.0f} s"
                        self.stderr.write(f"Waiting for it, up to {seconds}.")
                        said = True
                    time.sleep(0.5)
                if interrupts:
                    raise KeyboardInterrupt

    def _prepare(self) -> str:
        """Everything that must be there; what is to be said about the account."""
        ahead = upgrade_ahead()
        if ahead.objection:
            raise Refused(ahead.objection)
        if ahead.waiting:
            self._say("Setting up the database." if ahead.is_new else "Upgrading the database.")
            with waiting(self.stderr, "Preparing the database"):
                carry_out()
        ensure_default_watch()
        account = ensure_operator() or "as before; others are added in admin"
        try:
            with waiting(self.stderr, "Trying out what the claude CLI can do"):
                binary = find_binary()
                capabilities = capabilities_of(binary)
        except CliMissing as missing:
            raise Refused(missing) from missing
        state = "ready" if capabilities.is_usable else capabilities.verdict
        self._say(f"Claude CLI {binary.version}, {binary.source}: {state}.")
        return account

    def _first_drill(self) -> list[str]:
        """Without a key, a newcomer sees a drill; what is to be said about it."""
        if credentials_configured():
            return []
        said = []
        if not Cycle.objects.exclude(drill="").exists():
            cycle = start_drill(DEFAULT_SCENARIO, enqueue=queue.enqueue)
            said.append(
                f"The drill {cycle.drill} is running, which costs nothing: watch it on the "
                "dashboard."
            )
        said.append(
            "No API key is configured, so only drills can run. To watch a real system, set "
            f"ANTHROPIC_API_KEY in {settings.CLAUDEOPS_ENV_FILE} and start again."
        )
        return said

    def _say(self, sentence: str) -> None:
        """At once, also into a pipe: the person waits for it."""
        self.stdout.write(sentence)
        self.stdout.flush()


@contextlib.contextmanager
def remembered_interrupts() -> Iterator[list[int]]:
    """Ctrl-C as ever; but what raises in the middle of a driver's own clean-up is lost there."""
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
