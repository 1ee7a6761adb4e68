"""Numbers and names of the tiers, for both apps.

`settings.CLAUDEOPS_TIERS` is the table of tiers, made from the defaults in `escalation/tiers.py`
and the environment. The numbers are consecutive and start with 1.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError

LOWEST_TIER = 1
LOOK, SAFE, FULL = LOWEST_TIER, 2, 3
"""Lowest tiers that may observe, apply safe remedies, and do everything that is not forbidden.
Tiers above `FULL` have the permissions of `FULL` and other settings."""


def tier_numbers() -> tuple[int, ...]:
    return tuple(settings.CLAUDEOPS_TIERS)


def highest_tier() -> int:
    return max(tier_numbers())


def tier_row(number: int) -> Any:
    """Return the row of a tier, or of the highest tier if this one is no longer configured."""
    return settings.CLAUDEOPS_TIERS.get(number) or settings.CLAUDEOPS_TIERS[highest_tier()]


def tier_title(number: int) -> str:
    """Return a title like `Tier 1: observe`, or `Tier 4` if it is no longer configured."""
    tier = settings.CLAUDEOPS_TIERS.get(number)
    return f"Tier {number}: {tier.name}" if tier else f"Tier {number}"


def tier_choices() -> list[tuple[int, str]]:
    return [(number, tier_title(number)) for number in tier_numbers()]


def full_tiers(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """Return the tiers that may do everything that is not forbidden."""
    return tuple(number for number in numbers if number >= FULL)


def validate_tier(number: int) -> None:
    if number not in tier_numbers():
        raise ValidationError(
            f"There is no Tier {number}: tiers are {LOWEST_TIER} to {highest_tier()}.",
            code="no_such_tier",
        )
