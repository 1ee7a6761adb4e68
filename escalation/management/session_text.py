"""Text and JSON of chains, sessions, messages and cycles."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from decimal import Decimal
from typing import Any

from django.db.models import Count, Q, QuerySet, Sum
from django.utils import timezone

from escalation.agent.event_text import describe_event, summary_line
from escalation.errors import RefusalCode
from escalation.management.output import Cell, Refused
from sessions_app.archive.messages import StoredMessage
from sessions_app.costs.check import check_costs
from sessions_app.history.chain import (
    Branch,
    Chain,
    answer_text,
    chain_as_data,
    session_cost,
)
from sessions_app.history.commands import would_have_run
from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.session import EventSource
from sessions_app.text import clean, duration, money, one_line

LONGEST_LINE = 200


def chain_lines(chain: Chain) -> Iterator[str]:
    cycle = chain.sessions[0].cycle
    yield f"Cycle {cycle.pk} of {cycle.subject}{remarks_on(cycle)}"
    for branch in chain.branches:
        yield from _branch_lines(branch)
    for tier_cost in chain.costs_by_tier:
        yield f"  Tier {tier_cost.tier}: {tier_cost.cost_text}"
    for check in check_costs(chain):
        yield f"  {check.sentence}"
    for command in would_have_run(chain.sessions):
        yield f"  would have run at Tier {command.tier}: {one_line(command.command, LONGEST_LINE)}"
    reason = "" if cycle.is_active else cycle.outcome_reason
    yield f"{cycle.result_text.capitalize()}. {reason}".strip()


def remarks_on(cycle: Cycle) -> str:
    known = {
        "not charged": cycle.drill,
        "dry run": cycle.dry_run,
        "not kept": cycle.ephemeral,
    }
    remarks = ", ".join(remark for remark, applies in known.items() if applies)
    return f" ({remarks})" if remarks else ""


def _branch_lines(branch: Branch) -> Iterator[str]:
    indent = "  " * (branch.depth + 1)
    if branch.depth:
        origin = f"#{branch.came_from.pk}" if branch.came_from else "the beginning"
        outcome = f": {branch.outcome_text}. {branch.reason}" if branch.outcome else ""
        yield f"{indent}↳ {branch.label} from {origin}{outcome}"
    for session in branch.sessions:
        yield indent + _session_line(session)
        if session.error:
            yield f"{indent}   {session.error}"


def _session_line(session: Session) -> str:
    came_from = f" ← #{session.parent_session_id}" if session.parent_session_id else ""
    return (
        f"#{session.pk} Tier {session.tier} {session.model_used or session.model} "
        f"{session.get_status_display()} {session_cost(session)} "
        f"{duration(session.duration_ms)} {session.continued_by}{came_from}"
    )


HEADINGS = ("session", "started", "of", "tier", "model", "status", "cost")
TONES = {
    Session.Status.RUNNING: "live",
    Session.Status.COMPLETED: "good",
    Session.Status.ESCALATED: "good",
    Session.Status.FAILED: "bad",
    Session.Status.TIMED_OUT: "bad",
    Session.Status.INTERRUPTED: "warn",
    Session.Status.AWAITING_APPROVAL: "warn",
}


def list_row(session: Session) -> tuple[Cell | str, ...]:
    paid = session_cost(session)
    return (
        f"#{session.pk}",
        _moment(session.started_at),
        session.cycle.subject,
        f"Tier {session.tier}",
        session.model,
        Cell(session.get_status_display(), TONES.get(Session.Status(session.status), "")),
        f"{paid}{remarks_on(session.cycle)}",
    )


def attached_line(session: Session) -> str:
    """Return a line about a session that was in this terminal."""
    said = session.error or f"{session.messages} messages"
    return (
        f"Session {session.pk} is {session.get_status_display()}: {said}, {session_cost(session)}."
    )


def stretch_line(shown: int, total: int, offset: int, what: str) -> str:
    """Return a line about the part that was shown, and how to see the next."""
    if not shown:
        return f"No {what} here; {total} in all."
    end = offset + shown
    more = f" The next ones: --offset {end}" if end < total else ""
    return f"{what.capitalize()} {offset + 1} to {end} of {total}.{more}"


def show_lines(session: Session) -> Iterator[str]:
    yield (
        f"Session {session.pk} of {session.cycle.subject}: Tier {session.tier}, "
        f"{session.get_status_display()}{remarks_on(session.cycle)}"
    )
    for name, value in _facts(session).items():
        if value:
            yield f"  {name:14} {value}"
    yield from answer_lines(session)


def answer_lines(session: Session) -> Iterator[str]:
    """Return the whole answer to a follow-up question."""
    if answer := clean(answer_text(session)):
        yield ""
        yield answer


def message_lines(message: StoredMessage) -> Iterator[str]:
    payload = {"type": message.type, "message": message.message}
    lines = describe_event(EventSource.STREAM, message.type, payload)
    for position, line in enumerate(lines):
        yield f"{f'{message.number}.' if position == 0 else '':5} {summary_line(line)}"


def _facts(session: Session) -> dict[str, str]:
    cycle = session.cycle
    used = f", used {session.model_used}" if session.model_used else ""
    why = f": {session.continued_why}" if session.continued_why else ""
    return {
        "cycle": f"{cycle.pk}, {cycle.result_text}",
        "purpose": str(session.get_purpose_display()),
        "waits": _waits(session),
        "asked for": session.request,
        "parent": f"#{session.parent_session_id}" if session.parent_session_id else "",
        "model": f"{session.model}{used}",
        "limits": _limits(session),
        "conversation": session.session_id,
        "begun by": f"{session.get_continued_by_display()}{why}",
        "cost": session_cost(session),
        "tokens": f"{session.input_tokens} in, {session.output_tokens} out",
        "turns": str(session.turns),
        "duration": duration(session.duration_ms),
        "started": _moment(session.started_at),
        "finished": _moment(session.finished_at),
        "directory": session.workdir,
        "host": session.host,
        "CLI": session.cli_version,
        "report": (session.report or {}).get("summary", ""),
        "decision": session.escalation_reason,
        "error": session.error,
    }


def _waits(session: Session) -> str:
    if session.status != Session.Status.QUEUED:
        return ""
    from escalation.run.runner import objection  # takes long to import, and is seldom needed

    return objection(session)


def _limits(session: Session) -> str:
    """Return the limits that a person chose for this session."""
    turns = f"at most {session.max_turns} turns" if session.max_turns else ""
    budget = f"at most {money(session.max_budget_usd)}" if session.max_budget_usd else ""
    return ", ".join(filter(None, (turns, budget)))


def _moment(moment: datetime | None) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M") if moment else ""


CYCLE_HEADINGS = ("cycle", "begun", "of", "outcome", "cost", "why")
CYCLE_TONES = {
    Cycle.Outcome.HEALTHY: "good",
    Cycle.Outcome.FIXED: "good",
    Cycle.Outcome.NEEDS_PERSON: "warn",
    Cycle.Outcome.COULD_NOT_RUN: "bad",
}


def listed_cycles(watch: str | None, outcome: str | None, *, drills: bool) -> QuerySet[Cycle]:
    unpriced = Q(
        sessions__cost_usd=None,
        sessions__started_at__isnull=False,
        sessions__finished_at__isnull=False,
    )
    cycles = Cycle.objects.select_related("watch").annotate(
        cost=Sum("sessions__cost_usd"), unpriced=Count("sessions", filter=unpriced)
    )
    cycles = cycles.order_by("-pk")
    cycles = cycles.exclude(drill="") if drills else cycles.filter(drill="")
    if watch:
        cycles = cycles.filter(_of_watch(watch))
    return cycles.filter(outcome=outcome) if outcome else cycles


def _of_watch(name: str) -> Q:
    """Return cycles, also of a removed watch; refuse a name that is not known."""
    of_it = Q(watch__name=name) | Q(watch=None, drill="", watch_name=name)
    if not Watch.objects.filter(name=name).exists() and not Cycle.objects.filter(of_it).exists():
        known = ", ".join(Watch.objects.values_list("name", flat=True)) or "none"
        raise Refused(RefusalCode.NOT_FOUND, f"There is no watch {name!r}. Known watches: {known}.")
    return of_it


def cycle_row(cycle: Cycle) -> tuple[Cell | str, ...]:
    said = cycle.result_text
    return (
        str(cycle.pk),
        moment(cycle.created_at),
        cycle.subject,
        Cell(said, CYCLE_TONES.get(Cycle.Outcome(cycle.outcome), "") if cycle.outcome else "live"),
        "nothing" if cycle.drill else _cycle_cost(cycle),
        cycle.outcome_reason,
    )


def _cycle_cost(cycle: Cycle) -> str:
    """Return the known cost, and that another part of it is unknown."""
    known: Decimal | None = getattr(cycle, "cost", None)
    if not getattr(cycle, "unpriced", 0):
        return money(known or Decimal(0))
    return "unknown" if known is None else f"{money(known)} + unknown"


def cycle_as_data(cycle: Cycle, sessions: Iterable[Session] | None = None) -> dict[str, Any]:
    """Return a cycle with its whole chain. `sessions`: all of its sessions, if they were read."""
    if sessions is None:
        sessions = cycle.sessions.select_related("cycle__watch").order_by("pk")
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
        "sessions": chain_as_data(Chain(sessions=tuple(sessions))),
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
