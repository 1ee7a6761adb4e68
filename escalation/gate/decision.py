"""The gate: policy and command in, verdict out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from escalation.gate import programs
from escalation.gate.findings import Findings
from escalation.gate.judgement import Judge
from escalation.gate.policy import GatePolicy
from escalation.gate.understanding import Understanding, Word

MOST_CHARACTERS = 1_000_000
Understand = Callable[[tuple[Word, ...]], Understanding | None]


class Verdict(StrEnum):
    ALLOW = "allow"
    """Understood and permitted: it runs in a room with the doors that it needs."""
    CONTAIN = "contain"
    """Not understood: it runs in a room without doors, where it can do no harm."""
    DENY = "deny"
    """It does not run."""
    ASK = "ask"
    """It would be allowed, and waits until a person has approved it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    verdict: Verdict
    rule: str
    """By which rule, in a few words that stay the same: "needs Tier 2", "not understood"."""
    reason: str = ""
    """For the model: why, and what to do instead. Empty for what is allowed."""
    doors: frozenset[str] = field(default_factory=frozenset)
    """Door names ("docker", "network" …) to open for this one command."""
    actions: tuple[str, ...] = ()
    """What the command was understood to do, in order, in plain form: "docker restart web"."""
    changes: tuple[str, ...] = ()
    """Those of the actions that change something beside the room itself, with all their words."""
    may_repeat: bool = False
    """A loop, a function or a program such as xargs may run parts of it more than once."""
    allowed_from: int = 0
    """Of a denied command: the lowest tier that would have run it; 0 where none would."""
    effects: tuple[str, ...] = ()
    """The parts of an allowed command that do more than look."""

    def asking(self, rule: str, reason: str) -> Decision:
        """The same, but for a person's word first."""
        return replace(self, verdict=Verdict.ASK, rule=rule, reason=reason)


def judged(own: GatePolicy, others: Sequence[GatePolicy], command: str) -> Decision:
    """The decision, and for a denied command which of the others would have run it."""
    decision = decide(own, command)
    if decision.verdict != Verdict.DENY:
        return decision
    willing = (policy for policy in others if decide(policy, command).verdict != Verdict.DENY)
    return replace(decision, allowed_from=min((policy.tier for policy in willing), default=0))


def decide(policy: GatePolicy, command: str, understand: Understand | None = None) -> Decision:
    """Whatever a command is made of, there is an answer: what fails is denied."""
    problem = _unfit(command)
    if problem:
        return Decision(verdict=Verdict.DENY, rule="no command", reason=problem)
    try:
        findings = Judge(policy, understand or programs.understand).judge(command)
        return _decision(policy, findings)
    except Exception as error:  # noqa: BLE001 - a gate that breaks must be closed, not gone
        return Decision(
            verdict=Verdict.DENY,
            rule="could not be judged",
            reason=f"This command could not be judged ({type(error).__name__}). Write it plainly.",
        )


def _unfit(command: str) -> str:
    if not command.strip():
        return "There is no command in this."
    if len(command) > MOST_CHARACTERS:
        return "This command is longer than a million characters. Put data into a file."
    if "\0" in command:
        return "A command cannot hold a NUL character. Leave it out."
    try:
        command.encode()
    except UnicodeError:
        return "This command is not valid text. Write it in UTF-8."
    return ""


def _decision(policy: GatePolicy, findings: Findings) -> Decision:
    return replace(
        _verdict(policy, findings),
        actions=tuple(findings.actions),
        changes=tuple(findings.changes),
        may_repeat=findings.may_repeat,
    )


def _verdict(policy: GatePolicy, findings: Findings) -> Decision:
    if findings.denials:
        rule, reason = findings.denials[0]
        return Decision(verdict=Verdict.DENY, rule=rule, reason=reason)
    if not findings.unknown:
        allowed = Decision(
            verdict=Verdict.ALLOW,
            rule="understood",
            doors=frozenset(findings.doors),
            effects=tuple(findings.effects),
        )
        return _asked(allowed, findings)
    verdict = Verdict.CONTAIN if policy.rooms else Verdict.DENY
    reason = _contained(policy, findings) if policy.rooms else _refused(findings)
    return Decision(verdict=verdict, rule="not understood", reason=reason)


def _asked(allowed: Decision, findings: Findings) -> Decision:
    if not findings.asks:
        return allowed
    rule, shown = findings.asks[0]
    return allowed.asking(
        f"asked by {rule}", f"The operator wants to approve `{shown}` first, by the rule {rule}."
    )


def _contained(policy: GatePolicy, findings: Findings) -> str:
    writes = "" if policy.tier < 2 or policy.changes_nothing else " and write in its directory"
    reason = (
        f"Not understood: {findings.unknown[0]}. So this ran in a room without doors (no network, "
        f"no Docker, no other processes): it could only compute and read{writes}."
    )
    if findings.doors:
        reason += f" Run {findings.wanting_doors[0]} by itself, in plain words."
    return reason


def _refused(findings: Findings) -> str:
    return (
        f"Not understood: {findings.unknown[0]}. No room can hold such a command here: write it "
        "in plain words, one program at a time."
    )
