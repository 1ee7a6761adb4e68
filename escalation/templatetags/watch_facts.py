"""What the page of a watch shows of the actor: its doors, its house rules, its cooldowns.

Pages of the record do not know the actor; a template may ask it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import template

from escalation.web.cooldowns_now import CooldownRow, cooldowns_now
from escalation.web.doors_table import DoorRow, doors_table
from escalation.web.house_rules import HouseRules, house_rules
from sessions_app.models import Watch

register = template.Library()


@register.inclusion_tag("sessions_app/_doors.html")
def watch_doors(watch: Watch) -> dict[str, tuple[DoorRow, ...]]:
    return {"doors": doors_table(watch.doors)}


@register.inclusion_tag("sessions_app/_house_rules.html")
def watch_house_rules(watch: Watch, services: Sequence[Any]) -> dict[str, HouseRules]:
    """With the services that reports have named, for a draft."""
    return {"rules": house_rules(watch, [row.state.name for row in services])}


@register.inclusion_tag("sessions_app/_cooldowns.html")
def watch_cooldowns(watch: Watch) -> dict[str, tuple[CooldownRow, ...]]:
    return {"cooldowns": cooldowns_now(watch)}
