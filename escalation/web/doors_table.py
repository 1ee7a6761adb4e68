"""The doors of a watch as a table: which are open at which tier, and what a tier adds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from escalation.gate import doors as gate
from escalation.tiers import HIGHEST_TIER, LOWEST_TIER, get_tier


@dataclass(frozen=True, kw_only=True, slots=True)
class DoorRow:
    door: str
    meaning: str
    tiers: tuple[bool, ...]
    """Whether it is open, tier by tier."""

    @property
    def cells(self) -> tuple[tuple[bool, str], ...]:
        """Open or not, and what that is against the tier below."""
        below = (self.tiers[0], *self.tiers)
        return tuple(
            (now, "" if now == before else "opened" if now else "closed")
            for now, before in zip(self.tiers, below, strict=False)
        )


def doors_table(watch_words: str) -> tuple[DoorRow, ...]:
    return table_of([open_at(tier, watch_words) for tier in _tiers()])


def table_of(open_by_tier: Sequence[Sequence[str]]) -> tuple[DoorRow, ...]:
    """Every known door, and every path that some tier opens."""
    paths = [word for words in open_by_tier for word in words if word not in gate.NAMES]
    return tuple(
        DoorRow(
            door=word,
            meaning=gate.MEANING.get(word) or _meaning_of_path(word),
            tiers=tuple(word in words for words in open_by_tier),
        )
        for word in (*gate.NAMES, *dict.fromkeys(paths))
    )


def open_at(tier: int, watch_words: str) -> tuple[str, ...]:
    """What a run of this tier could open, in an operator's words."""
    return gate.doors_for(tier, get_tier(tier).doors, watch_words).words()


def problems_in(words: str) -> tuple[str, ...]:
    """A sentence for each word that is no door."""
    return gate.parse_doors(words)[1]


def _meaning_of_path(word: str) -> str:
    kind, _colon, path = word.partition(":")
    return f"{'writing' if kind == 'write' else 'reading'} in {path}"


def _tiers() -> range:
    return range(LOWEST_TIER, HIGHEST_TIER + 1)
