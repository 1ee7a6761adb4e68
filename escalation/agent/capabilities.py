"""Capabilities of the installed CLI, found by running it against a local API (`probe`).

Some versions report the cost of the run, others that of the whole conversation. The result is
stored in the state directory under the fingerprint of the binary.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from django.conf import settings

from escalation.agent.api_request import (
    BETAS,
    RequestPolicy,
    judge_message_request,
    split_betas,
)
from escalation.agent.binary import (
    FORK_FLAG,
    ClaudeBinary,
    RunRequest,
    build_argv,
    cli_environment,
    fingerprint_of,
)
from escalation.agent.messages_api import (
    NO_USAGE,
    MessagesHandler,
    ScriptedAnswer,
    is_auxiliary,
    serve_messages,
)
from escalation.agent.stream import LineSplitter, StreamFacts, Tokens, parse_line
from escalation.tiers import DEFAULT_TIERS, get_tier
from sessions_app.credentials import API_KEY
from sessions_app.tiers import tier_numbers

# Other versions are judged by the probe alone.
STUDIED_VERSIONS = ("2.0.77", "2.1.197", "2.1.325")
NEEDED_FLAGS = (
    "--allowedTools",
    "--disallowedTools",
    "--json-schema",
    "--max-budget-usd",
    "--model",
    "--output-format",
    "--permission-mode",
    "--resume",
    "--session-id",
    "--setting-sources",
    "--settings",
    "--strict-mcp-config",
    "--tools",
    "--verbose",
)
# A probe may fail because the machine is busy: its result is valid for this time.
TRY_AGAIN_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    version: str
    works: bool
    """A new, a resumed and a forked run succeeded against the API of the probe."""
    keeps_id_on_resume: bool = False
    can_fork: bool = False
    accumulates_on_resume: bool | None = None
    """A resumed run reports the cost of the conversation; None if this is unknown."""
    accumulates_on_fork: bool | None = None
    states_own_share: bool = False
    """Each result line has the usage of this run alone."""
    appended_prompt_sticks: bool = False
    """The appended system prompt of the first run is used for later runs, too."""
    missing_flags: tuple[str, ...] = ()
    refused_by_api_proxy: tuple[str, ...] = ()
    """Parts of its requests that the API proxy does not know."""
    betas_removed: tuple[str, ...] = ()
    """Values of `anthropic-beta` that the API proxy does not pass on."""
    prices: Mapping[str, str] = field(default_factory=dict)
    """Dollars for an input token by model, by its alias and its full name; empty if unknown."""
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        return self.works and not self.missing_flags and not self.refused_by_api_proxy

    @property
    def is_settled(self) -> bool:
        """True if the probe answered every question and need not be repeated."""
        costs = (self.accumulates_on_resume, self.accumulates_on_fork)
        return self.is_usable and (self.states_own_share or None not in costs)

    def price_of(self, model: str) -> Decimal | None:
        """Return the dollars for an input token of a model; None if the probe did not learn it."""
        price = self.prices.get(model)
        return Decimal(price) if price else None

    @property
    def verdict(self) -> str:
        if self.missing_flags:
            return f"unusable: it does not know {', '.join(self.missing_flags)}"
        if not self.works:
            return f"unusable: {self.problem}"
        if self.refused_by_api_proxy:
            refused = ", ".join(self.refused_by_api_proxy)
            return f"unusable: the API proxy refuses its requests ({refused}); upgrade Claude Ops"
        studied = self.version.split(" ")[0] in STUDIED_VERSIONS
        known = "studied" if studied else "not seen before, judged by the probe alone"
        return f"usable ({known}); {self._cost_words}"

    def as_data(self, binary: ClaudeBinary) -> dict[str, Any]:
        about = {"path": binary.path, "source": binary.source}
        return {**about, **asdict(self), "verdict": self.verdict}

    @property
    def _cost_words(self) -> str:
        if self.states_own_share:
            return "cost is reported cumulative, with each run's own share"
        if self.accumulates_on_fork is None:
            return "cost is reported in an unknown way: that of resumed runs stays unknown"
        return f"cost is reported {'cumulative' if self.accumulates_on_fork else 'per run'}"


def capabilities_of(binary: ClaudeBinary) -> Capabilities:
    """Return capabilities from memory, the state directory or a new probe, which takes seconds."""
    fingerprint = fingerprint_of(Path(binary.path))
    known = known_capabilities(binary)
    if known is None or _models_without_price(known):
        known = with_prices(binary, find_out(binary) if known is None else known)
        if known.is_settled:
            _store(known, fingerprint)
        _forget(binary, fingerprint)
    _remember(binary, fingerprint, known)
    return known


def _models_without_price(known: Capabilities) -> list[str]:
    """Return the models of the tiers whose price was not asked for; a change of settings adds
    some.
    """
    if not known.is_usable:
        return []
    models = dict.fromkeys(get_tier(number).model for number in tier_numbers())
    return [model for model in models if model not in known.prices]


def known_capabilities(binary: ClaudeBinary) -> Capabilities | None:
    """Return the result of an earlier probe of this binary, if there is one."""
    fingerprint = fingerprint_of(Path(binary.path))
    return _recall(binary, fingerprint) or _read(fingerprint)


def find_out(binary: ClaudeBinary) -> Capabilities:
    if missing := missing_flags(binary):
        return Capabilities(version=binary.version, works=False, missing_flags=missing)
    return probe(binary)


def missing_flags(binary: ClaudeBinary) -> tuple[str, ...]:
    return tuple(flag for flag in NEEDED_FLAGS if flag not in binary.flags)


def forget_capabilities(binary: ClaudeBinary) -> None:
    """Remove the stored result, so that the next call probes again."""
    _remembered.clear()
    _kept(fingerprint_of(Path(binary.path))).unlink(missing_ok=True)


_remembered: dict[tuple[ClaudeBinary, str], tuple[float, Capabilities]] = {}


def _recall(binary: ClaudeBinary, fingerprint: str) -> Capabilities | None:
    since, known = _remembered.get((binary, fingerprint), (0.0, None))
    if known is None or known.is_settled or time.monotonic() - since < TRY_AGAIN_SECONDS:
        return known
    return None


def _forget(binary: ClaudeBinary, fingerprint: str) -> None:
    _remembered.pop((binary, fingerprint), None)


def _remember(binary: ClaudeBinary, fingerprint: str, known: Capabilities) -> None:
    if _recall(binary, fingerprint) is None:
        _remembered[binary, fingerprint] = (time.monotonic(), known)


def _read(fingerprint: str) -> Capabilities | None:
    try:
        stored = json.loads(_kept(fingerprint).read_text())
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in stored.items()
        }
        return Capabilities(**found)
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def _store(known: Capabilities, fingerprint: str) -> None:
    """Write the file by renaming, so that another worker never reads half of it."""
    kept = _kept(fingerprint)
    kept.parent.mkdir(parents=True, exist_ok=True)
    written = kept.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(asdict(known)))
    written.replace(kept)


def _kept(fingerprint: str) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "cli" / f"{fingerprint}.capabilities.json"


# The probe: three short runs against a local API.
#
# Auxiliary calls of the CLI (warm-up, titles) cost nothing, and the answer of each run has its own
# weight, so that the cost of a run and of its conversation can never be equal.

RUN_TIMEOUT_SECONDS = 60
PROMPT = "Say ok to the probe."
FIRST_WORDS, LATER_WORDS = "the-first-appended-words", "the-later-appended-words"
# Weights of the runs: no sum of some of them equals another weight.
FIRST, RESUMED, FORKED = 1, 3, 7
TOLERANCE = Decimal("0.001")


@dataclass(slots=True)
class ProbeApi:
    """Gives the same short answer to every request; only the call of the run has a cost."""

    weight: int = 0
    system_prompts: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    betas: set[str] = field(default_factory=set)

    def judge(self, request: dict[str, Any], betas: str) -> None:
        """Note what the API proxy would refuse or remove."""
        if refusal := judge_message_request(request, RequestPolicy()):
            self.refused.add(refusal.where)
        self.betas.update(split_betas(betas))

    def answer(self, request: dict[str, Any]) -> ScriptedAnswer:
        if is_auxiliary(request) or PROMPT not in _newest_words(request):
            return ScriptedAnswer(say="ok", usage=NO_USAGE)
        self.system_prompts.append(json.dumps(request.get("system", "")))
        tokens = usage_of(self.weight)
        usage = {"input_tokens": tokens.input, "output_tokens": tokens.output}
        return ScriptedAnswer(say="ok", usage={**NO_USAGE, **usage})


def _newest_words(request: dict[str, Any]) -> str:
    """Return the last user message; newer versions add system messages behind it."""
    said = [message for message in request["messages"] if message.get("role") == "user"]
    return json.dumps(said[-1:])


class _ProbeHandler(MessagesHandler):
    def answer_to(self, request: dict[str, Any]) -> None:
        api = cast(ProbeApi, self.player)
        api.judge(request, self.headers.get("anthropic-beta", ""))
        self.send_answer(api.answer(request), request)


class ProbeFailed(Exception):
    """A run of the probe failed."""


def with_prices(binary: ClaudeBinary, known: Capabilities) -> Capabilities:
    """Add the prices of the tiers' models that are not known, with one run for each model."""
    missing = _models_without_price(known)
    if not missing:
        return known
    api = ProbeApi()
    with (
        tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory,
        serve_messages(_ProbeHandler, api) as port,
    ):
        runs = ProbeRuns(Path(directory), api, port)
        found = [_prices(binary, runs, model) for model in missing]
    together = {name: price for prices in found for name, price in prices.items()}
    return replace(known, prices={**known.prices, **together})


