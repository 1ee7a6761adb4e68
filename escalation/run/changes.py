"""The changes of one run: counted before they run, and written down with what came back.

A command that restarts or redeploys asks first. The question goes to the run's own thread, which
answers one after another, in transactions that no other host can come between: of two hundred at
once as many are let through as are left. What is let through is on record before it runs, so no
death of a process makes it forgotten.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from queue import Empty, SimpleQueue

from django.db import OperationalError, transaction
from django.utils import timezone

from escalation.agent import Bell
from escalation.gate.decision import Verdict
from escalation.incidents import book
from escalation.policy import change_record, cooldowns
from escalation.policy.cooldowns import Reached
from escalation.policy.effects import Effect, effects_of, is_of_docker, service_behind
from escalation.queue.one_at_a_time import one_at_a_time
from escalation.rooms.records import CommandEnd, GateRecord
from escalation.rooms.tool_runner import Refusal
from sessions_app.models import Change, Session, SessionEvent
from sessions_app.reading import stream_shape as shape
from sessions_app.reading.masking import masked
from sessions_app.reading.walls import DENY, GATE, GATE_END

logger = logging.getLogger(__name__)
LOOK_SECONDS = 0.2
RULE = "cooldown"
OVER = Refusal(RULE, "The run is over: this command did not run.")
NOT_COUNTED = Refusal(
    RULE, "How often this was done could not be counted, so it did not run: try again in a minute."
)


NamesOf = Callable[[Iterable[str]], Mapping[str, str]]


def nobody_knows_names(words: Iterable[str]) -> Mapping[str, str]:
    return {}


class _Question:
    def __init__(self, record: GateRecord, effects: tuple[Effect, ...]) -> None:
        self.record = record
        self.effects = effects
        self.answered = threading.Event()
        self.refusal: Refusal | None = OVER

    def answer(self, refusal: Refusal | None) -> None:
        self.refusal = refusal
        self.answered.set()


class RunChanges:
    def __init__(self, session: Session, bell: Bell | None = None) -> None:
        self._session = session
        self._bell = bell or Bell()
        self._questions: SimpleQueue[_Question] = SimpleQueue()
        self._unwritten: list[Callable[[], None]] = []
        self._closed = threading.Event()

    def objection(
        self, record: GateRecord, names_of: NamesOf = nobody_knows_names
    ) -> Refusal | None:
        """Asked by the gate's threads; waits for the run's own. `names_of` tells the names of
        containers that were given by their ids."""
        effects = effects_of(record.changes)
        if not any(is_counted(effect) for effect in effects):
            return None
        question = _Question(record, by_name(effects, names_of))
        self._questions.put(question)
        self._bell.ring()
        while not question.answered.wait(LOOK_SECONDS):
            if self._closed.is_set():
                break
        return question.refusal

    def close(self) -> None:
        """Nobody answers any more."""
        self._closed.set()

    # By the run's own thread.

    def answer(self) -> None:
        """All that wait, in their order."""
        while not self._closed.is_set():
            try:
                question = self._questions.get_nowait()
            except Empty:
                break
            question.answer(self._answer_to(question))
        self._write()

    def decided(self, record: GateRecord) -> None:
        """What needed no question is on record as well."""
        effects = effects_of(record.changes)
        if record.verdict != Verdict.DENY and not any(map(is_counted, effects)):
            self._unwritten.append(lambda: write_down(self._session, record, effects))

    def ended(self, record: GateRecord, end: CommandEnd) -> None:
        if record.changes and record.verdict != Verdict.DENY:
            self._unwritten.append(
                lambda: settle_call(self._session, record.call, end.exit_code, end.has_run)
            )

    def write_rest(self) -> None:
        """After the run: what could not be written is found by the next recovery, in the events."""
        self._write()

    def _answer_to(self, question: _Question) -> Refusal | None:
        try:
            reached = self._reserve(question)
        except OperationalError:
            logger.warning("A change of session %s could not be counted", self._session.pk)
            return NOT_COUNTED
        return Refusal(RULE, reached.reason) if reached else None

    def _reserve(self, question: _Question) -> Reached | None:
        """Counting and writing down are one transaction, one process at a time."""
        cycle, now = self._session.cycle, timezone.now()
        with one_at_a_time():
            limits = change_record.limits_for(cycle)
            reached = cooldowns.objection(
                question.effects,
                question.record.may_repeat,
                change_record.counting(cycle, limits, now),
                limits,
                now,
            )
            if reached is None:
                write_down(self._session, question.record, question.effects)
            elif reached.reason != cooldowns.UNCOUNTED:
                change_record.tell_reached(self._session, reached)
                book.note_cooldown(self._session, reached.service, reached.reason)
        return reached

    def _write(self) -> None:
        """A locked database is tried again at the next tick."""
        while self._unwritten:
            try:
                self._unwritten[0]()
            except OperationalError:
                return
            self._unwritten.pop(0)


def is_counted(effect: Effect) -> bool:
    return effect.kind != Change.Kind.OTHER


def by_name(effects: tuple[Effect, ...], names_of: NamesOf) -> tuple[Effect, ...]:
    """One container is one service, however a command names it."""
    names = names_of(effect.service for effect in effects if is_of_docker(effect))
    return tuple(
        replace(effect, service=service_behind(names[effect.service]))
        if is_of_docker(effect) and effect.service in names
        else effect
        for effect in effects
    )


def write_down(session: Session, record: GateRecord, effects: Iterable[Effect]) -> None:
    """Once, however often it is said."""
    _write_rows(session, record.call, record.command, effects)


def settle_call(session: Session, call: str, exit_code: int | None, has_run: bool) -> None:
    """What came back. What never entered its room was no change."""
    rows = Change.objects.filter(session=session, call=call)
    if has_run:
        rows.update(exit_code=exit_code)
    else:
        rows.delete()


def settle_from_events(session: Session) -> None:
    """After a death: the events that were stored say what was let run and how it ended."""
    events = session.events.filter(
        source=SessionEvent.Source.SUPERVISOR, kind__in=(GATE, GATE_END)
    ).order_by("sequence")
    with transaction.atomic():
        for event in events.only("kind", "payload"):
            data = shape.mapping(event.payload)
            call, code = shape.text(data.get("call")), data.get("exit_code")
            if not call or data.get("verdict") == DENY:
                continue
            if event.kind == GATE:
                listed = data.get("changes")
                changes = [shape.text(word) for word in listed] if isinstance(listed, list) else []
                command = shape.text(data.get("command"))
                _write_rows(session, call, command, effects_of(changes))
            elif isinstance(code, int):
                settle_call(session, call, code, data.get("has_run") is not False)


def _write_rows(session: Session, call: str, command: str, effects: Iterable[Effect]) -> None:
    Change.objects.bulk_create(
        [
            Change(
                session=session,
                watch_id=session.cycle.watch_id,
                call=call,
                number=number,
                kind=effect.kind,
                service=effect.service,
                action=masked(effect.action)[:300],
                command=masked(command),
            )
            for number, effect in enumerate(effects)
        ],
        ignore_conflicts=True,
    )
