"""The experiment that settles what a CLI does: three short runs against an API of our own.

How cost is reported is told by what the API charges. The CLI's own calls (warming up, titles: more
of them in some versions than in others) cost nothing, and each run's one answer has a weight of its
own, so that "what this run used" and "what the conversation used" cannot be the same figure.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import uuid
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from escalation.agent.argv import RunRequest, build_argv
from escalation.agent.binary import FORK_FLAG, ClaudeBinary
from escalation.agent.capabilities import Capabilities
from escalation.agent.environment import cli_environment
from escalation.agent.message_stream import NO_USAGE, Answer
from escalation.agent.messages_server import MessagesHandler, is_auxiliary, serve_messages
from escalation.agent.stream import LineSplitter, StreamFacts, parse_line
from escalation.tiers import DEFAULT_TIERS

RUN_PATIENCE_SECONDS = 60
PROMPT = "Say ok to the probe."
FIRST_WORDS, LATER_WORDS = "the-first-appended-words", "the-later-appended-words"
# What each run's answer weighs: no sum of some of them is another one.
FIRST, RESUMED, FORKED = 1, 3, 7
TOLERANCE = Decimal("0.001")


@dataclass(slots=True)
class ProbeApi:
    """The same short answer to everything; only the run's own call is charged for."""

    weight: int = 0
    system_prompts: list[str] = field(default_factory=list)

    def answer(self, request: dict[str, Any]) -> Answer:
        if is_auxiliary(request) or PROMPT not in _newest_words(request):
            return Answer(say="ok", usage=NO_USAGE)
        self.system_prompts.append(json.dumps(request.get("system", "")))
        usage = {"input_tokens": 1000 * self.weight, "output_tokens": 10 * self.weight}
        return Answer(say="ok", usage={**NO_USAGE, **usage})


def _newest_words(request: dict[str, Any]) -> str:
    """What was said last from the user's side; newer versions add notes of their own behind it."""
    said = [message for message in request["messages"] if message.get("role") == "user"]
    return json.dumps(said[-1:])


class _Handler(MessagesHandler):
    def answer_to(self, request: dict[str, Any]) -> None:
        self.send_answer(cast(ProbeApi, self.player).answer(request), request)


class ProbeFailed(Exception):
    """A run of the probe did not end well; the words say which and how."""


def probe(binary: ClaudeBinary) -> Capabilities:
    api = ProbeApi()
    with (
        tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory,
        serve_messages(_Handler, api) as port,
    ):
        try:
            return _watched(binary, ProbeRuns(Path(directory), api, port), api)
        except ProbeFailed as failed:
            return Capabilities(version=binary.version, works=False, problem=str(failed))


def _watched(binary: ClaudeBinary, runs: ProbeRuns, api: ProbeApi) -> Capabilities:
    """Fresh, resumed with other words, forked."""
    beginning, own_id = _request(str(uuid.uuid4())), str(uuid.uuid4())
    resuming = _request(own_id, resumes=beginning.session_id)
    first = runs.run("fresh", binary, FIRST, beginning, FIRST_WORDS)
    resumed = runs.run("resumed", _without_fork(binary), RESUMED, resuming, LATER_WORDS)
    heard_later = LATER_WORDS in "".join(api.system_prompts[-1:])
    on_resume = accumulates(first, resumed, own=RESUMED, totals=(FIRST + RESUMED,))
    found = Capabilities(
        version=binary.version,
        works=True,
        keeps_id_on_resume=resumed.facts.session_id == beginning.session_id,
        accumulates_on_resume=on_resume,
        accumulates_on_fork=on_resume,
        states_own_share=resumed.facts.own_share is not None,
        appended_prompt_sticks=not heard_later,
    )
    if not binary.can_fork:
        return found
    forked = runs.run("forked", binary, FORKED, resuming, LATER_WORDS)
    # What is forked holds the resumed run too where that kept the conversation's id.
    totals = (FIRST + FORKED, FIRST + RESUMED + FORKED)
    return replace(
        found,
        can_fork=forked.facts.session_id == own_id,
        accumulates_on_fork=accumulates(first, forked, own=FORKED, totals=totals),
    )


def accumulates(
    first: ProbeRun, later: ProbeRun, *, own: int, totals: tuple[int, ...]
) -> bool | None:
    """Whether the later run reports a total; None where its figure is neither that nor its own."""
    unit, reported = first.facts.reported_cost_usd, later.facts.reported_cost_usd
    if not unit or reported is None:
        return None
    if any(_is(reported, weight * unit / FIRST) for weight in totals):
        return True
    return False if _is(reported, own * unit / FIRST) else None


def _is(reported: Decimal, expected: Decimal) -> bool:
    return abs(reported - expected) <= expected * TOLERANCE


def _request(session_id: str, *, resumes: str | None = None) -> RunRequest:
    tier = DEFAULT_TIERS[0]
    return RunRequest(
        tier=tier,
        session_id=session_id,
        resumes=resumes,
        report_schema=None,
        max_budget_usd=tier.max_budget_usd,
    )


def _without_fork(binary: ClaudeBinary) -> ClaudeBinary:
    return replace(binary, flags=tuple(flag for flag in binary.flags if flag != FORK_FLAG))


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRun:
    facts: StreamFacts
    exit_code: int
    said: str

    @property
    def went_well(self) -> bool:
        return self.exit_code == 0 and self.facts.result.get("is_error") is False

    @property
    def complaint(self) -> str:
        how = "did not end well" if self.facts.result else "printed no result"
        return f"{how} ({self.said})"


class ProbeRuns:
    """Runs of one binary in a directory of their own, with the command line of a real run."""

    def __init__(self, directory: Path, api: ProbeApi, port: int) -> None:
        self._directory = directory
        self._api = api
        self._environment = {
            **cli_environment(
                # A CLI that is a script finds its interpreter there.
                {"PATH": os.environ.get("PATH", "")},
                home=directory,
                config_directory=directory / "claude",
                api_retries=0,
            ),
            "ANTHROPIC_API_KEY": "probe",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{port}",
        }

    def run(
        self, name: str, binary: ClaudeBinary, weight: int, request: RunRequest, words: str
    ) -> ProbeRun:
        self._api.weight = weight
        program, *flags = build_argv(binary, request)
        ended = self._ended([program, "--append-system-prompt", words, *flags])
        if not ended.went_well:
            raise ProbeFailed(f"a {name} run {ended.complaint}")
        return ended

    def _ended(self, argv: list[str]) -> ProbeRun:
        try:
            ended = subprocess.run(
                argv,
                cwd=self._directory,
                env=self._environment,
                input=PROMPT.encode(),
                capture_output=True,
                timeout=RUN_PATIENCE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return ProbeRun(facts=StreamFacts(), exit_code=-1, said=str(error))
        said = ended.stderr.decode("utf-8", "replace").strip()[:300]
        return ProbeRun(
            facts=facts_in(ended.stdout),
            exit_code=ended.returncode,
            said=said or f"exit code {ended.returncode}",
        )


def facts_in(output: bytes) -> StreamFacts:
    splitter, facts = LineSplitter(), StreamFacts()
    for line in [*splitter.feed(output), *splitter.rest()]:
        parsed = parse_line(line)
        if not parsed.is_noise:
            facts.observe(parsed.payload)
    return facts