def _prices(binary: ClaudeBinary, runs: ProbeRuns, model: str) -> dict[str, str]:
    """Return the price of a model by its alias and its full name; empty if the run fails."""
    request = _request(str(uuid.uuid4()))
    request = replace(request, tier=replace(request.tier, model=model))
    try:
        return _price_in(runs.run("priced", binary, FIRST, request, FIRST_WORDS), model)
    except ProbeFailed:
        return {model: ""}


def _price_in(first: ProbeRun, model: str) -> dict[str, str]:
    """Read the price from the first run of a conversation."""
    reported = first.facts.reported_cost_usd
    price = str(reported / usage_of(FIRST).weighted) if reported else ""
    return {first.facts.model or model: price, model: price}


def usage_of(weight: int) -> Tokens:
    """Return the tokens of a run of the probe."""
    return Tokens(input=1000 * weight, output=10 * weight)


def probe(binary: ClaudeBinary) -> Capabilities:
    api = ProbeApi()
    with (
        tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory,
        serve_messages(_ProbeHandler, api) as port,
    ):
        try:
            found = _watched(binary, ProbeRuns(Path(directory), api, port), api)
        except ProbeFailed as failed:
            found = Capabilities(version=binary.version, works=False, problem=str(failed))
    return replace(
        found,
        refused_by_api_proxy=tuple(sorted(api.refused)),
        betas_removed=tuple(sorted(api.betas - BETAS.keys())),
    )


