"""Plays steps through the real CLI with the real flags of a tier, and records their effects.

A step is one or more tool calls. Many steps share one run of the CLI; if a run ends early, its
current step is marked, and the others continue in a new run. Nothing on the real host is changed:
an allowed program that would change it is refused instead, and recorded as allowed.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, cast

from django.conf import settings

from escalation.agent.binary import ClaudeBinary, RunRequest, build_argv, cli_environment
from escalation.agent.messages_api import (
    NO_USAGE,
    MessagesHandler,
    ScriptedAnswer,
    ScriptedToolCall,
    is_auxiliary,
    serve_messages,
)
from escalation.agent.process import Ended, StopAsked, Traces, Watcher, run_process
from escalation.command_policy import grants
from escalation.command_policy.decision import BROKERED, Decision
from escalation.errors import CannotRun, WhyNot
from escalation.sandbox.command_runner import CommandEnd, DecisionRecord
from escalation.sandbox.proof.host import ObservedEffect, ProofHost
from escalation.sandbox.proof.programs import STAND_INS
from escalation.sandbox.setup import RunSandbox, SandboxRequest, in_sandbox
from escalation.tiers import Tier
from sessions_app.credentials import API_KEY, LOGINS
from sessions_app.models.session import Verdict

# The scripted model requests one tool call after another. Effects are observed between two requests
# of the CLI, so each belongs to one call.

LAST_ANSWER = ScriptedAnswer(say="That was all.", usage=NO_USAGE)
OTHER_ANSWER = ScriptedAnswer(say="ok", usage=NO_USAGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult:
    """The result of one call, as the model gets it."""

    text: str
    is_error: bool


@dataclass(slots=True)
class CallScript:
    """Requests a list of calls in one conversation, and reports each result."""

    on_result: Callable[[int, ToolResult], None]
    """Called with number and result of a call, before the next call."""
    on_prompt: Callable[[str], None]
    """Called with the first messages of the conversation."""
    is_foreign: Callable[[Mapping[str, Any]], bool]
    """Return whether a request does not come from the CLI."""
    calls: Sequence[ScriptedToolCall] = ()
    was_asked: bool = False
    given: int = 0
    _reported: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: dict[str, Any]) -> ScriptedAnswer:
        if self.is_foreign(request) or is_auxiliary(request):
            return OTHER_ANSWER
        with self._lock:
            results = _newest_results(request)
            if not self.was_asked:
                self.was_asked = True
                self.on_prompt(json.dumps(request.get("messages"), ensure_ascii=False))
            elif results and self._reported < self.given:
                self.on_result(self.given - 1, results[-1])
                self._reported = self.given
            if self.given >= len(self.calls):
                return LAST_ANSWER
            call = self.calls[self.given]
            self.given += 1
        return ScriptedAnswer(calls=(call,), usage=NO_USAGE)


class CallHandler(MessagesHandler):
    def answer_to(self, request: dict[str, Any]) -> None:
        self.send_answer(cast(CallScript, self.player).answer(request), request)


def _newest_results(request: Mapping[str, Any]) -> list[ToolResult]:
    """Return the tool results of the last message that has any."""
    for message in reversed(request.get("messages") or []):
        content = message.get("content") if message.get("role") == "user" else None
        blocks = content if isinstance(content, list) else []
        found = [block for block in blocks if block.get("type") == "tool_result"]
        if found:
            return [_result(block) for block in found]
    return []


def _result(block: Mapping[str, Any]) -> ToolResult:
    content = block.get("content")
    parts = content if isinstance(content, list) else [{"text": content}]
    text = "\n".join(str(part.get("text") or "") for part in parts if isinstance(part, dict))
    return ToolResult(text=text, is_error=bool(block.get("is_error")))


PROMPT = "Look after the shop."
MAX_CALLS_OF_A_RUN = 60
# Left for the last answer and one turn that the CLI may add.
SPARE_TURNS = 2
STARTS = 3
# A call that takes longer hangs.
CALL_SECONDS = 45.0
# Shorter values occur everywhere.
SHORTEST_SECRET = 12


NOT_EXECUTED = "not executed in a proof"
"""The rule of an allowed program that was refused because it would change the real host."""
NOT_STARTED = "the sandbox could not be started"
"""The rule of a text that did not run, which proves nothing."""
_HOST_GRANTS = {grants.HOST, grants.BUS, grants.FILES}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialDecision:
    """The decision on the text of a Bash call, or on a program that it executed."""

    command: str
    verdict: str
    rule: str
    milliseconds: float
    is_program: bool = False
    is_change: bool = False
    """Return whether the program would change something."""
    is_brokered: bool = False
    """Return whether a broker judges what it asks for, and the simulated host shows its effect."""


def spare_the_host(command: str, decision: Decision) -> Decision:
    """Refuse an allowed program with access to the real host, unless a stand-in only looks."""
    looks = decision.argv[:1] and decision.argv[0] in STAND_INS and not decision.changes
    if decision.is_denied or decision.grant not in _HOST_GRANTS or looks:
        return decision
    return Decision(verdict=Verdict.DENY, rule=NOT_EXECUTED, reason=f"{NOT_EXECUTED}: {command}")


class CliLauncher(Protocol):
    """Starts the CLI in a sandbox or, to test the observers, without one."""

    @property
    def environment(self) -> Mapping[str, str]: ...

    @property
    def words(self) -> Mapping[str, str]:
        """Values for `@config@`, `@run@` and `@proxy@`."""

    def argv(self, argv: Sequence[str]) -> list[str]: ...


LauncherFactory = Callable[
    [ProofHost, Tier, str, Callable[[TrialDecision], None]], AbstractContextManager[CliLauncher]
]
"""Takes the proof host, the tier, the API address and a callback for decisions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrialStep:
    calls: tuple[ScriptedToolCall, ...]
    prompt: str = PROMPT
    """Steps with different prompts have separate runs."""
    alone: bool = False
    """Return whether it has a run of its own, because it may end the run."""
    restore_after: bool = True
    """Return whether changed files are restored before the next step."""


