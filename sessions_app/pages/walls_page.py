"""What the page of walls shows, as plain values: the last proofs, what changed since, and what
the gate has said on each of the last days."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.utils import timezone

from sessions_app.models import DailyVerdict, WallsProof
from sessions_app.reading.chart import Chart, Column, chart_of
from sessions_app.reading.plain_text import as_text
from sessions_app.reading.stream_shape import mapping
from sessions_app.reading.walls import ALLOW, ASK, CONTAIN, DENY

DAYS = 30
ROWS_SHOWN = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """One row of a proof."""

    tier: str
    command: str
    expect: str
    decision: str
    happened: str
    rule: str
    ok: bool
    name: str = ""
    """Of an attack: what it tries. A command of the corpus needs none."""
    target: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.tier, self.name or self.command


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    now: Trial
    before: Trial


@dataclass(frozen=True, kw_only=True, slots=True)
class ProofShown:
    proof: WallsProof
    rows: tuple[Trial, ...]
    """As many as the filter lets through."""
    tiers: tuple[str, ...]
    changes: tuple[Change, ...]
    """Trials that came out otherwise than in the proof before."""
    added: int
    dropped: int
    before: WallsProof | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Day:
    day: date
    denied: int
    asked: int
    contained: int
    allowed: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WallsPage:
    proofs: tuple[ProofShown, ...]
    days: tuple[Day, ...]
    chart: Chart
    only_failed: bool
    tier: str

    @property
    def holding(self) -> tuple[WallsProof, ...]:
        return tuple(shown.proof for shown in self.proofs if shown.proof.holds_higher_tiers)

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        return (DENY, "denied"), (CONTAIN, "contained"), (ASK, "asked for")

    @property
    def tiers(self) -> tuple[str, ...]:
        return tuple(sorted({tier for shown in self.proofs for tier in shown.tiers}))


def load_walls(*, only_failed: bool = False, tier: str = "") -> WallsPage:
    kinds = (_latest(kind) for kind in WallsProof.Kind)
    days = _days()
    return WallsPage(
        proofs=tuple(_shown(found, only_failed, tier) for found in kinds if found),
        days=days,
        chart=chart_of(_columns(days), lambda count: f"{count:,.0f}", least_step=Decimal(1)),
        only_failed=only_failed,
        tier=tier,
    )


def _latest(kind: str) -> list[WallsProof]:
    """The last proof of its kind and the one before."""
    return list(WallsProof.objects.filter(kind=kind).select_related("accepted_by")[:2])


def _shown(found: list[WallsProof], only_failed: bool, tier: str) -> ProofShown:
    proof, before = found[0], found[1] if len(found) > 1 else None
    trials = _trials(proof)
    known = {trial.key: trial for trial in (_trials(before) if before else ())}
    changes = [
        Change(now=trial, before=known[trial.key])
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
        tiers=tuple(sorted({trial.tier for trial in trials if trial.tier})),
        changes=tuple(changes),
        added=sum(trial.key not in known for trial in trials) if before else 0,
        dropped=len(known.keys() - {trial.key for trial in trials}),
        before=before,
    )


def _outcome(trial: Trial) -> tuple[str, bool]:
    return trial.decision, trial.ok


def _trials(proof: WallsProof) -> list[Trial]:
    rows = proof.rows if isinstance(proof.rows, list) else []
    return [_trial(mapping(row)) for row in rows]


def _trial(row: Mapping[str, Any]) -> Trial:
    return Trial(
        tier=as_text(row.get("tier")),
        command=as_text(row.get("command")),
        expect=as_text(row.get("expect")),
        decision=as_text(row.get("decision")),
        happened=as_text(row.get("happened")),
        rule=as_text(row.get("rule")),
        ok=row.get("ok") is True,
        name=as_text(row.get("name")),
        target=as_text(row.get("target")),
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
            denied=found.get(DENY, 0),
            asked=found.get(ASK, 0),
            contained=found.get(CONTAIN, 0),
            allowed=found.get(ALLOW, 0),
        )
        for day, found in sorted(days.items(), reverse=True)
    )


def _columns(days: tuple[Day, ...]) -> list[Column]:
    """Every day up to today, oldest first: what was held, and what waited for a person."""
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
    counts = ((DENY, day.denied), (CONTAIN, day.contained), (ASK, day.asked))
    return tuple((verdict, Decimal(count)) for verdict, count in counts)
