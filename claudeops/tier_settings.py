"""What the environment says about the tiers, over their defaults."""

from __future__ import annotations

import re
from dataclasses import replace

from claudeops.env import Environment
from escalation.tiers import DEFAULT_TIERS, UNANSWERED_TOOLS, Tier


def tiers_from(environment: Environment) -> dict[int, Tier]:
    return {default.number: _overridden(default, environment) for default in DEFAULT_TIERS}


def _overridden(default: Tier, environment: Environment) -> Tier:
    prefix = f"CLAUDEOPS_TIER{default.number}_"
    denied = environment.names(prefix + "DISALLOWED_TOOLS", default.disallowed_tools)
    return replace(
        default,
        model=environment.text(prefix + "MODEL", default.model),
        allowed_tools=environment.names(prefix + "ALLOWED_TOOLS", default.allowed_tools),
        disallowed_tools=tuple(dict.fromkeys((*UNANSWERED_TOOLS, *denied))),
        # The CLI takes 0 turns for "unlimited", so 0 must never reach it.
        max_turns=environment.integer(prefix + "MAX_TURNS", default.max_turns, minimum=1),
        max_budget_usd=environment.amount(prefix + "MAX_BUDGET_USD", default.max_budget_usd),
        timeout_seconds=environment.seconds(prefix + "TIMEOUT", default.timeout_seconds),
        doors=environment.text(prefix + "DOORS", default.doors),
        ask=_rules(environment, prefix + "ASK"),
    )


def _rules(environment: Environment, name: str) -> tuple[str, ...]:
    one = r"Bash\([^()]*[^()\s:*][^()]*\)"
    words = environment.matching(
        name, "", rf"{one}([\s,]+{one})*", "rules like Bash(docker restart:*)"
    )
    return tuple(re.findall(one, words))
