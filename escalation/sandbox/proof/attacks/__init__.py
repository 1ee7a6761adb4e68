"""The attacks, by theme."""

from escalation.sandbox.proof.attacks.attack import Attack
from escalation.sandbox.proof.attacks.bombs import BOMBS
from escalation.sandbox.proof.attacks.keys import READING
from escalation.sandbox.proof.attacks.living import LIVING
from escalation.sandbox.proof.attacks.tampering import CHANGING
from escalation.sandbox.proof.attacks.tools import BY_TOOL
from escalation.sandbox.proof.attacks.ways_out import WAYS_OUT

ATTACKS: tuple[Attack, ...] = (*READING, *BY_TOOL, *CHANGING, *LIVING, *BOMBS, *WAYS_OUT)

__all__ = ["ATTACKS", "Attack"]