def _watched(binary: ClaudeBinary, runs: ProbeRuns, api: ProbeApi) -> Capabilities:
    """Make a new run, a resumed one with another system prompt, and a forked one of Tier 2."""
    beginning, own_id = _request(str(uuid.uuid4())), str(uuid.uuid4())
    resuming = _request(own_id, resumes=beginning.session_id)
    escalating = replace(
        resuming, tier=replace(resuming.tier, allowed_tools=DEFAULT_TIERS[1].allowed_tools)
    )
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
        prices=_price_in(first, beginning.tier.model),
    )
    if not binary.can_fork:
        return found
    forked = runs.run("forked", binary, FORKED, escalating, LATER_WORDS)
    # A fork includes the resumed run if that kept the id of the conversation.
    totals = (FIRST + FORKED, FIRST + RESUMED + FORKED)
    return replace(
        found,
        can_fork=forked.facts.session_id == own_id,
        accumulates_on_fork=accumulates(first, forked, own=FORKED, totals=totals),
    )


def accumulates(
    first: ProbeRun, later: ProbeRun, *, own: int, totals: tuple[int, ...]
) -> bool | None:
    """Return whether the later run reports a total; None if neither that nor its own cost."""
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
    """Runs the binary in a temporary directory with the command line of a real run."""

    def __init__(self, directory: Path, api: ProbeApi, port: int) -> None:
        self._directory = directory
        self._api = api
        self._environment = {
            **cli_environment(
                # For a CLI that is a script.
                {"PATH": os.environ.get("PATH", "")},
                home=directory,
                config_directory=directory / "claude",
                api_retries=0,
            ),
            API_KEY: "probe",
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
                timeout=RUN_TIMEOUT_SECONDS,
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


# Trying the credentials with one short question to the API.

TIMEOUT_SECONDS = 90
QUESTION = "Answer with the one word ok."
LONGEST_ANSWER = 300
LET_IN = "it works"
NO_ANSWER = f"the API gave no answer within {TIMEOUT_SECONDS} s"


def try_login(binary: ClaudeBinary, login: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether the API accepts the credentials, and the answer. Nothing is stored."""
    argv = [
        *(binary.path, "-p", "--model", DEFAULT_TIERS[0].model),
        *("--max-turns", "1", "--output-format", "json"),
    ]
    with tempfile.TemporaryDirectory(prefix="claudeops-login-") as directory:
        place = Path(directory)
        environment = cli_environment(
            os.environ, home=place, config_directory=place / "config", api_retries=0
        )
        try:
            ended = subprocess.run(
                argv,
                input=QUESTION,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_SECONDS,
                check=False,
                cwd=place,
                env={**environment, **login},
            )
        except subprocess.TimeoutExpired:
            return False, NO_ANSWER
        except OSError as error:
            return False, f"the CLI could not be started: {error}"
    return _judged(ended)


def _judged(ended: subprocess.CompletedProcess[str]) -> tuple[bool, str]:
    result = _result(ended.stdout)
    if ended.returncode == 0 and result.get("is_error") is False:
        return True, LET_IN
    said = str(result.get("result") or ended.stderr or ended.stdout).strip()
    return False, f"it does not work: {said[:LONGEST_ANSWER] or 'the CLI said nothing'}"


def _result(printed: str) -> dict[str, Any]:
    try:
        result = json.loads(printed)
    except ValueError:
        return {}
    return result if isinstance(result, dict) else {}
