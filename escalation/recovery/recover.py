"""After a death: find the runs whose runner is gone, and bring each to a true end.

1. Stop what survives of the run: the CLI and the tools that it started.
2. Read in what was spooled, and what the transcript on disk holds beyond the last stored event.
3. Settle the cost from what can be proved.
4. End the session as interrupted, and go on or ask a person (`recovery_decision`).
5. Hand queued sessions to the queue again whose task died with a worker.

Each step can be repeated: a recovery that is itself cut off is done again by the next one.
"""

from __future__ import annotations

import logging
import socket
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from escalation.agent.process_tree import (
    ProcessId,
    boot_id,
    family,
    recorded_tools,
    started_at,
    stop_family,
)
from escalation.agent.stream import RunFacts, storable
from escalation.continuity import transcripts
from escalation.host.pause import is_paused
from escalation.next_step import supervisor
from escalation.next_step.after_cut_off import AskPerson, CutOff, GoOnAfterCutOff, after_cut_off
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import RunEnd
from escalation.queue import waiting_sessions
from escalation.report import checked_report
from escalation.run import spool
from escalation.run.cost import OwnCost, last_unit_price, own_cost
from escalation.run.heartbeat import this_runner
from escalation.run.preparation import conversation_total, is_question, traces_of
from escalation.run.run_facts import spent_fields
from sessions_app.models import Conversation, Cycle, Session, SessionEvent

logger = logging.getLogger(__name__)

STOP_GRACE_SECONDS = 5.0
# A run on another host can only be judged by its silence.
FOREIGN_SILENCE = timedelta(minutes=10)
# A worker that lives but has lost this run beats no more for it.
LOCAL_SILENCE = timedelta(minutes=15)
# A queued session that nobody has taken for so long has lost its task.
LOST_TASK_AGE = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Recovered:
    session: int
    tier: int
    what: str


def recover(*, enqueue: Enqueue, dry_run: bool = False, at_start: bool = False) -> list[Recovered]:
    """What was found and, unless it was a dry run, done."""
    done = []
    if not dry_run:
        spool.read_in_finished()
    for session in orphans():
        what = "would be ended as interrupted" if dry_run else _attempt(session, enqueue)
        done.append(Recovered(session=session.pk, tier=session.tier, what=what))
    for session in [] if is_paused() else without_task(at_start=at_start):
        if not dry_run:
            enqueue(session)
        done.append(
            Recovered(session=session.pk, tier=session.tier, what="is handed to the queue again")
        )
    return done


def _attempt(session: Session, enqueue: Enqueue) -> str:
    """One that cannot be recovered must not hinder the others; the next recovery tries again."""
    try:
        return _recover_one(session, enqueue)
    except Exception as error:
        logger.exception("Session %s could not be recovered", session.pk)
        _let_go(session)
        return f"could not be recovered: {error}"


def orphans() -> list[Session]:
    running = Session.objects.filter(status=Session.Status.RUNNING).select_related(
        "cycle__watch", "parent_session"
    )
    return [session for session in running if not runner_lives(session)]


def runner_lives(session: Session) -> bool:
    seen = session.heartbeat_at or session.started_at or session.created_at
    silent = timezone.now() - seen
    if session.host != socket.gethostname():
        return silent < FOREIGN_SILENCE
    if session.boot_id != boot_id() or session.runner_pid is None or silent > LOCAL_SILENCE:
        return False
    return started_at(session.runner_pid) == session.runner_started


def without_task(*, at_start: bool) -> list[Session]:
    """Queued sessions that no task of the queue stands for any more.

    When a worker starts, the tasks that its predecessor held are dead; later, only age tells.
    """
    waiting = waiting_sessions(include_taken=not at_start)
    queued = Session.objects.filter(status=Session.Status.QUEUED).select_related("cycle__watch")
    if not at_start:
        queued = queued.filter(created_at__lt=timezone.now() - LOST_TASK_AGE)
    return [session for session in queued if session.pk not in waiting]


