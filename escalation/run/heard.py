"""What a conversation has said and printed so far: for the gate, and for whoever is asked.

The stream is heard by the thread that reads the run; the gate asks from threads of the tool runner.
Before it compares a command with what was printed, such a thread waits until the reader has come
round once more: the CLI prints a result before it sends it on, so whatever the model can have seen
is heard by then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from escalation.agent import Bell
from escalation.gate.decision import Decision, Verdict
from escalation.gate.injection import HeardOutputs, with_boundary
from escalation.next_step.lineage import Lineage
from escalation.run.situation import read_manifest
from escalation.tiers import LOWEST_TIER
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.reading import stream_shape as shape
from sessions_app.reading.masking import masked
from sessions_app.reading.walls import GATE

LONGEST_LAG_SECONDS = 30.0
ROUNDS = 2
"""Of the reader: the first may have begun before the question."""
LONGEST_WORDS = 3_000


class Heard:
    def __init__(
        self,
        session: Session,
        before: HeardOutputs,
        now: HeardOutputs,
        bell: Bell | None = None,
    ) -> None:
        self._is_bounded = session.tier > LOWEST_TIER
        self._before = before
        """Of the runs that this one continues: read from the record, so masked."""
        self._now = now
        self._said: list[str] = []
        self._ours: list[str] = []
        self._asked: dict[str, str] = {}
        """Commands by the id of their call."""
        self._bell = bell or Bell()
        self._rounds = 0
        self._enough = 0
        """As many rounds as somebody waits for."""
        self._came_round = threading.Condition()

    def observe(self, line: Mapping[str, Any]) -> None:
        if shape.is_answer(line):
            self._said = [*self._said, *_words_in(line)][-5:]
        if _hear_results(line, self._asked, self._now, tuple(self._ours)):
            self._said = []

    def came_round(self) -> None:
        """At each tick of the reader."""
        with self._came_round:
            self._rounds += 1
            self._came_round.notify_all()
            if self._rounds < self._enough:
                self._bell.ring()

    @property
    def last_words(self) -> str:
        """What the model said since the last result: what it is about to do, and why."""
        return "\n".join(self._said)[-LONGEST_WORDS:]

    def review(self, command: str, decision: Decision) -> Decision:
        """The injection boundary, for a command that would be allowed. From any thread."""
        if self._is_bounded and decision.verdict == Verdict.ALLOW and decision.effects:
            self._catch_up()
            decision = with_boundary(decision, command, self._now)
            decision = with_boundary(decision, masked(command), self._before)
        if decision.reason and decision.reason not in self._ours:
            self._ours.append(decision.reason)
        return decision

    def _catch_up(self) -> None:
        with self._came_round:
            enough = self._enough = self._rounds + ROUNDS
            self._bell.ring()
            if not self._came_round.wait_for(
                lambda: self._rounds >= enough, timeout=LONGEST_LAG_SECONDS
            ):
                raise TimeoutError("the run's output is not being read")


def heard_in(lineage: Lineage, bell: Bell | None = None) -> Heard:
    """With the outputs of the runs that this one continues, by conversation or by handoff."""
    session = lineage.session
    named = tuple(_named_by_people(session.cycle, lineage.path))
    before = HeardOutputs(named=map(masked, named))
    if session.tier > LOWEST_TIER:
        for run in lineage.path[:-1]:
            _hear_again(run, before)
    return Heard(session, before, HeardOutputs(named=named), bell)


def _hear_again(run: Session, outputs: HeardOutputs) -> None:
    events = run.events.filter(
        source__in=(SessionEvent.Source.STREAM, SessionEvent.Source.SUPERVISOR),
        kind__in=("assistant", "user", GATE),
    ).order_by("sequence")
    ours: list[str] = []
    asked: dict[str, str] = {}
    for event in events.iterator():
        data = shape.mapping(event.payload)
        if event.source == SessionEvent.Source.SUPERVISOR:
            ours.append(shape.text(data.get("reason")))
            continue
        _hear_results(data, asked, outputs, ours)


def _hear_results(
    line: Mapping[str, Any], asked: dict[str, str], outputs: HeardOutputs, ours: Iterable[str]
) -> bool:
    """Each without the command that it is the result of, and without our own words."""
    for call in shape.calls_of(line):
        command = shape.mapping(call.get("input")).get("command")
        asked[shape.text(call.get("id"))] = shape.text(command)
    results = shape.results_of(line)
    for result in results:
        command = asked.pop(shape.text(result.get("tool_use_id")), "")
        outputs.hear(shape.output_of(result), ours=(*ours, command))
    return bool(results)


def _named_by_people(cycle: Cycle, path: Iterable[Session]) -> Iterable[str]:
    """What an operator wrote. The words of an unattended trigger are data like any other."""
    yield cycle.instructions
    yield read_manifest(Path(cycle.workdir))
    if cycle.trigger in Cycle.ATTENDED_TRIGGERS:
        yield cycle.prompt
    for run in path:
        yield run.request


def _words_in(line: Mapping[str, Any]) -> list[str]:
    texts = [shape.text(block.get("text")) for block in shape.blocks_of(line)]
    calls = [shape.mapping(call.get("input")).get("description") for call in shape.calls_of(line)]
    return [words for words in (*texts, *map(shape.text, calls)) if words]
