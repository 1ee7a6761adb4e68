"""What is true of a run when it begins: the facts that its prompt is written from.

They are looked up here, once, in the record; the words follow from them in `prompts`, so that a
prompt cannot say what did not happen.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from escalation.continuity.guards import Continuation, Resume
from escalation.next_step.lineage import Lineage
from escalation.run.foreign_text import new_token
from escalation.tiers import LOWEST_TIER, Tier
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.reading.incident_figures import remedies_that_failed
from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import one_line
from sessions_app.reading.tool_calls import ToolCall, tool_calls

MANIFEST_NAME = "CLAUDE-OPS.md"
MANIFEST_LENGTH = 20_000
CALLS_SHOWN = 3
REMEDIES_SHOWN = 3
CALL_LENGTH = 400
# More than is shown is masked, so that no secret is cut in half and missed.
MASKED_LENGTH = 10_000

Purpose, Status = Session.Purpose, Session.Status


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRun:
    """A run of the same cycle that is over."""

    tier: int
    ended_as: str = Status.COMPLETED
    """A status; of a run that a person escalated, the one that it had before."""
    reported: bool = True
    is_question: bool = False
    began: bool = True
    """The CLI said something, so there was a run at all."""
    ran_tools: bool = True
    cut_calls: tuple[str, ...] = ()
    """Tool calls that had begun and never answered, newest last; masked and cut."""
    continued_by: str = Session.ContinuedBy.RESUME
    compacted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """What the operator says about the system: texts that are not ours."""

    subject: str = ""
    manifest: str = ""
    instructions: str = ""
    asked_for: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    tier: Tier
    continuation: Continuation
    purpose: str = Purpose.TIER
    """Of a run that is tried again: what it was for the first time."""
    dry_run: bool = False
    line: tuple[EarlierRun, ...] = ()
    """The runs that this one continues, oldest first; its parent is the last."""
    attempts: tuple[EarlierRun, ...] = ()
    """Earlier runs at this same point, for the same purpose, that did not end well."""
    failed_remedies: tuple[str, ...] = ()
    """What earlier chains did about the same and did not hold; nothing for one that only looks."""
    request: str = ""
    """What a person asked for, or why they started the run."""
    place: Place = field(default_factory=Place)
    record: str = ""
    """What the supervisor knows, where the conversation cannot be continued."""
    findings_path: str = ""
    """Where findings are to be written, if they are."""
    token: str = ""
    """Marks the lines around data."""

    @property
    def parent(self) -> EarlierRun:
        assert self.line, "only a run that continues another has a parent"
        return self.line[-1]

    @property
    def is_escalation(self) -> bool:
        return self.purpose == Purpose.TIER and bool(self.line)

    @property
    def is_question(self) -> bool:
        return self.purpose == Purpose.FOLLOW_UP

    @property
    def in_conversation(self) -> tuple[EarlierRun, ...]:
        """The runs whose own words are in the parent's conversation."""
        return self.line[self._opening :]

    @property
    def in_record(self) -> tuple[EarlierRun, ...]:
        """The runs that the parent's conversation knows from the supervisor's record alone."""
        by_record = self.line[self._opening].continued_by == Session.ContinuedBy.HANDOFF
        return self.line[: self._opening] if by_record else ()

    @property
    def _opening(self) -> int:
        """The place in the line of the run that opened the conversation."""
        resumed = Session.ContinuedBy.RESUME
        opened = [at for at, run in enumerate(self.line) if run.continued_by != resumed]
        return max(opened, default=0)


def situation_of(
    lineage: Lineage,
    tier: Tier,
    continuation: Continuation,
    record: Mapping[str, Any] | None,
    findings_path: str,
) -> Situation:
    session = lineage.session
    return Situation(
        tier=tier,
        continuation=continuation,
        purpose=_purpose(lineage),
        dry_run=session.cycle.policy.dry_run or session.is_plan,
        line=_line(lineage),
        attempts=tuple(earlier_run(run) for run in lineage.attempts if _ended_badly(run)),
        failed_remedies=_failed_remedies(session),
        request=session.request,
        place=Place() if isinstance(continuation, Resume) else place_of(session.cycle),
        record=json.dumps(record["content"], indent=1, ensure_ascii=False) if record else "",
        findings_path=findings_path,
        token=new_token(),
    )