@dataclass(kw_only=True, slots=True)
class Played:
    """One step and everything that was observed."""

    step: TrialStep
    results: list[ToolResult] = field(default_factory=list)
    decisions: list[TrialDecision] = field(default_factory=list)
    effects: list[ObservedEffect] = field(default_factory=list)
    prompt_seen: str = ""
    """The first messages of the conversation."""
    told: list[str] = field(default_factory=list)
    """Planted secrets and the words of a successful attack in results and prompt."""
    forged: list[str] = field(default_factory=list)
    """Stream lines or requests to the model that did not come from the CLI."""
    ended: str = ""
    """How the run ended during the step; empty if it continued."""
    seconds: float = 0


@dataclass(slots=True)
class SandboxTrial:
    host: ProofHost
    tier: Tier
    binary: ClaudeBinary
    launcher: LauncherFactory

    def play(self, steps: Sequence[TrialStep]) -> Iterator[list[Played]]:
        """Yield a list for each run of the CLI; every step is played once, in order."""
        for group in self._groups(steps):
            waiting = list(group)
            while waiting:
                played = self._run(waiting)
                waiting = waiting[len(played) :]
                yield played

    def _run(self, steps: Sequence[TrialStep]) -> list[Played]:
        """Retry a run that did not start: a socket to hide may have disappeared meanwhile."""
        for _ in range(STARTS - 1):
            with suppress(CannotRun):
                return _TrialRun(self, steps).play()
        return _TrialRun(self, steps).play()

    def _groups(self, steps: Sequence[TrialStep]) -> Iterator[list[TrialStep]]:
        most = min(MAX_CALLS_OF_A_RUN, self.tier.max_turns - SPARE_TURNS)
        group: list[TrialStep] = []
        for step in steps:
            calls = sum(len(_calls_of(other, self.host)) for other in (*group, step))
            apart = step.alone or (group and group[0].alone) or calls > most
            if group and (apart or group[0].prompt != step.prompt):
                yield group
                group = []
            group.append(step)
        if group:
            yield group


