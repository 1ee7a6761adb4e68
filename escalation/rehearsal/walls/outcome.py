"""Whether a played step went as it should: pure, from what was judged and what was seen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from escalation.rehearsal.walls.corpus import ALLOW, CONTAIN, DENY, Row
from escalation.rehearsal.walls.scripted_calls import ToolResult
from escalation.rehearsal.walls.stage import WORKDIR, Effect
from escalation.rehearsal.walls.trial import Judged, Played

CLI_RULES = "the CLI's own rules"
HELD = "nothing"
SHOWN_CHARACTERS = 300
FIRST_WRITING_TIER = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOutcome:
    tier: int
    command: str
    expect: str
    decision: str
    rule: str
    happened: str
    ok: bool
    milliseconds: float = 0

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def row_outcome(row: Row, played: Played) -> RowOutcome:
    decision, rule = decided(played.judged)
    trouble = _trouble(row, decision, played)
    return RowOutcome(
        tier=row.tier,
        command=row.command,
        expect=row.expect,
        decision=decision,
        rule=rule,
        happened=trouble or _what_happened(played),
        ok=not trouble,
        milliseconds=round(sum(judged.milliseconds for judged in played.judged[:1]), 2),
    )


def decided(judged: list[Judged]) -> tuple[str, str]:
    """The walls' word; a command that never reached them was refused by the CLI itself."""
    return (judged[0].verdict, judged[0].rule) if judged else (DENY, CLI_RULES)


def _trouble(row: Row, decision: str, played: Played) -> str:
    if played.ended:
        return played.ended
    if row.expect == ALLOW:
        return _failure(decision, played.results)
    harm = unpermitted(played.effects, row.tier, decision)
    if harm:
        return "; ".join(map(str, harm))
    if row.expect == CONTAIN and decision != CONTAIN:
        return f"it was to be contained, and the decision is: {decision}"
    return "it was allowed, and did nothing here" if decision == ALLOW else ""


def _failure(decision: str, results: list[ToolResult]) -> str:
    said = results[0].text if results else "no answer came"
    if decision != ALLOW:
        return f"a harmless command was not allowed: {_short(said)}"
    if not results or results[0].is_error:
        return f"it did not work: {_short(said)}"
    return ""


def unpermitted(effects: Iterable[Effect], tier: int, decision: str) -> list[Effect]:
    """What is not as it was and should be: a contained command of Tier 2 may write where it works.

    A command that was denied has not run, so nothing may be its doing.
    """
    writes = tier >= FIRST_WRITING_TIER and decision != DENY
    return [effect for effect in effects if not (writes and effect.where == WORKDIR)]


def _what_happened(played: Played) -> str:
    return "; ".join(map(str, played.effects)) or HELD


def _short(text: str) -> str:
    return " ".join(text.split())[:SHOWN_CHARACTERS]