def _failed_remedies(session: Session) -> tuple[str, ...]:
    """A round looks with fresh eyes; whoever mends must not mend in vain a second time."""
    if session.tier == LOWEST_TIER:
        return ()
    return tuple(dict.fromkeys(remedies_that_failed(session.cycle)))[-REMEDIES_SHOWN:]


def place_of(cycle: Cycle) -> Place:
    return Place(
        subject=cycle.subject,
        manifest=read_manifest(Path(cycle.workdir)),
        instructions=cycle.instructions,
        asked_for=cycle.prompt,
    )


def _line(lineage: Lineage) -> tuple[EarlierRun, ...]:
    """Only of the last run does it matter what it was in the middle of."""
    if lineage.parent is None:
        return ()
    before = (earlier_run(run, seen=[]) for run in lineage.path[:-2])
    return (*before, earlier_run(lineage.parent))


def earlier_run(session: Session, seen: list[Any] | None = None) -> EarlierRun:
    seen = _stream_of(session) if seen is None else seen
    calls = tool_calls(seen)
    return EarlierRun(
        tier=session.tier,
        ended_as=_ended_as(session),
        reported=session.report is not None,
        is_question=session.is_question,
        began=session.report is not None or bool(seen),
        ran_tools=bool(calls),
        cut_calls=_cut_calls(calls),
        continued_by=session.continued_by,
        compacted=session.compactions > 0,
    )


def read_manifest(workdir: Path) -> str:
    """The house rules, where the working directory has them; cut when somebody wrote a book.

    An earlier run may have written in the directory, and this is read outside its room: a link that
    leads out of it would bring any file of ours into a prompt, and a pipe would never end.
    """
    try:
        path = (workdir / MANIFEST_NAME).resolve()
        if not path.is_relative_to(workdir.resolve()):
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="replace") as manifest:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            text = manifest.read(MANIFEST_LENGTH + 1)
    except (OSError, RuntimeError):
        return ""
    if len(text) > MANIFEST_LENGTH:
        return text[:MANIFEST_LENGTH] + f"\n(cut here: read {MANIFEST_NAME} for the rest)"
    return text


def _purpose(lineage: Lineage) -> str:
    """Trying again says nothing about what is tried: that is known from the first attempt."""
    session, parent = lineage.session, lineage.parent
    if session.purpose != Purpose.RETRY:
        return session.purpose
    first = [run.purpose for run in lineage.attempts if run.purpose != Purpose.RETRY]
    from_below = parent is None or parent.tier < session.tier
    return (first or [Purpose.TIER if from_below else Purpose.FORK])[0]


def _ended_badly(session: Session) -> bool:
    return not session.is_open and session.status not in Session.GOOD_STATUSES


def _stream_of(session: Session) -> list[Any]:
    """A run that reported was not cut off: its stream has nothing to say here."""
    if session.report is not None:
        return []
    stream = session.events.filter(source=SessionEvent.Source.STREAM).order_by("sequence")
    return list(stream.values_list("payload", flat=True))


def _ended_as(session: Session) -> str:
    """Escalating by hand hides how the run had ended; the note of the change remembers it."""
    if session.status != Status.ESCALATED or session.report is not None:
        return session.status
    changes = session.events.filter(source=SessionEvent.Source.SUPERVISOR, kind="status")
    last = changes.order_by("sequence").values_list("payload", flat=True).last()
    before = last.get("from") if isinstance(last, dict) else ""
    return before if before in Session.FINISHED_STATUSES else Status.COMPLETED


def _cut_calls(calls: list[ToolCall]) -> tuple[str, ...]:
    unanswered = [call for call in calls if not call.is_answered][-CALLS_SHOWN:]
    return tuple(
        one_line(masked(f"{call.name}: {call.normalised}"[:MASKED_LENGTH]), CALL_LENGTH)
        for call in unanswered
    )
