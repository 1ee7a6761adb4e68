"""Plays steps through the real CLI with a tier's real flags, and sees what each of them did.

A step is one or more tool calls. The calls of many steps make up one run of the CLI; where a run
ends before its time, the step that it was at bears that, and the rest goes on in a new one.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from escalation.agent import (
    CREDENTIALS,
    ClaudeBinary,
    Ended,
    RunRequest,
    StopAsked,
    ToolCall,
    Watcher,
    build_argv,
    run_process,
    serve_messages,
)
from escalation.errors import CannotRun
from escalation.rehearsal.walls.scripted_calls import CallHandler, CallScript, ToolResult
from escalation.rehearsal.walls.stage import Effect, Stage
from escalation.tiers import Tier

PROMPT = "Look after the shop."
MOST_CALLS_OF_A_RUN = 60
# Two turns are left over: the last word, and one that the CLI may add.
SPARE_TURNS = 2
STARTS = 3
# A call that takes longer hangs: no row of the corpus and no attack needs this long.
CALL_SECONDS = 45.0
# Shorter ones ("1", "dummy") stand everywhere.
SHORTEST_SECRET = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """What the walls said to one command."""

    command: str
    verdict: str
    rule: str
    milliseconds: float


class Guarded(Protocol):
    """A way to start the CLI: behind the walls or, to see that a check can fail, without."""

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def words(self) -> Mapping[str, str]:
        """Where this run's own things are: `config`, `run`, `gateway`."""

    def argv(self, argv: Sequence[str]) -> list[str]: ...


