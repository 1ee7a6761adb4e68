"""The sandbox page (proofs, decisions by day) and the page of the commands of a session."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Max, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.agent.binary import login_from
from escalation.queue import installation_lock, start_waiting
from escalation.sandbox.setup import sandbox_of_installation
from escalation.web.chart import Chart, Column, chart_of
from escalation.web.responses import HtmxRequest, wants_fragment
from escalation.worker.schedules import PROOF_TAKES, next_proof
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right
from sessions_app.history.commands import (
    VERDICTS,
    JudgedCommand,
    is_dry,
    judged_commands,
    would_have_run,
)
from sessions_app.models import DailyVerdict, SandboxProof, Session, SessionEvent
from sessions_app.models.session import EventKind, Verdict
from sessions_app.text import as_text, mapping

DAYS = 30
ROWS_SHOWN = 1_000
VECTORS_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedVector:
    command: str
    verdict: str
    rule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofRow:
    """One row of a proof."""

    tier: str
    command: str
    expect: str
    decision: str
    happened: str
    rule: str
    ok: bool
    vectors: tuple[JudgedVector, ...] = ()
    """The programs that a command of the corpus executed by shims."""
    name: str = ""
    """The description of an attack; empty for a command of the corpus."""
    target: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.tier, self.name or self.command


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofChange:
    now: ProofRow
    before: ProofRow


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofShown:
    proof: SandboxProof
    rows: tuple[ProofRow, ...]
    """The rows that pass the filter, failed ones first, up to a limit."""
    found: int
    """The number of rows that pass the filter."""
    tiers: tuple[str, ...]
    changes: tuple[ProofChange, ...]
    """Rows with another result than in the proof before."""
    added: int
    dropped: int
    before: SandboxProof | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    day: date
    denied: int
    asked: int
    isolated: int
    allowed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxPage:
    proofs: tuple[ProofShown, ...]
    days: tuple[Day, ...]
    chart: Chart
    only_failed: bool
    tier: str
    next_proof: datetime | None = None
    """When the worker makes the first proof."""
    proof_takes: str = PROOF_TAKES

    @property
    def holding(self) -> tuple[SandboxProof, ...]:
        return tuple(shown.proof for shown in self.proofs if shown.proof.holds_higher_tiers)

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        return tuple(
            (verdict, str(verdict.label))
            for verdict in (Verdict.DENY, Verdict.ISOLATE, Verdict.ASK)
        )

    @property
    def tiers(self) -> tuple[str, ...]:
        return tuple(sorted({tier for shown in self.proofs for tier in shown.tiers}))


def load_sandbox(*, only_failed: bool = False, tier: str = "") -> SandboxPage:
    kinds = (_latest(kind) for kind in SandboxProof.Kind)
    days = _days()
    proofs = tuple(_shown(found, only_failed, tier) for found in kinds if found)
    return SandboxPage(
        proofs=proofs,
        next_proof=None if proofs else next_proof(),
        days=days,
        chart=chart_of(_columns(days), lambda count: f"{count:,.0f}", least_step=Decimal(1)),
        only_failed=only_failed,
        tier=tier,
    )


def _latest(kind: str) -> list[SandboxProof]:
    """Return the last proof of a kind and the one before."""
    return list(SandboxProof.objects.filter(kind=kind).select_related("accepted_by")[:2])


def _shown(found: list[SandboxProof], only_failed: bool, tier: str) -> ProofShown:
    proof, before = found[0], found[1] if len(found) > 1 else None
    trials = _rows(proof)
    known = {trial.key: trial for trial in (_rows(before) if before else ())}
    changes = [
        ProofChange(now=trial, before=known[trial.key])
        for trial in trials
        if trial.key in known and _outcome(known[trial.key]) != _outcome(trial)
    ]
    wanted = [
        trial
        for trial in trials
        if not (only_failed and trial.ok) and (not tier or trial.tier == tier)
    ]
    return ProofShown(
        proof=proof,
        rows=tuple(sorted(wanted, key=lambda trial: trial.ok)[:ROWS_SHOWN]),
        found=len(wanted),
        tiers=tuple(sorted({trial.tier for trial in trials if trial.tier})),
        changes=tuple(changes),
        added=sum(trial.key not in known for trial in trials) if before else 0,
        dropped=len(known.keys() - {trial.key for trial in trials}),
        before=before,
    )


def _outcome(trial: ProofRow) -> tuple[str, bool]:
    return trial.decision, trial.ok


def _rows(proof: SandboxProof) -> list[ProofRow]:
    rows = proof.rows if isinstance(proof.rows, list) else []
    return [_row(mapping(row)) for row in rows]


def _row(row: Mapping[str, Any]) -> ProofRow:
    return ProofRow(
        tier=as_text(row.get("tier")),
        command=as_text(row.get("command")),
        expect=as_text(row.get("expect")),
        decision=as_text(row.get("decision")),
        happened=as_text(row.get("happened")),
        rule=as_text(row.get("rule")),
        ok=row.get("ok") is True,
        vectors=_vectors(row.get("vectors")),
        name=as_text(row.get("name")),
        target=as_text(row.get("target")),
    )


def _vectors(found: Any) -> tuple[JudgedVector, ...]:
    listed = found[:VECTORS_SHOWN] if isinstance(found, list) else []
    return tuple(
        JudgedVector(
            command=as_text(vector.get("command")),
            verdict=as_text(vector.get("verdict")),
            rule=as_text(vector.get("rule")),
        )
        for vector in map(mapping, listed)
    )


def _days() -> tuple[Day, ...]:
    since = timezone.localdate() - timedelta(days=DAYS - 1)
    counted = DailyVerdict.objects.filter(day__gte=since).values_list("day", "verdict", "count")
    days: defaultdict[date, dict[str, int]] = defaultdict(dict)
    for day, verdict, count in counted:
        days[day][verdict] = count
    return tuple(
        Day(
            day=day,
            denied=found.get(Verdict.DENY, 0),
            asked=found.get(Verdict.ASK, 0),
            isolated=found.get(Verdict.ISOLATE, 0),
            allowed=found.get(Verdict.ALLOW, 0),
        )
        for day, found in sorted(days.items(), reverse=True)
    )


def _columns(days: tuple[Day, ...]) -> list[Column]:
    """Return a column for each day up to today, oldest first."""
    found = {day.day: day for day in days}
    today = timezone.localdate()
    return [
        Column(
            label=f"{day:%Y-%m-%d}",
            short=f"{day:%b} {day.day}",
            parts=_held(found[day]) if day in found else (),
        )
        for day in (today - timedelta(days=ago) for ago in range(DAYS - 1, -1, -1))
    ]


def _held(day: Day) -> tuple[tuple[str, Decimal], ...]:
    counts = (
        (Verdict.DENY, day.denied),
        (Verdict.ISOLATE, day.isolated),
        (Verdict.ASK, day.asked),
    )
    return tuple((verdict, Decimal(count)) for verdict, count in counts)


# The commands of a session.

COMMANDS_SHOWN = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    verdict: str
    word: str
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Commands:
    rows: tuple[JudgedCommand, ...]
    choices: tuple[Choice, ...]
    """A filter for each verdict."""
    chosen: str
    total: int
    left_out: int
    version: str


def load_commands(session: Session, chosen: str = "") -> Commands:
    """Load the decisions of a session in one query, denied commands first."""
    events = list(_events(session).only("session", "kind", "payload", "created_at", "sequence"))
    judged = judged_commands(events)
    chosen = chosen if chosen in VERDICTS else ""
    rank = {verdict: place for place, verdict in enumerate(VERDICTS)}
    wanted = [command for command in judged if not chosen or command.verdict == chosen]
    rows = sorted(wanted, key=lambda command: rank.get(command.verdict, -1))
    counts = Counter(command.verdict for command in judged)
    return Commands(
        rows=tuple(rows[:COMMANDS_SHOWN]),
        choices=tuple(
            Choice(verdict=verdict, word=word, count=counts[verdict])
            for verdict, word in VERDICTS.items()
        ),
        chosen=chosen,
        total=len(judged),
        left_out=max(0, len(rows) - COMMANDS_SHOWN),
        version=_version(session, events[-1].sequence if events else 0),
    )


def commands_version(session: Session) -> str:
    """Return the version token without loading the commands."""
    last = _events(session).aggregate(last=Max("sequence"))["last"]
    return _version(session, last or 0)


def _version(session: Session, last: int) -> str:
    return f"{last}-{'open' if session.is_open else 'ended'}"


def _events(session: Session) -> QuerySet[SessionEvent]:
    return session.events.filter(
        source=SessionEvent.Source.SUPERVISOR, kind__in=(EventKind.COMMAND, EventKind.COMMAND_END)
    ).order_by("sequence")


# Views.

NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
def sandbox(request: HtmxRequest) -> HttpResponse:
    page = load_sandbox(
        only_failed=request.GET.get("failed") == "yes", tier=request.GET.get("tier", "")
    )
    return render(request, "web/sandbox.html", {"sandbox": page, "sandbox_now": current_sandbox()})


@needs(Right.SEE_OUTPUT)
@require_safe
@vary_on_headers("HX-Request")
def session_commands(request: HtmxRequest, pk: int) -> HttpResponse:
    session = get_object_or_404(Session.objects.select_related("cycle__watch"), pk=pk)
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == commands_version(session):
        return HttpResponse(status=NO_CHANGE)
    commands = load_commands(session, request.GET.get("verdict", ""))
    template = "_commands.html" if fragment else "session_commands.html"
    context = {"session": session, "commands": commands, "dry_commands": None}
    if not fragment and is_dry(session):
        context["dry_commands"] = would_have_run([session])
    return render(request, f"web/{template}", context)


@acting(Right.APPROVE)
def accept_proof(request: HttpRequest, pk: int) -> HttpResponse:
    """Accept a proof that got worse, so that the waiting sessions start."""
    proof = get_object_or_404(SandboxProof, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was accepted: confirm that you have checked it.")
        return redirect("web:sandbox")
    holding = SandboxProof.objects.filter(pk=proof.pk, is_worse=True, accepted_at=None)
    with installation_lock():
        accepted = holding.update(accepted_by=cast(User, request.user), accepted_at=timezone.now())
        started = start_waiting() if accepted else 0
    if accepted:
        messages.success(request, f"Accepted. {started} waiting sessions start.")
    else:
        messages.warning(request, "There was nothing to accept: this proof holds back no tier.")
    return redirect("web:sandbox")


def current_sandbox() -> dict[str, Any]:
    """Return the sandbox facts of this host, without grants and paths of a tier or watch."""
    return sandbox_of_installation(login_from(os.environ, settings.CLAUDEOPS_PASS_ENV))
