"""The attacks, by theme."""

from escalation.rehearsal.walls.attacks.attack import Attack
from escalation.rehearsal.walls.attacks.bombs import BOMBS
from escalation.rehearsal.walls.attacks.keys import READING
from escalation.rehearsal.walls.attacks.living import LIVING
from escalation.rehearsal.walls.attacks.tampering import CHANGING
from escalation.rehearsal.walls.attacks.tools import BY_TOOL
from escalation.rehearsal.walls.attacks.ways_out import WAYS_OUT

ATTACKS: tuple[Attack, ...] = (*READING, *BY_TOOL, *CHANGING, *LIVING, *BOMBS, *WAYS_OUT)

__all__ = ["ATTACKS", "Attack"]