def _take_over(session: Session) -> bool:
    """Become the session's runner, so that of two recoveries at once one does the work.

    Should this process die over it, the session is an orphan again.
    """
    taken = Session.objects.filter(
        pk=session.pk,
        status=Session.Status.RUNNING,
        runner_pid=session.runner_pid,
        runner_started=session.runner_started,
    ).update(**_recoverer(), heartbeat_at=timezone.now())
    return bool(taken)


def _recoverer() -> dict[str, Any]:
    """This process, but not this host: where a session ran decides where it can be resumed."""
    return {name: value for name, value in this_runner().items() if name != "host"}


def _let_go(session: Session) -> None:
    """A recovery that failed must not look like a run that lives."""
    Session.objects.filter(pk=session.pk, status=Session.Status.RUNNING).update(
        runner_pid=None, runner_started=None
    )


def _recover_one(session: Session, enqueue: Enqueue) -> str:
    if not _take_over(session):
        return "is being recovered by another process"
    stop_processes(session)
    spool.read_in(session)
    read_transcript(session)
    facts = facts_of(session)
    confirmed = facts.session_id == session.session_id != ""
    if session.session_id:
        transcripts.archive(session)
    if concluded := _conclude_by_result(session, facts, enqueue):
        return concluded
    cut = CutOff(
        tier=session.tier,
        tool_was_running=bool(facts.open_tools),
        can_be_continued=confirmed,
        interruptions=supervisor.interruptions(session),
        is_question=is_question(session),
    )
    decision = after_cut_off(cut, limit=settings.CLAUDEOPS_MAX_INTERRUPTIONS)
    reason = f"Interrupted: its runner is gone. Decision: {decision.reason}."
    with transaction.atomic():
        session.finish(
            Session.Status.INTERRUPTED,
            reason,
            escalation_reason=reason,
            error="The process that ran this session was ended from outside.",
            session_id=session.session_id if confirmed else "",
            **_settled(session, facts),
        )
        Conversation.leave(session)
        _follow(session, decision, enqueue)
    logger.warning("Session %s: %s", session.pk, reason)
    return reason


def _conclude_by_result(session: Session, facts: RunFacts, enqueue: Enqueue) -> str:
    """A run that had said its last word before its runner died is over, not interrupted."""
    report, _problem = checked_report(facts.structured_output)
    good = facts.result.get("subtype") == "success" and facts.result.get("is_error") is False
    if not good or report is None:
        return ""
    end = RunEnd(
        tier=session.tier,
        went_well=True,
        report=report,
        session_id=session.session_id,
        answered=facts.answered,
        asked_for_by_tier=supervisor.tier_that_asked(session),
    )
    decision = supervisor.decision_after(session, end)
    supervisor.conclude(
        session,
        decision,
        status=Session.Status.COMPLETED,
        facts={**_settled(session, facts), "report": report, "result": facts.result_text},
        enqueue=enqueue,
    )
    return f"had ended well before its runner died. {decision.reason}"


def _follow(session: Session, decision: GoOnAfterCutOff | AskPerson, enqueue: Enqueue) -> None:
    if isinstance(decision, GoOnAfterCutOff):
        enqueue(supervisor.successor(session, session.tier, Session.Purpose.RECOVERY))
    elif is_question(session):
        session.cycle.close_again()
    else:
        supervisor.finish_cycle(
            session.cycle,
            Cycle.Outcome.NEEDS_PERSON,
            f"Tier {session.tier} was interrupted and not gone on with: {decision.reason}.",
        )


def stop_processes(session: Session) -> None:
    """Only what this machine has started since its last boot, by pid and start time."""
    if session.host != socket.gethostname() or session.boot_id != boot_id():
        return
    root = None
    if session.cli_pid is not None and session.cli_started is not None:
        root = ProcessId(session.cli_pid, session.cli_started)
    log = traces_of(session, session.run_mark).tool_log or Path("/nonexistent")
    survivors = stop_family(
        lambda: family(root, recorded_tools(log), session.run_mark), STOP_GRACE_SECONDS
    )
    if survivors:
        logger.error("Session %s: processes %s could not be stopped", session.pk, survivors)
    log.unlink(missing_ok=True)


