"""Commands of a run that wait for a person.

The tool runner's threads hand their questions over and wait; everything that touches the record is
done by the thread that reads the run, at its ticks. A question outlives the call that asked it (the
CLI may give up earlier), and ends with the run: `conclude` withdraws what still waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from django.conf import settings
from django.db import DatabaseError

from escalation.approvals import answering, commands
from escalation.approvals.asking import CommandAsked
from escalation.rooms.questions import Answer, Question
from escalation.run.recorder import Recorder
from sessions_app.models import Approval, Session
from sessions_app.reading.plain_text import one_line

logger = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
State = Approval.State
WAITED_ENOUGH = (
    "This run has waited for people long enough, so nobody is asked any more. Say in your report "
    "what should be run."
)


@dataclass(slots=True)
class Held:
    question: Question
    approval: Approval
    until: float
    """By this process's own clock: the host's may be set back."""


class HeldCommands:
    def __init__(self, session: Session, recorder: Recorder, plan: Callable[[], str]) -> None:
        self._session = session
        self._recorder = recorder
        self._plan = plan
        self._new: SimpleQueue[Question] = SimpleQueue()
        self._held: list[Held] = []
        self._granted: list[Held] = []
        """Approved, and not begun yet."""
        self._next_look = 0.0
        self._waited = 0.0
        self._since: float | None = None

    def ask(self, question: Question) -> None:
        """From any thread."""
        self._new.put(question)

    @property
    def waited_seconds(self) -> float:
        """How long the run has waited for people; as long as it may, at most."""
        now_waiting = time.monotonic() - self._since if self._since is not None else 0.0
        return min(self._waited + now_waiting, float(settings.LONGEST_WAIT_SECONDS))

    def look(self) -> None:
        """New questions at once, the answers to the others now and then."""
        self._take_new()
        self._give_back_what_was_left()
        if self._held and time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            self._look_for_answers()
        self._count()

    def _take_new(self) -> None:
        while True:
            try:
                question = self._new.get_nowait()
            except Empty:
                return
            try:
                self._hold(question)
            except Exception:
                logger.exception("Nobody could be asked about a command")
                question.settle(
                    Answer(
                        approved=False, words="Nobody could be asked: it did not run. Try again."
                    )
                )

    def _hold(self, question: Question) -> None:
        left = settings.LONGEST_WAIT_SECONDS - self.waited_seconds
        if left <= 0:
            question.settle(Answer(approved=False, words=WAITED_ENOUGH))
            return
        record = question.record
        approval = commands.question_about(
            self._session,
            CommandAsked(
                command=record.command,
                cwd=record.cwd,
                why=record.reason,
                doors=record.doors,
                actions=record.actions,
                plan=self._plan(),
            ),
        )
        patience = min(left, settings.CLAUDEOPS_COMMAND_APPROVAL_EXPIRES)
        held = Held(question, approval, time.monotonic() + patience)
        if approval.is_waiting:
            self._note(held, "Waits for a person", "warning")
        self._held.append(held)
        self._next_look = 0.0

    def _look_for_answers(self) -> None:
        self._held = [held for held in self._held if not held.question.left]
        numbers = [held.approval.pk for held in self._held]
        try:
            found = Approval.objects.select_related("decided_by").in_bulk(numbers)
            self._held = [
                held for held in self._held if not self._settled(held, found.get(held.approval.pk))
            ]
        except DatabaseError:
            logger.warning("Whether an approval was answered could not be looked up", exc_info=True)

    def _settled(self, held: Held, approval: Approval | None) -> bool:
        if approval is None:
            held.question.settle(Answer(approved=False, words="The question is gone."))
            return True
        held.approval = approval
        if approval.is_waiting and (time.monotonic() >= held.until or approval.is_overdue):
            answering.close(approval, State.EXPIRED)
            approval.refresh_from_db()
        match approval.state:
            case State.WAITING:
                return False
            case State.APPROVED:
                return self._is_granted(held)
            case _:
                self._note(held, _refused(approval), "warning")
                held.question.settle(Answer(approved=False, words=_refused(approval)))
        return True

    def _is_granted(self, held: Held) -> bool:
        """Of two calls of the same command one gets it; the other is asked about by itself, once it
        is known that the first has begun."""
        if any(other.approval.pk == held.approval.pk for other in self._granted):
            return False
        if commands.take(held.approval):
            self._note(held, f"Approved by {_who(held.approval)}")
            self._granted.append(held)
            held.question.settle(Answer(approved=True, words=_remark(held.approval)))
        else:
            self._new.put(held.question)
        return True

    def _give_back_what_was_left(self) -> None:
        """The CLI gave up in the very moment of the answer: asked again, it finds it."""
        for held in self._granted:
            if held.question.left:
                commands.give_back(held.approval)
        self._granted = [
            held for held in self._granted if not held.question.began and not held.question.left
        ]

    def _count(self) -> None:
        is_waiting = any(not held.question.left for held in self._held)
        if is_waiting and self._since is None:
            self._since = time.monotonic()
        if not is_waiting and self._since is not None:
            self._waited += time.monotonic() - self._since
            self._since = None

    def _note(self, held: Held, what: str, level: str = "info") -> None:
        approval = held.approval
        note = f" ({approval.note})" if approval.state == State.APPROVED and approval.note else ""
        command = one_line(approval.command, 200)
        self._recorder.note(
            "approval",
            f"{what}{note}: {command}",
            level,
            approval=approval.pk,
            state=approval.state,
        )


def _remark(approval: Approval) -> str:
    return f"{_who(approval)} approved this command: {approval.note}" if approval.note else ""


def _refused(approval: Approval) -> str:
    match approval.state:
        case State.REJECTED:
            return (
                f"{_who(approval)} rejected this command: {approval.note} It did not run. Go "
                "another way, or leave it to a person and say so in your report."
            )
        case State.EXPIRED:
            return (
                "Nobody approved this command in time: it did not run. Say in your report that it "
                "waits for a person."
            )
    return "This command is not asked for any more: it did not run."


def _who(approval: Approval) -> str:
    return approval.decided_by.get_username() if approval.decided_by else "A person"
