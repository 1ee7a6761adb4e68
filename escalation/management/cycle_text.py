"""Cycles in a terminal, and as data for scripts."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Q, QuerySet, Sum
from django.utils import timezone

from escalation.management.refusal import Refused
from escalation.management.tables import Cell
from sessions_app.models import Cycle, Session, Watch
from sessions_app.reading.chain import Chain
from sessions_app.reading.chain_data import chain_as_data
from sessions_app.reading.formatting import money

HEADINGS = ("cycle", "begun", "of", "outcome", "cost", "why")
TONES = {
    Cycle.Outcome.HEALTHY: "good",
    Cycle.Outcome.FIXED: "good",
    Cycle.Outcome.NEEDS_PERSON: "warn",
    Cycle.Outcome.COULD_NOT_RUN: "bad",
}


def listed_cycles(watch: str | None, outcome: str | None, *, drills: bool) -> QuerySet[Cycle]:
    cycles = Cycle.objects.select_related("watch").annotate(cost=Sum("sessions__cost_usd"))
    cycles = cycles.order_by("-pk")
    if watch:
        cycles = cycles.filter(_of_watch(watch))
    elif not drills:
        cycles = cycles.filter(drill="")
    return cycles.filter(outcome=outcome) if outcome else cycles


def _of_watch(name: str) -> Q:
    """Also of one that was removed. Refuses a name that nobody knows."""
    of_it = Q(watch__name=name) | Q(watch=None, drill="", watch_name=name)
    if not Watch.objects.filter(name=name).exists() and not Cycle.objects.filter(of_it).exists():
        known = ", ".join(Watch.objects.values_list("name", flat=True)) or "none"
        raise Refused(f"There is no watch {name!r}. Known watches: {known}.")
    return of_it


def cycle_row(cycle: Cycle) -> tuple[Cell | str, ...]:
    said = str(cycle.get_outcome_display() or cycle.get_state_display())
    cost: Decimal | None = getattr(cycle, "cost", None)
    return (
        str(cycle.pk),
        moment(cycle.created_at),
        cycle.subject,
        Cell(said, TONES.get(Cycle.Outcome(cycle.outcome), "") if cycle.outcome else "live"),
        "nothing" if cycle.drill else money(cost or Decimal(0)),
        cycle.outcome_reason,
    )


def cycle_as_data(cycle: Cycle) -> dict[str, Any]:
    """With its whole chain: reports, services, actions, times and reasons."""
    sessions = tuple(cycle.sessions.select_related("cycle__watch").order_by("pk"))
    return {
        "id": cycle.pk,
        "watch": cycle.watch.name if cycle.watch else cycle.watch_name or None,
        "drill": cycle.drill or None,
        "trigger": cycle.trigger,
        "prompt": cycle.prompt or None,
        "workdir": cycle.workdir,
        "max_tier": cycle.max_tier,
        "dry_run": cycle.dry_run,
        "ephemeral": cycle.ephemeral,
        "state": cycle.state,
        "outcome": cycle.outcome or None,
        "outcome_reason": cycle.outcome_reason,
        "created_at": cycle.created_at,
        "finished_at": cycle.finished_at,
        "sessions": chain_as_data(Chain(sessions=sessions)),
    }


def running_row(session: Session) -> tuple[Cell | str, ...]:
    return (
        f"#{session.pk}",
        session.cycle.subject,
        f"Tier {session.tier}",
        session.model,
        Cell(f"since {moment(session.started_at)}", "live"),
        f"{money(session.spent_so_far_usd)} so far" if session.spent_so_far_usd else "",
    )


def moment(at: datetime | None) -> str:
    return timezone.localtime(at).strftime("%Y-%m-%d %H:%M") if at else ""