def read_transcript(session: Session) -> int:
    """Store the messages that the CLI wrote down after the last line that reached us."""
    known = {
        str(payload.get("uuid"))
        for payload in session.events.values_list("payload", flat=True)
        if isinstance(payload, dict)
    }
    new = [entry for entry in own_messages(session) if str(entry.get("uuid")) not in known]
    last = session.events.order_by("-sequence").values_list("sequence", flat=True).first() or 0
    SessionEvent.objects.bulk_create(
        SessionEvent(
            session=session,
            sequence=last + number,
            source=SessionEvent.Source.STREAM,
            kind=str(entry.get("type"))[:100],
            payload=storable({**entry, "read_from": "transcript"}),
        )
        for number, entry in enumerate(new, start=1)
    )
    return len(new)


def own_messages(session: Session) -> list[dict[str, Any]]:
    """What was said in this run, of all that its transcript holds.

    A fork begins with a copy of its parent's messages, which are older than the run; prompts are
    kept with the session; and what the CLI puts in by itself, such as an answer to a tool call that
    an earlier run left open, is nobody's word.
    """
    began = (session.started_at or session.created_at).isoformat()
    recent = [
        entry
        for entry in transcripts.messages_on_disk(session)
        if str(entry.get("timestamp", "")).replace("Z", "+00:00") >= began
    ]
    answers = [entry for entry in recent if _is_answer(entry)]
    called = {number for entry in answers for number in _numbers(entry, "id")}
    return [
        entry
        for entry in recent
        if _is_answer(entry) or called.intersection(_numbers(entry, "tool_use_id"))
    ]


def _is_answer(entry: dict[str, Any]) -> bool:
    message = entry.get("message")
    said = isinstance(message, dict) and message.get("model") != "<synthetic>"
    return said and entry.get("type") == "assistant"


def _numbers(entry: dict[str, Any], key: str) -> set[str]:
    """The ids of tool calls in a message, or of those that it answers."""
    message = entry.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    blocks = content if isinstance(content, list) else []
    return {str(block[key]) for block in blocks if isinstance(block, dict) and block.get(key)}


def facts_of(session: Session) -> RunFacts:
    facts = RunFacts()
    for payload in session.events.order_by("sequence").values_list("payload", flat=True):
        if isinstance(payload, dict):
            facts.observe(payload)
    return facts


def _settled(session: Session, facts: RunFacts) -> dict[str, Any]:
    """What the run is known to have used: its result line, the CLI's own books, or an estimate."""
    return {
        **spent_fields(_settled_cost(session, facts), facts.own_tokens),
        "context_tokens": facts.context_tokens,
        "messages": facts.messages,
        "model_used": facts.model[:100],
        "last_activity_at": session.heartbeat_at or session.started_at,
    }


def _baseline(session: Session) -> Decimal | None:
    """As it was stored before the run; a run that died before that has spent nothing yet."""
    if session.baseline_cost_usd is not None:
        return session.baseline_cost_usd
    return conversation_total(session.parent_session)


def _settled_cost(session: Session, facts: RunFacts) -> OwnCost:
    if not facts.results and (total := transcripts.cost_state_total(session)) is not None:
        before = _baseline(session)
        if session.continued_by != Session.ContinuedBy.RESUME or before is not None:
            return OwnCost(
                cost_usd=max(Decimal(0), total - (before or Decimal(0))),
                reported_cost_usd=total,
                baseline_cost_usd=before,
                basis=Session.CostBasis.DIFFERENCE,
            )
    return own_cost(
        facts,
        resumed=session.continued_by == Session.ContinuedBy.RESUME,
        accumulates=lambda: True,
        baseline=lambda: _baseline(session),
        unit_price=lambda: last_unit_price(session.model),
    )
