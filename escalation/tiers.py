"""The tiers with their models, tools and limits.

The table has the defaults; the environment overrides them and may add higher tiers
(`claudeops/tier_settings.py`). Facts that both apps use are in `sessions_app/tiers.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from django.conf import settings

from sessions_app.tiers import tier_row


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
    grants: str = ""
    """Grants that are added to or removed from the defaults (`command_policy/grants.py`)."""
    ask: tuple[str, ...] = ()
    """`Bash(prefix:*)` rules for commands that need approval."""
    denied_tools: tuple[str, ...] = ()
    """Tools that the model sees, and whose calls the CLI denies: those that write, in a dry run."""

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools that the model sees."""
        return tuple(dict.fromkeys(map(_tool_of, (*self.allowed_tools, *self.denied_tools))))


def bash_rules(*prefixes: str) -> tuple[str, ...]:
    return tuple(f"Bash({prefix}:*)" for prefix in prefixes)


READING_TOOLS = ("Bash", "Read", "Grep", "Glob", "Task", "WebFetch", "WebSearch")
EDITING_TOOLS = ("Write", "Edit")
WRITING_TOOLS = (*READING_TOOLS, *EDITING_TOOLS)
QUESTION_TOOLS = ("Read", "Grep", "Glob")
# Nobody answers questions during a run: always denied at every tier.
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
    """Return a tier. For a number that is no longer configured, use the highest tier."""
    tier: Tier = tier_row(number)
    return tier if tier.number == number else replace(tier, number=number)


def question_sandbox(tier: Tier) -> Tier:
    """Restrict a tier to the tools for questions (CLAUDEOPS_FOLLOW_UP_TOOLS).

    Tools that the tier does not have are never added. The other tools are denied by name, because
    a resumed conversation goes on offering the tools that it started with.
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
    """Return the entry if the tier has it, else the narrower rules of the tier."""
    if entry in tier.allowed_tools or _tool_of(entry) in tier.allowed_tools:
        return (entry,)
    return tuple(own for own in tier.allowed_tools if _tool_of(own) == entry)


def _tool_of(entry: str) -> str:
    """Return the tool of a rule: Bash of `Bash(git log:*)`."""
    return entry.split("(", 1)[0]


def dry_run_sandbox(tier: Tier, observer: Tier) -> Tier:
    """Restrict a tier to the tools of the observing tier; its model and limits stay.

    The tools that write stay visible, so that their denied calls show what would have been written.
    """
    allowed = tuple(tool for tool in tier.allowed_tools if tool in observer.allowed_tools)
    denied = [tool for tool in tier.tool_names if tool not in observer.tool_names]
    shown = tuple(tool for tool in denied if tool in EDITING_TOOLS)
    hidden = [tool for tool in denied if tool not in shown]
    blocked = dict.fromkeys((*hidden, *tier.disallowed_tools, *observer.disallowed_tools))
    return replace(tier, allowed_tools=allowed, denied_tools=shown, disallowed_tools=tuple(blocked))
