"""All that a judgement has found in one command."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Findings:
    denials: list[tuple[str, str]] = field(default_factory=list)
    """Rule and reason of each."""
    unknown: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """What is understood only as long as no door is open."""
    doors: set[str] = field(default_factory=set)
    wanting_doors: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """Those of the actions that change something, with all of their words."""
    may_repeat: bool = False
    asks: list[tuple[str, str]] = field(default_factory=list)
    """What a person has to approve: the rule, and the part of the command that it is about."""
    effects: list[str] = field(default_factory=list)
    """The parts that do more than look, in their own words."""
    readers: list[str] = field(default_factory=list)
    """What could read a file in the room, besides what needs the keys itself."""
