"""Ends a session: stores its result and starts what follows, in one transaction.

The session has ended and its successor is queued, or neither has happened, so that a process that
dies cannot lose an escalation or start it twice. Decisions use the original texts; what is stored
is redacted here.
"""

from __future__ import annotations

import http.client
import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.db import Error, transaction

from escalation.incidents import recorder
from escalation.queue import enqueue_session, installation_lock, start_waiting
from escalation.report import Report
from escalation.supervisor import breaker
from escalation.supervisor.approvals import carried_over, pass_on, withdraw
from escalation.supervisor.budgets import held_back, notify_of_use, tell_held
from escalation.supervisor.cooldowns import clear_recovered
from escalation.supervisor.cycles import wake_again
from escalation.supervisor.decision import (
    AgainByHandoff,
    AskAgain,
    Continue,
    Decision,
    Ending,
    Escalate,
    Leave,
    Planned,
    Recover,
    RepeatTierBefore,
    RunAgain,
    Stop,
    decide,
)
from escalation.supervisor.successors import begin, planned, sibling, successor
from sessions_app.costs.budgets import Spent
from sessions_app.costs.spending import budgets_of_cycle
from sessions_app.history.chain import chain_of, own_branch
from sessions_app.history.claims import claims_in
from sessions_app.models import Conversation, Cycle, ProbeProposal, Session
from sessions_app.models.installation import shared_now
from sessions_app.redaction.redact import redacted, redacted_data

# CLAUDEOPS_PING_URL is called after each cycle, in the style of healthchecks.io, so that an outside
# monitor notices when this host is down. The transaction that ends the cycle stores that a ping is
# due. The process that ran the last session sends it at once; otherwise the worker does. A ping may
# be sent twice but is not lost.

logger = logging.getLogger(__name__)

TIMEOUT_SECONDS = 10
CLAIMED_FOR = timedelta(minutes=1)


def note_ping(cycle: Cycle) -> None:
    """Stores that a ping is due, in the caller's transaction."""
    if settings.CLAUDEOPS_PING_URL and not cycle.drill:
        Cycle.objects.filter(pk=cycle.pk).update(ping_due_at=shared_now())


def due_pings() -> list[int]:
    """Returns the cycles whose ping is due, oldest first."""
    if not settings.CLAUDEOPS_PING_URL:
        return []
    due = Cycle.objects.filter(ping_due_at__lte=shared_now())
    return list(due.order_by("pk").values_list("pk", flat=True))


def send_ping(number: int) -> bool:
    """Sends the ping of a cycle. Returns False if none is due or another process sends it."""
    if not settings.CLAUDEOPS_PING_URL:
        return False
    now = shared_now()
    until = now + CLAIMED_FOR
    cycles = Cycle.objects.filter(pk=number)
    if not cycles.filter(ping_due_at__lte=now).update(ping_due_at=until):
        return False
    ping(cycles.get())
    # A cycle that was reopened and has ended again meanwhile has another ping due.
    cycles.filter(ping_due_at=until).update(ping_due_at=None)
    return True


def ping(cycle: Cycle) -> None:
    """Calls the address. A failure is logged and not retried."""
    address = settings.CLAUDEOPS_PING_URL
    if not address or cycle.drill:
        return
    if cycle.outcome not in Cycle.GOOD_OUTCOMES:
        address = address.rstrip("/") + "/fail"
    try:
        # The address is the operator's own, and settings accept only http and https.
        request = urllib.request.Request(address, data=cycle.outcome_reason.encode())  # noqa: S310
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()  # noqa: S310
    except (OSError, ValueError, http.client.HTTPException) as error:
        logger.warning("The ping after cycle %s failed: %s", cycle.pk, error)


Purpose = Session.Purpose
TEXT_FIELDS = ("result", "report", "error")
"""Fields of a session with text of a model, a tool or an exception."""

PURPOSE_AFTER = {
    AskAgain: Purpose.REPORT,
    Continue: Purpose.CONTINUATION,
    Recover: Purpose.RECOVERY,
}


def decision_after(session: Session, ending: Ending) -> Decision:
    """Decides with the current policy before an escalation, and with the checked claims else."""
    cycle = session.cycle
    if ending.report is None or not ending.wants_escalation:
        claims = claims_in(ending.report, cycle.pk, own_branch(session))
        return decide(ending, cycle.policy, claims=claims)
    policy = cycle.current_policy()
    return decide(ending, policy, held_back(session, ending.report, policy, _cost_of(ending)))


def _cost_of(ending: Ending) -> Spent:
    known, guessed = (ending.stored.get(name) for name in ("cost_usd", "estimated_cost_usd"))
    if known is not None:
        return Spent(total=known)
    return Spent(total=guessed or Decimal(0), guessed=guessed or Decimal(0))


def conclude(session: Session, ending: Ending, decision: Decision) -> None:
    """Ends a session, whatever ended it, and gives its slot to the next."""
    decision = replace(decision, reason=redacted(decision.reason))
    stored = _redacted_fields(ending.stored)
    with installation_lock():
        decision = _unless_stopped(session, decision)
        status = Session.Status.ESCALATED if isinstance(decision, Escalate) else ending.status
        session.finish(status, decision.reason, escalation_reason=decision.reason, **stored)
        Conversation.leave(session)
        if not session.is_drill:
            breaker.note_ending(ending)
        if ending.conversation_broken and ending.session_id:
            Conversation.retire(ending.session_id, redacted(ending.conversation_broken))
        if not isinstance(decision, Recover):
            withdraw(session)
        _note_proposed_probes(session, ending.report)
        _follow(session, decision, ending)
        notify_of_use(budgets_of_cycle(session.cycle), session.cycle.watch)
        start_waiting()


