"""All that a run needs, looked up, put into place and stored before anything is started.

Raises CannotRun, with advice, where something is missing. What the run will be is decided in
`plan`; here are the effects.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent import (
    NO_CREDENTIALS,
    ClaudeBinary,
    Traces,
    cli_environment,
    find_binary,
    fingerprint_of,
    has_credentials,
)
from escalation.continuity import findings_file, handoff, transcripts
from escalation.continuity.facts import decide_continuation
from escalation.continuity.guards import Continuation, Fresh, Guard, Handoff, Resume
from escalation.errors import CannotRun, RecordTooThin
from escalation.next_step.lineage import Lineage
from escalation.run.effective_tier import effective_tier
from escalation.run.persistence import persistently
from escalation.run.plan import Circumstances, Plan, plan_run
from escalation.run.prompts import prompt_for
from escalation.run.recorder import Recorder
from escalation.tiers import LOWEST_TIER, Tier
from sessions_app.models import Conversation, Session
from sessions_app.models.policy import refusal


def prepare(lineage: Lineage, recorder: Recorder, surroundings: Mapping[str, str]) -> Plan:
    """The plan, with everything in place that it counts on, and the record in step with it."""
    session = lineage.session
    _require_policy(session)
    tier = effective_tier(session)
    _require_workdir(Path(session.workdir))
    binary = find_binary()
    config_directory = _made(config_directory_of(session))
    traces = traces_of(session, mark=f"session-{session.pk}-{uuid.uuid4().hex}")
    environment = _environment(surroundings, config_directory, traces)
    continuation, facts = _continuation(lineage, tier, binary, config_directory)
    record = _record(lineage, continuation, recorder)
    plan = plan_run(
        lineage,
        Circumstances(
            tier=tier,
            binary=binary,
            fingerprint=_fingerprint(binary),
            host=socket.gethostname(),
            config_directory=config_directory,
            environment=environment,
            traces=traces,
            new_session_id=str(uuid.uuid4()),
            continuation=continuation,
            continuation_facts=facts,
            # Read before the run: afterwards a conversation that keeps its id has grown by it.
            baseline_cost_usd=_baseline(lineage, continuation),
            record=record,
            prompt=prompt_for(lineage, tier, continuation, record, _findings_path(session)),
        ),
    )
    persistently(lambda: _store(session, plan))
    return plan


def traces_of(session: Session, mark: str) -> Traces:
    directory = _made(Path(settings.CLAUDEOPS_STATE_DIR) / "runs")
    return Traces(mark=mark, tool_log=directory / f"session-{session.pk}.tools")


def config_directory_of(session: Session) -> Path:
    """One for each cycle: its runs come one after another, and only they share conversations."""
    return Path(settings.CLAUDEOPS_STATE_DIR) / "claude" / f"cycle-{session.cycle_id}"


def conversation_total(parent: Session | None) -> Decimal | None:
    """The parent conversation's total so far.

    The transcript knows better than our row when the parent was stopped: what it spent after its
    last report is in there.
    """
    if parent is None:
        return None
    known = (parent.reported_cost_usd, transcripts.cost_state_total(parent))
    return max((total for total in known if total is not None), default=None)


def _require_policy(session: Session) -> None:
    """The policy may have come to forbid the tier since it was queued."""
    if session.tier == LOWEST_TIER or session.is_question:
        return
    if why := refusal(session.tier, session.cycle.current_policy()):
        raise CannotRun(why)


def _require_workdir(workdir: Path) -> None:
    if not workdir.is_dir():
        raise CannotRun(
            f"The working directory {workdir} does not exist. Create it, or correct the watch."
        )


def _fingerprint(binary: ClaudeBinary) -> str:
    try:
        return fingerprint_of(Path(binary.path))
    except OSError as error:
        raise CannotRun(
            f"{binary.path} cannot be started: {error.strerror}. Check CLAUDEOPS_CLAUDE_BIN."
        ) from error


def _environment(
    surroundings: Mapping[str, str], config_directory: Path, traces: Traces
) -> dict[str, str]:
    environment = cli_environment(
        {**os.environ, **surroundings},
        home=_made(Path(settings.CLAUDEOPS_STATE_DIR) / "home"),
        config_directory=config_directory,
        api_retries=settings.CLAUDEOPS_API_RETRIES,
        also_pass=settings.CLAUDEOPS_PASS_ENV,
        traces=traces,
    )
    if not has_credentials(environment):
        raise CannotRun(NO_CREDENTIALS)
    return environment


def _continuation(
    lineage: Lineage, tier: Tier, binary: ClaudeBinary, config_directory: Path
) -> tuple[Continuation, dict[str, Any]]:
    session, parent = lineage.session, lineage.parent
    if session.purpose == Session.Purpose.FINDINGS:
        return Fresh(why="invoked again, because its record was too thin to hand on"), {}
    continuation, facts = decide_continuation(session, tier, binary)
    if not isinstance(continuation, Resume) or parent is None:
        return continuation, facts
    if not _has_transcript(parent, config_directory):
        why = "the archived transcript could not be put into place here"
        return Handoff(guard=Guard.TRANSCRIPT_GONE, why=why), facts
    return continuation, facts


def _has_transcript(parent: Session, config_directory: Path) -> bool:
    """The parent ran on another host, or its file was deleted: put the copy into place."""
    found = transcripts.find_on_disk(parent, config_directory)
    if found == transcripts.TranscriptState.PRESENT:
        return True
    return transcripts.restore(parent, config_directory)


def _baseline(lineage: Lineage, continuation: Continuation) -> Decimal | None:
    resumes = isinstance(continuation, Resume)
    return conversation_total(lineage.parent) if resumes else None


def _record(
    lineage: Lineage, continuation: Continuation, recorder: Recorder
) -> dict[str, Any] | None:
    """What a run is told that cannot have the conversation: built from our own record."""
    parent = lineage.parent
    if parent is not None and handoff.discard(parent):
        recorder.note(
            "warning", "A handoff file lay in place already: it was removed unread.", "warning"
        )
    if not isinstance(continuation, Handoff) or parent is None:
        return None
    recorder.note("fallback", f"Continuity was lost: {continuation.why}.", "warning")
    document = handoff.build(lineage.path[:-1])
    asks_for_tier = lineage.session.purpose == Session.Purpose.TIER
    was_asked = parent.purpose == Session.Purpose.FINDINGS
    if asks_for_tier and handoff.is_thin(document) and not was_asked:
        raise RecordTooThin(
            f"The record of Tier {parent.tier} is too thin to hand on: it is asked to write down "
            "what it found."
        )
    try:
        handoff.write(document, parent)
        return handoff.read_once(parent)
    except (OSError, handoff.HandoffRefused) as error:
        recorder.note(
            "warning", f"No handoff file ({error}): the record itself is handed on.", "warning"
        )
        return document


def _findings_path(session: Session) -> str:
    """Where the run is to write its findings, if it is to write them."""
    return str(findings_file.prepare(session)) if findings_file.wanted_from(session) else ""


def _store(session: Session, plan: Plan) -> None:
    """The record knows the conversation before the process exists: a crash cannot lose it."""
    for field, value in plan.stored.items():
        setattr(session, field, value)
    session.save(update_fields=list(plan.stored))
    if not Conversation.take(plan.session_id, session):
        raise CannotRun(
            f"Another run is using the conversation {plan.session_id}. Wait for it to end."
        )


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory
