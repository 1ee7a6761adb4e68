"""After the end of a run, whoever saw it: settle its facts, decide, conclude, keep its traces."""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import connection

from escalation.agent import Ended, StreamFacts
from escalation.continuity import findings_file, transcripts
from escalation.continuity.transcript_tail import is_torn, own_and_unheard
from escalation.next_step.conclude import conclude, decision_after
from escalation.next_step.cycles import Enqueue
from escalation.next_step.decision import Decision
from escalation.next_step.ending import Ending
from escalation.next_step.lineage import Lineage
from escalation.run.cost import settled_cost, tokens_of
from escalation.run.effective_tier import effective_tier
from escalation.run.ending import Limits, Seen, ending_of
from escalation.run.persistence import persistently
from escalation.run.recorder import Recorder
from sessions_app.models import Session, WorkerBeat

logger = logging.getLogger(__name__)


def finish_run(
    lineage: Lineage,
    recorder: Recorder,
    facts: StreamFacts,
    ended: Ended,
    *,
    duration_ms: int | None,
    enqueue: Enqueue,
) -> Decision:
    """The end of a run whose process was started."""
    session = lineage.session
    if not facts.result:
        hear_the_rest(session, recorder, facts)
    # Only now: a CLI that is still alive may have more to write down.
    facts.writes_lost = facts.writes_lost or is_torn(session, facts.tool_ids)
    findings, problem = _findings(session)
    cost = settled_cost(session, facts)
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
        ),
        cost,
        tokens_of(facts, cost),
        Limits(
            continuations=settings.CLAUDEOPS_MAX_CONTINUATIONS,
            interruptions=settings.CLAUDEOPS_MAX_INTERRUPTIONS,
        ),
    )
    return finish(session, recorder, ending, enqueue=enqueue)


def finish(session: Session, recorder: Recorder, ending: Ending, *, enqueue: Enqueue) -> Decision:
    """Every event is written first: who sees the session ended has seen all of it."""
    for note in ending.notes:
        recorder.note(note.kind, note.text, note.level)
    decision = decision_after(session, ending)
    recorder.note("decision", decision.reason, "info" if ending.went_well else "error")
    close(session, recorder)
    archive_first = _others_may_continue_it()
    if archive_first:
        archive(session, ending.session_id)
    persistently(lambda: conclude(session, ending, decision, enqueue=enqueue))
    if not archive_first:
        archive(session, ending.session_id)
    return decision


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