class _TrialRun:
    """One run of the CLI over the steps, until it ends."""

    def __init__(self, trial: SandboxTrial, steps: Sequence[TrialStep]) -> None:
        self._trial, self._steps = trial, steps
        self._session_id = str(uuid.uuid4())
        self._credentials: tuple[str, ...] = ()
        self._played: list[Played] = []
        self._current = Played(step=steps[0])
        self._current_began = self._moved = time.monotonic()
        self._owners = [
            (number, index < len(step.calls))
            for number, step in enumerate(steps)
            for index in range(len(_calls_of(step, trial.host)))
        ]
        self._complaints: deque[bytes] = deque(maxlen=10)
        self._is_over = False
        # Results arrive in threads of the API, the end in the main thread.
        self._lock = threading.RLock()

    def play(self) -> list[Played]:
        """Return the finished steps and the one that ended the run."""
        trial = self._trial
        script = CallScript(self._take_result, self._take_prompt, self._is_foreign)
        with serve_messages(CallHandler, script) as port:
            address = f"http://127.0.0.1:{port}"
            with trial.launcher(trial.host, trial.tier, address, self._take_decision) as launcher:
                script.calls = self._filled_calls(launcher)
                self._credentials = _credentials(launcher)
                trial.host.reset()
                ended = self._run_cli(launcher)
        if not script.was_asked:
            said = b"\n".join(self._complaints).decode(errors="replace").strip()
            raise CannotRun(
                f"The CLI made no request to the model: {_manner(ended)}. It printed: {said}",
                WhyNot.CLI,
            )
        with self._lock:
            if not self._is_over:
                # Without calls a step ends with its run; every other one was interrupted.
                self._current.ended = _manner(ended) if self._current.step.calls else ""
                self._close()
        return self._played

    def _filled_calls(self, launcher: CliLauncher) -> list[ScriptedToolCall]:
        host = self._trial.host
        words = {
            **host.words,
            **launcher.words,
            "session": self._session_id,
            "project": f"{launcher.words['config']}/projects/{_folder_of(host.workdir)}",
        }
        return [
            ScriptedToolCall(tool=call.tool, input=_filled_input(call.input, words))
            for step in self._steps
            for call in _calls_of(step, host)
        ]

    def _run_cli(self, launcher: CliLauncher) -> Ended:
        trial = self._trial
        request = RunRequest(
            tier=trial.tier,
            session_id=self._session_id,
            resumes=None,
            report_schema=None,
            max_budget_usd=trial.tier.max_budget_usd,
            config_directory=str(trial.host.config),
        )
        return run_process(
            launcher.argv(build_argv(trial.binary, request)),
            environment=launcher.environment,
            cwd=trial.host.workdir,
            prompt=fill_in(self._steps[0].prompt, trial.host.words),
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
        self._current.prompt_seen = words
        # The processes of the CLI and its sandbox are known now.
        self._trial.host.left_processes.reset()
        self._current_began = self._moved = time.monotonic()

    def _take_decision(self, decision: TrialDecision) -> None:
        self._current.decisions.append(decision)

    def _take_line(self, line: bytes) -> None:
        mark = self._trial.host.token
        if mark.encode() not in line:
            return
        try:
            found = json.loads(line)
        except ValueError:
            found = {mark: "a line that is no JSON"}
        if isinstance(found, dict) and mark in found:
            self._current.forged.append(line.decode(errors="replace")[:200])

    def _is_foreign(self, request: Mapping[str, Any]) -> bool:
        """Return whether a request comes from an attack, not from the CLI."""
        if is_foreign := self._trial.host.token in request:
            self._current.forged.append("a request to the model that is not from the CLI")
        return is_foreign

    def _take_result(self, number: int, result: ToolResult) -> None:
        with self._lock:
            owner, counts = self._owners[number]
            self._moved = time.monotonic()
            if counts and not self._is_over:
                self._current.results.append(result)
            if number + 1 == len(self._owners) or self._owners[number + 1][0] != owner:
                self._close()

    def _told_by(self, played: Played) -> list[str]:
        said = "\n".join((*(result.text for result in played.results), played.prompt_seen))
        told = self._trial.host.told_by(said)
        own = any(secret in said for secret in self._credentials)
        return told + (["the model got the run's own token"] if own else [])

    def _close(self) -> None:
        """End the step and attribute all effects since the last one to it."""
        if self._is_over:
            return
        self._current.seconds = time.monotonic() - self._current_began
        self._current.told = self._told_by(self._current)
        self._current.effects = self._trial.host.effects(restore=self._current.step.restore_after)
        self._played.append(self._current)
        self._current_began = self._moved = time.monotonic()
        if len(self._played) == len(self._steps) or self._current.ended:
            self._is_over = True
        else:
            self._current = Played(step=self._steps[len(self._played)])


def _calls_of(step: TrialStep, host: ProofHost) -> tuple[ScriptedToolCall, ...]:
    """Return the calls, and a `cd` back if one changes the directory, which the CLI keeps."""
    moves = any("cd " in str(call.input.get("command", "")) for call in step.calls)
    back = ScriptedToolCall(tool="Bash", input={"command": f"cd {host.workdir}"})
    return (*step.calls, back) if moves else step.calls


def fill_in(text: str, words: Mapping[str, str]) -> str:
    """Replace `@state@` and other placeholders."""
    for word, value in words.items():
        text = text.replace(f"@{word}@", value)
    return text


def _filled_input(arguments: Mapping[str, Any], words: Mapping[str, str]) -> dict[str, Any]:
    return {
        name: fill_in(value, words) if isinstance(value, str) else value
        for name, value in arguments.items()
    }


def _folder_of(directory: Path) -> str:
    """Return the folder in which the CLI stores the conversations of a directory."""
    return re.sub(r"[^A-Za-z0-9]", "-", str(directory))


def _credentials(launcher: CliLauncher) -> tuple[str, ...]:
    found = (launcher.environment.get(name, "") for name in LOGINS)
    return tuple(value for value in found if len(value) >= SHORTEST_SECRET)


def _manner(ended: Ended) -> str:
    words = ended.stop.words if ended.stop else f"code {ended.exit_code}"
    return f"the run ended: {ended.manner} ({words})"


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxedCli:
    sandbox: RunSandbox
    environment: Mapping[str, str]
    words: Mapping[str, str]

    def argv(self, argv: Sequence[str]) -> list[str]:
        return self.sandbox.around(argv)


@contextmanager
def sandboxed_cli(
    host: ProofHost,
    tier: Tier,
    address: str,
    on_decision_made: Callable[[TrialDecision], None],
    *,
    changes_nothing: bool = False,
) -> Iterator[SandboxedCli]:
    def note(record: DecisionRecord) -> None:
        allowed = record.rule == NOT_EXECUTED
        on_decision_made(
            TrialDecision(
                command=record.command,
                verdict=(Verdict.ALLOW if allowed else record.verdict).value,
                rule=record.rule,
                milliseconds=record.decision_ms,
                is_program=bool(record.parent),
                is_change=bool(record.changes),
                is_brokered=record.grant in BROKERED.values(),
            )
        )

    def note_end(record: DecisionRecord, end: CommandEnd) -> None:
        if record.verdict == Verdict.ISOLATE and not end.has_run:
            on_decision_made(
                TrialDecision(
                    command=record.command,
                    verdict=Verdict.DENY.value,
                    rule=NOT_STARTED,
                    milliseconds=0,
                )
            )

    for directory in (host.config, host.run_directory):
        emptied(directory)
    traces = Traces(mark=f"sandbox-{uuid.uuid4().hex}", tool_log=host.run_directory / "tools")
    request = replace(request_for(host, tier, address, traces), changes_nothing=changes_nothing)
    with in_sandbox(request, on_decision=note, on_end=note_end, review=spare_the_host) as sandbox:
        environment = cli_environment(
            host.run_environment,
            home=host.home,
            config_directory=host.config,
            api_retries=settings.CLAUDEOPS_API_RETRIES,
            traces=traces,
        )
        yield SandboxedCli(
            sandbox=sandbox,
            environment={**environment, **sandbox.environment},
            words={
                "config": str(host.config),
                "run": str(host.run_directory),
                "proxy": sandbox.environment.get("ANTHROPIC_BASE_URL", address),
            },
        )


def request_for(host: ProofHost, tier: Tier, address: str, traces: Traces) -> SandboxRequest:
    login = {
        API_KEY: host.run_environment[API_KEY],
        "ANTHROPIC_BASE_URL": address,
    }
    return SandboxRequest(
        tier=tier,
        workdir=host.workdir,
        config_directory=host.config,
        run_directory=host.run_directory,
        run_environment=host.run_environment,
        login=login,
        traces=traces,
        other_watches=(host.other_watch,),
        # The /var/tmp of a sandbox would hide them, and the proof would be meaningless.
        watch_grants=f"read:{host.outside} read:{host.programs}",
        stand_ins=(host.programs,),
    )


def emptied(directory: Path) -> None:
    """Make a directory anew, without anything in it."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(mode=0o700, parents=True)
