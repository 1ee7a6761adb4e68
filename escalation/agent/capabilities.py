"""What this CLI really does, settled by experiment.

Versions differ in ways that cost money: some report the cost of the run, others of the whole
conversation. Guessing from the figures goes wrong, so the binary is run against the scripted API
and watched. The finding is kept in the state directory under the binary's fingerprint.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import uuid
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent.binary import ClaudeBinary, fingerprint_of
from escalation.agent.environment import cli_environment
from escalation.agent.stream import LineSplitter, StreamFacts, parse_line
from escalation.rehearsal.drills.messages_api import ScriptedApi
from escalation.rehearsal.drills.scenario import Reply, Scenario

# Versions whose behaviour has been studied; any other is judged by the probe alone.
STUDIED_VERSIONS = ("2.1.197", "2.1.325")
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
RUN_PATIENCE_SECONDS = 60
FIRST_WORDS, LATER_WORDS = "the-first-appended-words", "the-later-appended-words"


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    version: str
    works: bool
    """A fresh run and a resumed one both ended well against the scripted API."""
    keeps_id_on_resume: bool
    can_fork: bool
    accumulates_on_resume: bool
    accumulates_on_fork: bool
    states_own_share: bool
    """Each result line tells what this run alone used."""
    appended_prompt_sticks: bool
    """A later run's appended system prompt is ignored in favour of the first one's."""
    missing_flags: tuple[str, ...]
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        return self.works and not self.missing_flags

    @property
    def verdict(self) -> str:
        if not self.works:
            return f"unusable: {self.problem}"
        if self.missing_flags:
            return f"unusable: it does not know {', '.join(self.missing_flags)}"
        studied = any(self.version.startswith(version) for version in STUDIED_VERSIONS)
        known = "studied" if studied else "not seen before, judged by the probe alone"
        cost = "cumulative" if self.accumulates_on_fork else "per run"
        return f"usable ({known}); cost is reported {cost}"


def capabilities_of(binary: ClaudeBinary) -> Capabilities:
    return _probed(binary, fingerprint_of(Path(binary.path)))


def forget_capabilities(binary: ClaudeBinary) -> None:
    """Probe again at the next question."""
    _probed.cache_clear()
    _kept(fingerprint_of(Path(binary.path))).unlink(missing_ok=True)


@lru_cache(maxsize=8)
def _probed(binary: ClaudeBinary, fingerprint: str) -> Capabilities:
    kept = _kept(fingerprint)
    try:
        found = json.loads(kept.read_text())
        return Capabilities(**{**found, "missing_flags": tuple(found["missing_flags"])})
    except (OSError, ValueError, TypeError, KeyError):
        capabilities = probe(binary)
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(capabilities)))
    return capabilities


def _kept(fingerprint: str) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "cli" / f"{fingerprint}.capabilities.json"


def probe(binary: ClaudeBinary) -> Capabilities:
    """Three short runs: fresh, resumed with other words, forked."""
    # The same usage for every call, so that the cost of a run counts its calls.
    reply = Reply(say="ok", times=99, usage={"input_tokens": 10_000, "output_tokens": 10})
    scenario = Scenario(name="probe", title="probe", tiers={1: (reply,)}, aside=(reply,))
    with (
        tempfile.TemporaryDirectory(prefix="claudeops-probe-") as directory,
        ScriptedApi(scenario).serving() as api,
    ):
        runs = _ProbeRuns(binary, Path(directory), api)
        first_id, fork_id = str(uuid.uuid4()), str(uuid.uuid4())
        appended = "--append-system-prompt"
        first = runs.run("--session-id", first_id, appended, FIRST_WORDS)
        if not first.facts.result:
            return _unusable(binary, f"a fresh run printed no result ({first.complaint})")
        resumed = runs.run("--resume", first_id, appended, LATER_WORDS)
        last = api.requests[-1].body if api.requests else {}
        heard_later = LATER_WORDS in json.dumps(last.get("system", ""))
        forked = (
            runs.run("--resume", first_id, "--fork-session", "--session-id", fork_id)
            if binary.can_fork
            else resumed
        )
    if not resumed.facts.result:
        return _unusable(binary, f"a resumed run printed no result ({resumed.complaint})")
    return Capabilities(
        version=binary.version,
        works=first.went_well and resumed.went_well,
        keeps_id_on_resume=resumed.facts.session_id == first_id,
        can_fork=binary.can_fork and forked.facts.session_id == fork_id,
        accumulates_on_resume=_reports_more_than_its_own(resumed, first),
        accumulates_on_fork=_reports_more_than_its_own(forked, first),
        states_own_share="model_usage_since_last_result" in resumed.facts.result,
        appended_prompt_sticks=not heard_later,
        missing_flags=missing_flags(binary),
        problem="; ".join(run.complaint for run in (first, resumed) if not run.went_well),
    )


def missing_flags(binary: ClaudeBinary) -> tuple[str, ...]:
    return tuple(flag for flag in NEEDED_FLAGS if flag not in binary.flags)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ProbeRun:
    facts: StreamFacts
    exit_code: int
    complaint: str

    @property
    def went_well(self) -> bool:
        return self.exit_code == 0 and self.facts.result.get("is_error") is False

    @property
    def reported(self) -> Decimal:
        return self.facts.reported_cost_usd or Decimal(0)


class _ProbeRuns:
    def __init__(self, binary: ClaudeBinary, directory: Path, api: ScriptedApi) -> None:
        self._binary = binary
        self._directory = directory
        self._environment = cli_environment(
            {"ANTHROPIC_API_KEY": "probe", "ANTHROPIC_BASE_URL": api.base_url("probe", 1)},
            home=directory,
            config_directory=directory / "claude",
            api_retries=0,
        )

    def run(self, *flags: str) -> _ProbeRun:
        argv = [
            *(self._binary.path, "-p", *flags, "--model", "haiku"),
            *("--output-format", "stream-json", "--verbose", "--setting-sources", ""),
        ]
        try:
            ended = subprocess.run(
                argv,
                cwd=self._directory,
                env=self._environment,
                input=b"Say ok.",
                capture_output=True,
                timeout=RUN_PATIENCE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return _ProbeRun(facts=StreamFacts(), exit_code=-1, complaint=str(error))
        complaint = ended.stderr.decode("utf-8", "replace").strip()[:300]
        return _ProbeRun(
            facts=facts_in(ended.stdout),
            exit_code=ended.returncode,
            complaint=complaint or f"exit code {ended.returncode}",
        )


def facts_in(output: bytes) -> StreamFacts:
    splitter, facts = LineSplitter(), StreamFacts()
    for line in [*splitter.feed(output), *splitter.rest()]:
        parsed = parse_line(line)
        if not parsed.is_noise:
            facts.observe(parsed.payload)
    return facts


def _reports_more_than_its_own(run: _ProbeRun, earlier: _ProbeRun) -> bool:
    """Every run makes the same call, so a report near twice the first one's is a total."""
    return run.reported > earlier.reported * Decimal("1.5")


def _unusable(binary: ClaudeBinary, problem: str) -> Capabilities:
    return Capabilities(
        version=binary.version,
        works=False,
        keeps_id_on_resume=False,
        can_fork=False,
        accumulates_on_resume=False,
        accumulates_on_fork=False,
        states_own_share=False,
        appended_prompt_sticks=False,
        missing_flags=missing_flags(binary),
        problem=problem,
    )


def as_data(binary: ClaudeBinary, capabilities: Capabilities) -> dict[str, Any]:
    return {
        "path": binary.path,
        "source": binary.source,
        **asdict(capabilities),
        "verdict": capabilities.verdict,
    }
