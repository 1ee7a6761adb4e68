"""All that a run needs, made and stored before anything is started."""

from __future__ import annotations

import os
import socket
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent.argv import RunRequest, build_argv, conversation_id
from escalation.agent.binary import ClaudeBinary, find_binary, fingerprint_of
from escalation.agent.environment import NO_CREDENTIALS, cli_environment, has_credentials
from escalation.agent.process import Traces
from escalation.continuity import handoff, transcripts
from escalation.continuity.facts import decide_continuation
from escalation.continuity.guards import Continuation, Fresh, Guard, Handoff, Resume
from escalation.errors import CannotRun, RecordTooThin
from escalation.next_step.supervisor import runs_of_this_tier
from escalation.report import REPORT_SCHEMA_JSON
from escalation.run.prompts import prompt_for
from escalation.run.recorder import Recorder
from escalation.tiers import LOWEST_TIER, Tier, dry_run_walls, get_tier, question_walls
from sessions_app.models import Conversation, Session

GOING_ON = (
    Session.Purpose.CONTINUATION,
    Session.Purpose.REPORT,
    Session.Purpose.RECOVERY,
)
SMALLEST_BUDGET = Decimal("0.01")
CONTINUED_BY = {
    Fresh: Session.ContinuedBy.FRESH,
    Resume: Session.ContinuedBy.RESUME,
    Handoff: Session.ContinuedBy.HANDOFF,
}


class Preparation:
    """Raises CannotRun, with advice, where something is missing."""

    def __init__(self, session: Session, recorder: Recorder, surroundings: dict[str, str]) -> None:
        self._session = session
        self.tier = effective_tier(session)
        self.workdir = Path(session.workdir)
        if not self.workdir.is_dir():
            raise CannotRun(
                f"The working directory {self.workdir} does not exist. Create it, or correct the "
                "watch."
            )
        self.binary: ClaudeBinary = find_binary()
        self.fingerprint = _fingerprint(self.binary)
        self.config_directory = config_directory(session)
        self.traces = traces_of(session, mark=f"session-{session.pk}-{uuid.uuid4().hex}")
        self.environment = cli_environment(
            {**os.environ, **surroundings},
            home=_made(Path(settings.CLAUDEOPS_STATE_DIR) / "home"),
            config_directory=_made(self.config_directory),
            api_retries=settings.CLAUDEOPS_API_RETRIES,
            also_pass=settings.CLAUDEOPS_PASS_ENV,
            traces=self.traces,
        )
        if not has_credentials(self.environment):
            raise CannotRun(NO_CREDENTIALS)
        self.continuation, self.facts = self._continuation()
        # Read before the run: afterwards a conversation that keeps its id has grown by it.
        self.baseline = conversation_total(session.parent_session) if self.resumes else None
        self.record = self._record(recorder)
        self.prompt = prompt_for(session, self.tier, self.continuation, self.record)
        self.request = RunRequest(
            tier=self.tier,
            session_id=str(uuid.uuid4()),
            continuation=self.continuation,
            report_schema=None if is_question(session) else REPORT_SCHEMA_JSON,
            max_budget_usd=remaining_budget(session, self.tier),
        )
        self.argv = build_argv(self.binary, self.request)
        self.conversation_id = conversation_id(self.binary, self.request)

    @property
    def resumes(self) -> bool:
        return isinstance(self.continuation, Resume)

    def store(self) -> None:
        """The record knows the conversation before the process exists: a crash cannot lose it."""
        stored = {
            "session_id": self.conversation_id,
            "prompt": self.prompt,
            "argv": self.argv,
            "host": socket.gethostname(),
            "cli_path": self.binary.path,
            "cli_version": self.binary.version,
            "cli_fingerprint": self.fingerprint,
            "baseline_cost_usd": self.baseline,
            "config_dir": str(self.config_directory),
            "run_mark": self.traces.mark,
            "continued_by": CONTINUED_BY[type(self.continuation)],
            "continued_why": self.continuation.why,
            "continued_guard": getattr(self.continuation, "guard", ""),
            "continuation_facts": self.facts,
            "handoff": self.record,
        }
        for field, value in stored.items():
            setattr(self._session, field, value)
        self._session.save(update_fields=list(stored))
        if not Conversation.take(self.conversation_id, self._session):
            raise CannotRun(
                f"Another run is using the conversation {self.conversation_id}. Wait for it to end."
            )

    @property
    def announcement(self) -> str:
        how = f"starts with a fresh conversation ({self.continuation.why})"
        if isinstance(self.continuation, Resume):
            how = f"resumes {self.continuation.session_id} ({self.continuation.why})"
        elif isinstance(self.continuation, Handoff):
            how = f"starts by handoff, because {self.continuation.why}"
        return (
            f"Tier {self.tier.number} ({self.tier.model}) {how}. "
            f"CLI {self.binary.version}, {self.binary.source}."
        )

    def _continuation(self) -> tuple[Continuation, dict[str, Any]]:
        session = self._session
        if session.purpose == Session.Purpose.HANDOFF:
            return Fresh(why="invoked again, because its record was too thin to hand on"), {}
        continuation, facts = decide_continuation(session, self.tier, self.binary)
        parent = session.parent_session
        if isinstance(continuation, Resume) and parent is not None:
            handoff.discard(parent)
            if not self._has_transcript(parent):
                why = "the archived transcript could not be put into place here"
                continuation = Handoff(guard=Guard.TRANSCRIPT_GONE, why=why)
        return continuation, facts

    def _has_transcript(self, parent: Session) -> bool:
        """The parent ran on another host, or its file was deleted: put the copy into place."""
        found = transcripts.find_on_disk(parent, self.config_directory)
        if found == transcripts.TranscriptState.PRESENT:
            return True
        return transcripts.restore(parent, self.config_directory)

    def _record(self, recorder: Recorder) -> dict[str, Any] | None:
        parent = self._session.parent_session
        if not isinstance(self.continuation, Handoff) or parent is None:
            return None
        recorder.note("fallback", f"Continuity was lost: {self.continuation.why}.", "warning")
        if handoff.file_for(parent).exists():
            try:
                return handoff.read_once(parent)
            except handoff.HandoffRefused as refused:
                recorder.note("warning", f"A handoff file was refused: {refused}.", "warning")
        document = handoff.build(parent)
        asks_for_tier = self._session.purpose == Session.Purpose.TIER
        if asks_for_tier and handoff.is_thin(document) and not _was_asked_already(parent):
            raise RecordTooThin(parent)
        handoff.write(document, parent)
        return handoff.read_once(parent)