def _unless_stopped(session: Session, decision: Decision) -> Decision:
    """Replaces the decision if a person stopped the chain while the session ended."""
    if isinstance(decision, Stop | Leave | Planned):
        return decision
    row = Session.objects.select_for_update(of=("self",), no_key=True).filter(pk=session.pk)
    by = row.filter(stop_cause=Session.StopCause.PERSON).values_list("stop_requested", flat=True)
    if not (name := by.first()):
        return decision
    reason = f"Stopped by {name} after Tier {session.tier}. {decision.reason}"
    return Stop(Cycle.Outcome.NEEDS_PERSON, reason, stopped_by=name)


def _redacted_fields(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {
        field: redacted_data(value) if field in TEXT_FIELDS else value
        for field, value in stored.items()
    }


MOST_PROPOSED, MOST_OPEN_PROPOSALS = 10, 100


def _note_proposed_probes(session: Session, report: Report | None) -> None:
    """Stores the probes that a report proposes. Nothing runs them before a person accepts them."""
    proposed = report.get("probes", []) if report else []
    if not proposed or session.watch_id is None or session.in_branch:
        return
    rows = ProbeProposal.objects.filter(watch=session.watch_id, state=ProbeProposal.State.OPEN)
    free = max(0, MOST_OPEN_PROPOSALS - rows.count())
    made = [
        ProbeProposal(
            watch_id=session.watch_id,
            key=ProbeProposal.key_of(one["service"], one["kind"], one["target"]),
            service=one["service"].strip(),
            kind=one["kind"],
            target=one["target"].strip(),
            why=redacted(one.get("why", "")),
            session=session,
        )
        for one in proposed[: min(MOST_PROPOSED, free)]
        if _is_plain(one["service"], 200) and _is_plain(one["target"], ProbeProposal.LONGEST_TARGET)
    ]
    ProbeProposal.objects.bulk_create(made, ignore_conflicts=True)


def _is_plain(text: str, longest: int) -> bool:
    """Returns True for one line without a secret. What is accepted must be what a person sees."""
    return (
        bool(text.strip())
        and len(text) <= longest
        and text.isprintable()
        and redacted(text) == text
    )


def _follow(session: Session, decision: Decision, ending: Ending) -> None:
    match decision:
        case Escalate(to_tier=tier, reason=reason):
            recorder.note_escalation(session, tier)
            begin(successor(session, tier, Purpose.TIER), why=reason)
        case AskAgain() | Continue() | Recover():
            following = successor(session, session.tier, PURPOSE_AFTER[type(decision)])
            pass_on(session, following)
            enqueue_session(following)
        case AgainByHandoff():
            _retire_parent_conversation(session, decision.reason)
            enqueue_session(_once_more(session))
        case RunAgain():
            enqueue_session(_once_more(session))
        case RepeatTierBefore():
            parent = session.parent_session
            assert parent is not None, "only a session with a parent needs its record"
            again = successor(parent, parent.tier, Purpose.FINDINGS, in_branch=session.in_branch)
            enqueue_session(again)
        case Planned():
            planned(session)
        case Leave():
            session.cycle.close_again()
        case Stop(outcome=outcome, reason=reason, held=held, stopped_by=by):
            finish_chain(session, outcome, reason, ending.why_not, stopped_by=by)
            tell_held(session, held)
            # After the commit: the transaction may still be rolled back.
            transaction.on_commit(lambda: _ping(session.cycle_id))


def _ping(cycle: int) -> None:
    """Sends the ping at once: there may be no worker. After an error the worker sends it."""
    try:
        send_ping(cycle)
    except Error:
        logger.exception("Could not send the ping of cycle %s; the worker retries it", cycle)


def finish_chain(
    session: Session, outcome: str, reason: str, why_not: str = "", *, stopped_by: str = ""
) -> None:
    """Ends the cycle after its last session. A branch has an outcome of its own."""
    if not session.in_branch:
        finish_cycle(session.cycle, outcome, reason, why_not, stopped_by=stopped_by)
        return
    root = chain_of(session).branch_of(session)[0]
    Session.objects.filter(pk=root.pk).update(branch_outcome=outcome, branch_reason=reason)
    session.cycle.close_again()


def finish_cycle(
    cycle: Cycle, outcome: str, reason: str, why_not: str = "", *, stopped_by: str = ""
) -> None:
    if not cycle.finish(outcome, reason, stopped_by=stopped_by):
        return
    breaker.note_outcome(cycle)
    recorder.note_outcome(cycle, why_not)
    clear_recovered(cycle)
    note_ping(cycle)
    wake_again(cycle)


def _once_more(session: Session) -> Session:
    again = sibling(session)
    carried_over(session, again)
    return again


def _retire_parent_conversation(session: Session, reason: str) -> None:
    if session.parent_session is not None:
        Conversation.retire(session.parent_session.session_id, reason)
