"""After the end of a run, whoever saw it: settle its facts, decide, conclude, keep its traces."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import connection
from django.utils import timezone

from escalation.agent import AccountLimit, Ended, LimitSigns, StreamFacts, limit_in, windows_in
from escalation.continuity import findings_file, transcripts
from escalation.continuity.transcript_tail import is_torn, own_and_unheard
from escalation.gateway.limits import Limits as ApiLimits
from escalation.gateway.spending import read_ledger
from escalation.next_step.conclude import conclude, decision_after
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import Decision
from escalation.next_step.ending import Ending
from escalation.next_step.lineage import Lineage
from escalation.run import directory
from escalation.run.cost import settled_cost, tokens_of
from escalation.run.edits import record_edits
from escalation.run.effective_tier import effective_tier
from escalation.run.ending import Limits, Seen, ending_of
from escalation.run.persistence import persistently
from escalation.run.recorder import Recorder
from sessions_app.models import AccountClock, Session, WorkerBeat

logger = logging.getLogger(__name__)

NOTHING_HEARD = ApiLimits()


def finish_run(
    lineage: Lineage,
    recorder: Recorder,
    facts: StreamFacts,
    ended: Ended,
    *,
    duration_ms: int | None,
    enqueue: Enqueue,
    api_limits: ApiLimits = NOTHING_HEARD,
) -> Decision:
    """The end of a run whose process was started. Only its own runner knows the API's headers."""
    session = lineage.session
    if not facts.result:
        hear_the_rest(session, recorder, facts)
    if facts.edits_begun:
        close(session, recorder)
        record_edits(session)
    # Only now: a CLI that is still alive may have more to write down.
    facts.writes_lost = facts.writes_lost or is_torn(session, facts.tool_ids)
    findings, problem = _findings(session)
    counted = read_ledger(directory.ledger_of(session)).tokens
    cost = settled_cost(session, facts, counted)
    ending = ending_of(
        lineage,
        effective_tier(session),
        facts,
        ended,
        Seen(
            stderr=recorder.stderr,
            first_line_at=recorder.first_line_at,
            last_line_at=recorder.last_line_at,
            duration_ms=duration_ms,
            context_tokens=transcripts.occupancy(session) if facts.answered else 0,
            findings=findings,
            findings_problem=problem,
            account_limit=_account_limit(facts, api_limits),
            windows=windows_in(facts.rate_limit, api_limits.headers),
        ),
        cost,
        tokens_of(facts, cost, counted),
        Limits(
            continuations=settings.CLAUDEOPS_MAX_CONTINUATIONS,
            interruptions=settings.CLAUDEOPS_MAX_INTERRUPTIONS,
            limit_waits=settings.CLAUDEOPS_MAX_LIMIT_WAITS,
        ),
    )
    return finish(session, recorder, ending, enqueue=enqueue)


def _account_limit(facts: StreamFacts, api_limits: ApiLimits) -> AccountLimit | None:
    signs = LimitSigns(
        result=facts.result,
        event=facts.rate_limit,
        status=api_limits.status,
        retry_after=api_limits.retry_after,
        headers=api_limits.headers,
    )
    if not signs.ended_by_limit:
        return None
    return limit_in(signs, timezone.now(), AccountClock.current().times_in_a_row)


def finish(session: Session, recorder: Recorder, ending: Ending, *, enqueue: Enqueue) -> Decision:
    """Every event is written first: who sees the session ended has seen all of it."""
    for note in ending.notes:
        recorder.note(note.kind, note.text, note.level)
    if ending.claims_something:
        # What was denied is among the events.
        close(session, recorder)
    decision = decision_after(session, ending)
    recorder.note("decision", decision.reason, _level_of(ending))
    close(session, recorder)
    archive_first = _others_may_continue_it()
    if archive_first:
        archive(session, ending.session_id)
    persistently(lambda: conclude(session, ending, decision, enqueue=enqueue))
    if not archive_first:
        archive(session, ending.session_id)
    directory.remove(session)
    return decision


def _level_of(ending: Ending) -> str:
    if ending.went_well:
        return "info"
    return "error" if ending.account_limit is None else "warning"


def close(session: Session, recorder: Recorder) -> None:
    try:
        recorder.close()
    except Exception:
        # A true ending is worth more than the last words.
        logger.exception("Session %s: events could not be stored", session.pk)


def archive(session: Session, session_id: str) -> None:
    """The conversation's copy, for whoever continues it on whichever host."""
    if not session_id:
        return
    session.session_id = session_id
    try:
        transcripts.archive(session)
    except Exception:
        # The run is what counts; cleaning tries again, and another host falls back to a handoff.
        logger.exception("Session %s: its transcript could not be archived", session.pk)


def _others_may_continue_it() -> bool:
    """With one host the next tier finds the transcript on disk, so the copy may come after it."""
    return connection.vendor != "sqlite" and WorkerBeat.lately_seen().count() > 1


def hear_the_rest(session: Session, recorder: Recorder, facts: StreamFacts) -> None:
    """No result line: the CLI's own transcript may hold more than what reached us."""
    close(session, recorder)
    own, unheard = own_and_unheard(session)
    for entry in unheard:
        recorder.message_from_transcript(entry)
        facts.observe(entry)
    for entry in own:
        facts.learn_usage(entry)


def _findings(session: Session) -> tuple[str, str]:
    """What the agent itself wrote down, where it was told to."""
    return findings_file.take(session) if findings_file.wanted_from(session) else ("", "")