def traces_of(session: Session, mark: str) -> Traces:
    directory = _made(Path(settings.CLAUDEOPS_STATE_DIR) / "runs")
    return Traces(mark=mark, tool_log=directory / f"session-{session.pk}.tools")


def effective_tier(session: Session) -> Tier:
    tier = get_tier(session.tier)
    if session.cycle.dry_run and tier.number > LOWEST_TIER:
        tier = dry_run_walls(tier, get_tier(LOWEST_TIER))
    return question_walls(tier) if is_question(session) else tier


def is_question(session: Session) -> bool:
    return session.purpose == Session.Purpose.FOLLOW_UP


def remaining_budget(session: Session, tier: Tier) -> Decimal:
    """A run that goes on spends what its tier has left; one that a person starts has its own."""
    if session.purpose not in GOING_ON:
        return tier.max_budget_usd
    return left_of_budget(session, tier)


def left_of_budget(session: Session, tier: Tier) -> Decimal:
    """What the session and the runs that it continues have not spent of the tier's budget."""
    spent = sum(
        (
            run.cost_usd or run.estimated_cost_usd or Decimal(0)
            for run in runs_of_this_tier(session)
        ),
        Decimal(0),
    )
    return max(SMALLEST_BUDGET, tier.max_budget_usd - spent)


def conversation_total(parent: Session | None) -> Decimal | None:
    """The parent conversation's total so far.

    The transcript knows better than our row when the parent was stopped: what it spent after its
    last report is in there.
    """
    if parent is None:
        return None
    known = [
        total
        for total in (parent.reported_cost_usd, transcripts.cost_state_total(parent))
        if total is not None
    ]
    return max(known, default=None)


def _was_asked_already(session: Session) -> bool:
    return session.purpose == Session.Purpose.HANDOFF


def _fingerprint(binary: ClaudeBinary) -> str:
    try:
        return fingerprint_of(Path(binary.path))
    except OSError as error:
        raise CannotRun(
            f"{binary.path} cannot be started: {error.strerror}. Check CLAUDEOPS_CLAUDE_BIN."
        ) from error


def config_directory(session: Session) -> Path:
    """One for each cycle: its runs come one after another, and only they share conversations."""
    return Path(settings.CLAUDEOPS_STATE_DIR) / "claude" / f"cycle-{session.cycle_id}"


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory
