"""The three tiers: which model, which tools, which limits.

Defaults stand here in one table; the environment overrides each of them
(`claudeops/tier_settings.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from django.conf import settings

LOWEST_TIER, HIGHEST_TIER = 1, 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Tier:
    number: int
    name: str
    model: str
    allowed_tools: tuple[str, ...]
    disallowed_tools: tuple[str, ...]
    max_turns: int
    max_budget_usd: Decimal
    timeout_seconds: int
    doors: str = ""
    """Words that open or close doors, over those that a tier of this number has (`gate/doors`)."""
    ask: tuple[str, ...] = ()
    """`Bash(prefix:*)` rules for commands that wait until a person has approved them."""

    @property
    def tool_names(self) -> tuple[str, ...]:
        """The tools that the model may see."""
        return tuple(dict.fromkeys(map(_tool_of, self.allowed_tools)))


def bash_rules(*prefixes: str) -> tuple[str, ...]:
    return tuple(f"Bash({prefix}:*)" for prefix in prefixes)


READING_TOOLS = ("Bash", "Read", "Grep", "Glob", "Task", "WebFetch", "WebSearch")
WRITING_TOOLS = (*READING_TOOLS, "Write", "Edit")
QUESTION_TOOLS = ("Read", "Grep", "Glob")
# Nobody is there to answer while a run works: denied at every tier, whatever else is configured.
UNANSWERED_TOOLS = ("AskUserQuestion",)

DEFAULT_TIERS = (
    Tier(
        number=1,
        name="observe",
        model="haiku",
        allowed_tools=READING_TOOLS,
        disallowed_tools=bash_rules(
            *(f"docker {verb}" for verb in ("restart", "stop", "start", "rm", "compose")),
            *(f"systemctl {verb}" for verb in ("restart", "stop", "start")),
            "ansible",
            "ansible-playbook",
            "helm",
            "gh pr create",
            "gh pr merge",
            "git push",
            "git commit",
        ),
        max_turns=60,
        max_budget_usd=Decimal("2"),
        timeout_seconds=15 * 60,
    ),
    Tier(
        number=2,
        name="safe remediation",
        model="sonnet",
        allowed_tools=WRITING_TOOLS,
        disallowed_tools=bash_rules(
            "ansible", "ansible-playbook", "helm", "docker compose down", "gh pr merge"
        ),
        max_turns=80,
        max_budget_usd=Decimal("5"),
        timeout_seconds=30 * 60,
    ),
    Tier(
        number=3,
        name="full remediation",
        model="opus",
        allowed_tools=WRITING_TOOLS,
        disallowed_tools=bash_rules(
            "rm -rf /", "docker system prune", "git push --force", "gh pr merge"
        ),
        max_turns=120,
        max_budget_usd=Decimal("15"),
        timeout_seconds=60 * 60,
    ),
)


def get_tier(number: int) -> Tier:
    tier: Tier = settings.CLAUDEOPS_TIERS[number]
    return tier


def question_walls(tier: Tier) -> Tier:
    """A question about what happened is answered by reading, whatever the tier might do.

    An operator may allow more, but never more than the tier itself has. The other tools are denied
    by name: a resumed conversation goes on offering the tools that it began with, however short the
    new list is.
    """
    wanted: tuple[str, ...] = settings.CLAUDEOPS_FOLLOW_UP_TOOLS
    allowed = dict.fromkeys(entry for name in wanted for entry in _within(tier, name))
    kept = {_tool_of(entry) for entry in allowed}
    denied = [tool for tool in tier.tool_names if tool not in kept]
    return replace(
        tier,
        allowed_tools=tuple(allowed),
        disallowed_tools=tuple(dict.fromkeys((*denied, *tier.disallowed_tools))),
    )


def _within(tier: Tier, entry: str) -> tuple[str, ...]:
    """As much of an entry as the tier has: all of it, its own narrower rules, or nothing."""
    if entry in tier.allowed_tools or _tool_of(entry) in tier.allowed_tools:
        return (entry,)
    return tuple(own for own in tier.allowed_tools if _tool_of(own) == entry)


def _tool_of(entry: str) -> str:
    """`Bash(git log:*)` is still the tool Bash."""
    return entry.split("(", 1)[0]


def dry_run_walls(tier: Tier, observer: Tier) -> Tier:
    """In a dry run a higher tier thinks with its own model, but within the observer's walls."""
    allowed = tuple(tool for tool in tier.allowed_tools if tool in observer.allowed_tools)
    denied = [tool for tool in tier.tool_names if tool not in observer.tool_names]
    blocked = dict.fromkeys((*denied, *tier.disallowed_tools, *observer.disallowed_tools))
    return replace(tier, allowed_tools=allowed, disallowed_tools=tuple(blocked))
