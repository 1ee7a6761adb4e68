"""Shows the state of the installation."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from decimal import Decimal
from textwrap import wrap
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db.models import Count, Sum
from django.utils import timezone

from escalation.agent.binary import credentials_configured, no_credentials
from escalation.management.arguments import NOTHING_WATCHED, address_of
from escalation.management.output import WHOLE, Cell, ExitCode, TerminalCommand, write_table
from escalation.management.session_text import moment, running_row
from escalation.worker.health import readiness
from sessions_app.costs.budgets import Scope
from sessions_app.costs.spending import limits_of_all
from sessions_app.history.chain import session_as_data
from sessions_app.history.header_status import Attention
from sessions_app.models import (
    Approval,
    Incident,
    PauseSwitch,
    PeriodCost,
    Probe,
    RateLimit,
    SandboxProof,
    Session,
    Watch,
)
from sessions_app.text import ago, json_text, money, one_line

NEXT_SHOWN = 5
PROBES_SHOWN = 20
WIDE = 100


@dataclass(frozen=True, slots=True)
class Need:
    """Something that waits for a person."""

    kind: str
    what: str
    why: str
    address: str


@dataclass(frozen=True, slots=True)
class InstallationStatus:
    version: str
    running: tuple[Session, ...]
    queued: int
    held_back: str
    """Reason why no new session starts, or empty."""
    installation: tuple[Need, ...]
    """Problems of the installation itself."""
    needs: tuple[Need, ...]
    """Approvals and incidents: what the pages count, too."""
    probes: dict[str, int]
    """Number of probes by state."""
    probes_down: tuple[Probe, ...]
    next_runs: tuple[tuple[Watch, datetime], ...]
    cost_today_usd: Decimal
    runs_today: int
    budget_today_usd: Decimal | None
    watches: int
    watches_unwell: int
    """Watches with an unresolved problem."""


def status_now(*, drills: bool = False) -> InstallationStatus:
    """Return the status; `drills` decides which sessions it shows."""
    sessions = Session.objects.drills() if drills else Session.objects.real()
    open_sessions = sessions.filter(status=Session.Status.RUNNING)
    today = PeriodCost.objects.real().days_since(timezone.localdate())
    cost, runs = Sum("cost_usd", default=Decimal(0)), Sum("runs", default=0)
    spent = today.aggregate(cost=cost, runs=runs)
    return InstallationStatus(
        version=settings.CLAUDEOPS_VERSION,
        running=tuple(open_sessions.select_related("cycle__watch").order_by("pk")),
        queued=sessions.filter(status=Session.Status.QUEUED).count(),
        held_back=_held_back(),
        installation=tuple(_installation()),
        needs=tuple(_needs()),
        probes=_probes(),
        probes_down=tuple(
            Probe.objects.filter(state=Probe.State.DOWN).select_related("watch")[:PROBES_SHOWN]
        ),
        next_runs=tuple(_next_runs()),
        cost_today_usd=spent["cost"],
        runs_today=spent["runs"],
        budget_today_usd=limits_of_all()[Scope.DAY],
        watches=Watch.objects.count(),
        watches_unwell=_unwell(),
    )


def _unwell() -> int:
    problems = Incident.objects.filter(
        state__in=Incident.UNRESOLVED_STATES, kind=Incident.Kind.PROBLEM, drill=""
    )
    return problems.exclude(watch=None).values("watch").distinct().count()


def sentence_of(status: InstallationStatus, now: datetime) -> str:
    """Return the state of the installation as one line. Its count is that of the pages; faults of
    the installation itself are told beside it."""
    faults = len(status.installation)
    well = status.watches - status.watches_unwell
    parts = [
        f"{faults} fault{'s' if faults > 1 else ''} of the installation" if faults else "",
        Attention(problems=len(status.needs)).sentence.removesuffix(".")
        if status.needs or not faults
        else "",
        f"{well} of {status.watches} watches well" if status.watches_unwell else "",
        f"{well} {'watch' if well == 1 else 'watches'} well"
        if status.watches and not status.watches_unwell
        else "",
        f"{money(status.cost_today_usd)}"
        + (f" of {money(status.budget_today_usd)}" if status.budget_today_usd is not None else "")
        + " today",
        f"next {ago(status.next_runs[0][1], now)}" if status.next_runs else "",
    ]
    return " · ".join(filter(None, parts))


def _held_back() -> str:
    switch = PauseSwitch.current()
    if switch.paused:
        return f"paused: {switch.reason}"
    clock = RateLimit.holding()
    return clock.sentence if clock else ""


def _installation() -> Iterator[Need]:
    for check in readiness():
        if not check.ok:
            yield Need("installation", check.name, check.said, address_of())
    if Watch.objects.exists() and not credentials_configured():
        yield Need("installation", "API key", no_credentials(), address_of())
    if proof := SandboxProof.holding():
        yield Need("sandbox", "the sandbox got worse", str(proof), address_of("/sandbox/"))


def _needs() -> Iterator[Need]:
    for approval in Approval.objects.answerable().select_related("session"):
        address = address_of(approval.get_absolute_url())
        yield Need("approval", str(approval), approval.why, address)
    waiting = Incident.objects.waiting_for_person().select_related("watch")
    for incident in waiting.order_by("-severity", "first_seen_at", "pk"):
        address = address_of(incident.get_absolute_url())
        yield Need("incident", incident.subject, incident.title, address)


def _probes() -> dict[str, int]:
    counted = Probe.objects.order_by().values_list("state").annotate(count=Count("pk"))
    return dict(counted)


def _next_runs() -> list[tuple[Watch, datetime]]:
    watches = Watch.objects.filter(enabled=True).select_related("schedule")
    due = [(watch, watch.next_run) for watch in watches]
    known = [(watch, at) for watch, at in due if at is not None]
    return sorted(known, key=lambda pair: pair[1])[:NEXT_SHOWN]


def status_as_data(status: InstallationStatus) -> dict[str, Any]:
    return {
        "version": status.version,
        "sentence": sentence_of(status, timezone.now()),
        "running": [session_as_data(session) for session in status.running],
        "queued": status.queued,
        "held_back": status.held_back or None,
        "installation": [asdict(need) for need in status.installation],
        "needs": [asdict(need) for need in status.needs],
        "waiting_for_person": len(status.needs),
        "probes": status.probes,
        "probes_down": [
            {"watch": probe.watch.name, "name": probe.name, "since": probe.since}
            for probe in status.probes_down
        ],
        "next_runs": [{"watch": watch.name, "at": at} for watch, at in status.next_runs],
        "cost_today_usd": float(status.cost_today_usd),
        "runs_today": status.runs_today,
        "budget_today_usd": None
        if status.budget_today_usd is None
        else float(status.budget_today_usd),
        "watches": status.watches,
        "watches_unwell": status.watches_unwell,
    }


class Command(TerminalCommand):
    help = (
        "Show what runs, what needs you, what comes next and what today cost. "
        "Exit code 1 while something needs a person."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--drills", action="store_true", help="the sessions of drills instead")
        parser.add_argument("--json", action="store_true", help="print it all as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        status = status_now(drills=options["drills"])
        if options["json"]:
            data = status_as_data(status)
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        else:
            self._print(status)
        if status.needs or status.installation:
            sys.exit(ExitCode.PERSON)

    def _print(self, status: InstallationStatus) -> None:
        self._say(sentence_of(status, timezone.now()), self.style.MIGRATE_LABEL)
        self._head("Running")
        self._table(
            ("session", "of", "tier", "model", "since", "cost"),
            [running_row(session) for session in status.running],
        )
        waiting = f"{status.queued} queued." if status.queued else ""
        held = f"No new tier starts: {status.held_back}." if status.held_back else ""
        if not status.running or waiting or held:
            first = "" if status.running else "Nothing runs."
            self._say(" ".join(filter(None, (first, waiting, held))))
        if status.installation:
            self._head("Installation")
            self._needs(status.installation)
        self._head(f"Needs you ({len(status.needs)})" if status.needs else "Needs you")
        self._needs(status.needs)
        if not status.needs:
            self.stdout.write("Nothing.", self.style.SUCCESS)
        if status.probes:
            self._head("Probes")
            counts = ", ".join(f"{count} {state}" for state, count in sorted(status.probes.items()))
            self._say(f"{counts}.")
            rows = [
                (Cell(probe.name, "warn"), probe.watch.name, moment(probe.since), probe.last_output)
                for probe in status.probes_down
            ]
            self._table(("down", "of", "since", "last output"), rows)
        self._head("Next")
        now = timezone.now()
        self._table(
            ("watch", "at", "in"),
            [(watch.name, moment(at), ago(at, now)) for watch, at in status.next_runs],
        )
        if not status.next_runs:
            self._say(_without_next_run())
        self._head("Today")
        self.stdout.write(f"{money(status.cost_today_usd)} in {status.runs_today} runs")

    def _needs(self, needs: Sequence[Need]) -> None:
        """Write a row for each; on a narrow terminal two lines, so that no address is cut."""
        if self._width >= WIDE:
            self._table(("what", "of", "where", "why"), [_need_row(need) for need in needs])
            return
        for need in needs:
            said = f"{need.kind}  {need.what}: {need.why}"
            self.stdout.write(one_line(said, self._width), self.style.WARNING)
            self.stdout.write(f"  {need.address}")

    def _table(self, headings: Sequence[str], rows: Sequence[Sequence[Cell | str]]) -> None:
        write_table(self, headings, rows, self._width)

    def _say(self, text: str, style: Callable[[str], str] | None = None) -> None:
        for line in wrap(text, self._width):
            self.stdout.write(line, style)

    @property
    def _width(self) -> int:
        """Columns of the terminal, or of COLUMNS in a pipe; without both lines are whole."""
        if self.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal():
            return shutil.get_terminal_size().columns
        return WHOLE

    def _head(self, title: str) -> None:
        self.stdout.write(title, self.style.MIGRATE_HEADING)


def _without_next_run() -> str:
    """Return why no watch is due."""
    watches = Watch.objects.order_by("name")
    if not watches:
        return NOTHING_WATCHED
    paused = [watch.name for watch in watches if not watch.enabled]
    if len(paused) < len(watches):
        return "No watch has a schedule."
    return f"Every watch is paused: {', '.join(paused)}. Start one: claudeops watch unpause NAME."


def _need_row(need: Need) -> tuple[Cell | str, ...]:
    return Cell(need.kind, "warn"), need.what, need.address, need.why
