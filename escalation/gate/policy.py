"""All that a decision depends on besides the command itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from escalation.gate.doors import Doors
from escalation.gate.supervisor import Supervisor


@dataclass(frozen=True, kw_only=True, slots=True)
class GatePolicy:
    tier: int
    doors: Doors
    """Those that the tier and the watch leave open."""
    denied: tuple[str, ...] = ()
    """The tier's `Bash(prefix:*)` rules, as they are given to the CLI, too."""
    allowed: tuple[str, ...] = ("Bash",)
    """Narrower rules of an operator: `Bash(docker ps:*)` allows nothing else of Bash."""
    ask: tuple[str, ...] = ()
    """Such rules for what a person has to approve, of what would be allowed otherwise."""
    changes_nothing: bool = False
    """A dry run or a question: as Tier 1, whatever the tier's number."""
    rooms: bool = True
    """Whether a room holds what cannot be understood; without one it is denied."""
    ssh_agent: bool = False
    """Whether the operator has one: with it, no key has to lie in a room."""
    workdir: str = "/"
    programs_in: tuple[str, ...] = ()
    """Directories beside the system's own whose programs are what their names say (a drill's)."""
    supervisor: Supervisor = field(default_factory=Supervisor)
    """What no tier may end or change."""
