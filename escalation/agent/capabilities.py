"""What this CLI really does, settled by experiment.

Versions differ in ways that cost money: some report the cost of the run, others of the whole
conversation. Guessing goes wrong, so the binary is run against an API of our own and watched
(`probe`). The finding is kept in the state directory under the binary's fingerprint.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent.binary import ClaudeBinary, fingerprint_of

# Versions whose behaviour has been studied; any other is judged by the probe alone.
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
# A probe that failed may only have met a busy machine: it is believed for so long.
TRY_AGAIN_SECONDS = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Capabilities:
    version: str
    works: bool
    """A fresh run, a resumed one and a forked one all ended well against the probe's API."""
    keeps_id_on_resume: bool = False
    can_fork: bool = False
    accumulates_on_resume: bool | None = None
    """Whether a resumed run reports the conversation's cost; None: neither that nor its own."""
    accumulates_on_fork: bool | None = None
    states_own_share: bool = False
    """Each result line tells what this run alone used."""
    appended_prompt_sticks: bool = False
    """A later run's appended system prompt is ignored in favour of the first one's."""
    missing_flags: tuple[str, ...] = ()
    problem: str = ""

    @property
    def is_usable(self) -> bool:
        return self.works and not self.missing_flags

    @property
    def is_settled(self) -> bool:
        """The probe answered every question, so there is no need to ask again."""
        costs = (self.accumulates_on_resume, self.accumulates_on_fork)
        return self.works and (self.states_own_share or None not in costs)

    @property
    def verdict(self) -> str:
        if self.missing_flags:
            return f"unusable: it does not know {', '.join(self.missing_flags)}"
        if not self.works:
            return f"unusable: {self.problem}"
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
    """From memory, else from the state directory, else by experiment, which takes seconds."""
    fingerprint = fingerprint_of(Path(binary.path))
    known = known_capabilities(binary)
    if known is None:
        known = find_out(binary)
        if known.is_settled:
            _store(known, fingerprint)
    _remember(binary, fingerprint, known)
    return known


def known_capabilities(binary: ClaudeBinary) -> Capabilities | None:
    """What an earlier experiment found; None where none was made with this very binary."""
    fingerprint = fingerprint_of(Path(binary.path))
    return _recall(binary, fingerprint) or _read(fingerprint)


def find_out(binary: ClaudeBinary) -> Capabilities:
    if missing := missing_flags(binary):
        return Capabilities(version=binary.version, works=False, missing_flags=missing)
    # What the probe finds are our Capabilities: at the top, the two would import each other.
    from escalation.agent.probe import probe

    return probe(binary)


def missing_flags(binary: ClaudeBinary) -> tuple[str, ...]:
    return tuple(flag for flag in NEEDED_FLAGS if flag not in binary.flags)


def forget_capabilities(binary: ClaudeBinary) -> None:
    """Probe again at the next question."""
    _remembered.clear()
    _kept(fingerprint_of(Path(binary.path))).unlink(missing_ok=True)


_remembered: dict[tuple[ClaudeBinary, str], tuple[float, Capabilities]] = {}


def _recall(binary: ClaudeBinary, fingerprint: str) -> Capabilities | None:
    since, known = _remembered.get((binary, fingerprint), (0.0, None))
    if known is None or known.is_settled or time.monotonic() - since < TRY_AGAIN_SECONDS:
        return known
    return None


def _remember(binary: ClaudeBinary, fingerprint: str, known: Capabilities) -> None:
    if _recall(binary, fingerprint) is None:
        _remembered[binary, fingerprint] = (time.monotonic(), known)


def _read(fingerprint: str) -> Capabilities | None:
    try:
        found = json.loads(_kept(fingerprint).read_text())
        return Capabilities(**{**found, "missing_flags": tuple(found["missing_flags"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _store(known: Capabilities, fingerprint: str) -> None:
    """By renaming, so that another worker never reads half of it."""
    kept = _kept(fingerprint)
    kept.parent.mkdir(parents=True, exist_ok=True)
    written = kept.with_suffix(f".{os.getpid()}")
    written.write_text(json.dumps(asdict(known)))
    written.replace(kept)


def _kept(fingerprint: str) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "cli" / f"{fingerprint}.capabilities.json"