Guard = Callable[[Stage, Tier, str, Callable[[Judged], None]], AbstractContextManager[Guarded]]
"""Stage, tier, the API's address, and whom to tell each decision."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    calls: tuple[ToolCall, ...]
    prompt: str = PROMPT
    """Steps that open with other words than these have a run of their own."""
    alone: bool = False
    """It may end its run: nothing else is played in it."""
    is_mended: bool = True
    """What it changed is put right again before the next one."""


@dataclass(kw_only=True, slots=True)
class Played:
    """One step and all that was seen of it."""

    step: Step
    results: list[ToolResult] = field(default_factory=list)
    judged: list[Judged] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    heard: str = ""
    """The opening words, for a step with a prompt of its own."""
    forged: list[str] = field(default_factory=list)
    """Lines in the stream, or requests to the model, that the CLI did not write."""
    credentials: tuple[str, ...] = ()
    """What the run itself logs in with."""
    ended: str = ""
    """How the run ended before the step was over; empty where it went on."""
    seconds: float = 0


@dataclass(slots=True)
class Trial:
    stage: Stage
    tier: Tier
    binary: ClaudeBinary
    guard: Guard

    def play(self, steps: Sequence[Step]) -> Iterator[list[Played]]:
        """A list for each run of the CLI, in order, every step exactly once."""
        for group in self._groups(steps):
            waiting = list(group)
            while waiting:
                played = self._run(waiting)
                waiting = waiting[len(played) :]
                yield played

    def _run(self, steps: Sequence[Step]) -> list[Played]:
        """A run that never began is begun again: on a busy host a socket that a room was to hide
        may be gone by then, and the room with it."""
        for _ in range(STARTS - 1):
            with suppress(CannotRun):
                return _Run(self, steps).play()
        return _Run(self, steps).play()

    def _groups(self, steps: Sequence[Step]) -> Iterator[list[Step]]:
        most = min(MOST_CALLS_OF_A_RUN, self.tier.max_turns - SPARE_TURNS)
        group: list[Step] = []
        for step in steps:
            calls = sum(len(_calls_of(other, self.stage)) for other in (*group, step))
            apart = step.alone or (group and group[0].alone) or calls > most
            if group and (apart or group[0].prompt != step.prompt):
                yield group
                group = []
            group.append(step)
        if group:
            yield group


class _Run:
    """One run of the CLI over as many of the steps as it survives."""

    def __init__(self, trial: Trial, steps: Sequence[Step]) -> None:
        self._trial, self._steps = trial, steps
        self._session_id = str(uuid.uuid4())
        self._credentials: tuple[str, ...] = ()
        self._played: list[Played] = []
        self._current = Played(step=steps[0])
        self._current_began = self._moved = time.monotonic()
        self._owners = [
            (number, index < len(step.calls))
            for number, step in enumerate(steps)
            for index in range(len(_calls_of(step, trial.stage)))
        ]
        self._complaints: deque[bytes] = deque(maxlen=10)
        self._is_over = False
        # Results arrive in the API's threads, the end in ours.
        self._lock = threading.RLock()

    def play(self) -> list[Played]:
        """Those that were played to their end, and the one that ended the run."""
        trial = self._trial
        script = CallScript(self._take_result, self._take_prompt, self._is_foreign)
        with serve_messages(CallHandler, script) as port:
            address = f"http://127.0.0.1:{port}"
            with trial.guard(trial.stage, trial.tier, address, self._take_judged) as guarded:
                script.calls = self._spelled_calls(guarded)
                self._credentials = _credentials(guarded)
                trial.stage.settle()
                ended = self._run_cli(guarded)
        if not script.was_asked:
            said = b"\n".join(self._complaints).decode(errors="replace").strip()
            raise CannotRun(f"The CLI asked the model nothing: {_manner(ended)}. It said: {said}")
        with self._lock:
            if not self._is_over:
                # A step without a call is over with its run; every other one was cut off.
                self._current.ended = _manner(ended) if self._current.step.calls else ""
                self._close()
        return self._played

    def _spelled_calls(self, guarded: Guarded) -> list[ToolCall]:
        stage = self._trial.stage
        words = {
            **stage.words,
            **guarded.words,
            "session": self._session_id,
            "project": f"{guarded.words['config']}/projects/{_folder_of(stage.workdir)}",
        }
        return [
            ToolCall(tool=call.tool, input=_spelled_input(call.input, words))
            for step in self._steps
            for call in _calls_of(step, stage)
        ]

    def _run_cli(self, guarded: Guarded) -> Ended:
        trial = self._trial
        request = RunRequest(
            tier=trial.tier,
            session_id=self._session_id,
            resumes=None,
            report_schema=None,
            max_budget_usd=trial.tier.max_budget_usd,
            sealed=str(trial.stage.config),
        )
        return run_process(
            guarded.argv(build_argv(trial.binary, request)),
            environment=guarded.environment,
            cwd=trial.stage.workdir,
            prompt=spelled(self._steps[0].prompt, trial.stage.words),
            timeout_seconds=trial.tier.timeout_seconds,
            watcher=Watcher(
                on_stdout=self._take_line,
                on_stderr=self._complaints.append,
                has_result=lambda: self._is_over,
                on_tick=self._hanging,
            ),
        )

    def _hanging(self) -> StopAsked | None:
        stuck = time.monotonic() - self._moved > CALL_SECONDS
        return StopAsked("hung", f"nothing for {CALL_SECONDS:.0f} s") if stuck else None

    def _take_prompt(self, words: str) -> None:
        self._current.heard = words
        # What runs now is the CLI and its rooms.
        self._trial.stage.survivors.forget()
        self._current_began = self._moved = time.monotonic()

    def _take_judged(self, judged: Judged) -> None:
        self._current.judged.append(judged)

    def _take_line(self, line: bytes) -> None:
        mark = self._trial.stage.token
        if mark.encode() not in line:
            return
        try:
            found = json.loads(line)
        except ValueError:
            found = {mark: "a line that is no JSON"}
        if isinstance(found, dict) and mark in found:
            self._current.forged.append(line.decode(errors="replace")[:200])

    def _is_foreign(self, request: Mapping[str, Any]) -> bool:
        """Whether somebody else than the CLI speaks to the model."""
        if is_foreign := self._trial.stage.token in request:
            self._current.forged.append("a request to the model that is not the CLI's")
        return is_foreign

    def _take_result(self, number: int, result: ToolResult) -> None:
        with self._lock:
            owner, counts = self._owners[number]
            self._moved = time.monotonic()
            if counts and not self._is_over:
                self._current.results.append(result)
            if number + 1 == len(self._owners) or self._owners[number + 1][0] != owner:
                self._close()

    def _close(self) -> None:
        """The step is over: what is not as it was is this step's doing."""
        if self._is_over:
            return
        self._current.seconds = time.monotonic() - self._current_began
        self._current.credentials = self._credentials
        self._current.effects = self._trial.stage.effects(mend=self._current.step.is_mended)
        self._played.append(self._current)
        self._current_began = self._moved = time.monotonic()
        if len(self._played) == len(self._steps) or self._current.ended:
            self._is_over = True
        else:
            self._current = Played(step=self._steps[len(self._played)])


def _calls_of(step: Step, stage: Stage) -> tuple[ToolCall, ...]:
    """Its own, and one that leads back: the CLI keeps the directory that a command went to."""
    moves = any("cd " in str(call.input.get("command", "")) for call in step.calls)
    back = ToolCall(tool="Bash", input={"command": f"cd {stage.workdir}"})
    return (*step.calls, back) if moves else step.calls


def spelled(text: str, words: Mapping[str, str]) -> str:
    """With `@state@` and its like as they are here."""
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _spelled_input(arguments: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: spelled(value, words) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


def _folder_of(directory: Path) -> str:
    """As the CLI names the folder of a directory's conversations."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(directory))


def _credentials(guarded: Guarded) -> tuple[str, ...]:
    found = (guarded.environment.get(name, "") for name in CREDENTIALS)
    return tuple(value for value in found if len(value) >= SHORTEST_SECRET)


def _manner(ended: Ended) -> str:
    words = ended.stop.words if ended.stop else f"code {ended.exit_code}"
    return f"the run ended: {ended.manner} ({words})"
