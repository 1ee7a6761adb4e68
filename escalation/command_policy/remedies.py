"""Reads a call of a remedy (`remedy restart web`) by what the operator declared. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from escalation.command_policy.grants import HOST
from escalation.command_policy.understanding import EVERYTHING, Argv, CommandEffect
from sessions_app.models.remedy import Parameter, Remedy, filled

REMEDY = "remedy"
"""The shim by which an agent calls a remedy."""
LOOK_KIND = Remedy.Kind.LOOK.value
COUNTED = (Remedy.Kind.RESTART.value, Remedy.Kind.REDEPLOY.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredRemedy:
    """A remedy as the operator declared it, with what was looked up for it."""

    name: str
    description: str
    command: Argv
    """The vector, with `{parameter}` where a value goes."""
    parameters: tuple[Parameter, ...] = ()
    kind: str = LOOK_KIND
    service: str = ""
    tier: int
    grants: frozenset[str] = field(default_factory=frozenset)
    seconds: int = 60
    services: Argv = ()
    """Services of the watch, which a parameter may name."""
    script: bytes | None = field(default=None, repr=False)
    """The accepted content of the script; None for a program of the system."""
    script_at: int = 0
    """The position of the script in the vector."""
    stamp: str = ""
    """Identifies the declaration, which a person may change while a session runs."""
    waits: str = ""
    """Why a person must accept the script first; empty if it may run."""

    @property
    def usage(self) -> str:
        return " ".join((self.name, *(parameter.short() for parameter in self.parameters)))


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyCall:
    """A call that matches a declared remedy: exactly this runs."""

    name: str
    argv: Argv
    grants: frozenset[str]
    seconds: int
    tier: int
    looks: bool
    """It changes nothing: brokers judge it as the tier's own commands."""
    effects: tuple[CommandEffect, ...]
    stamp: str = ""
    script: bytes | None = field(default=None, repr=False)
    script_at: int = 0

    @property
    def on_host(self) -> bool:
        return HOST in self.grants


class RemedyRefused(Exception):
    """A call that matches no declared remedy."""

    def __init__(self, rule: str, reason: str) -> None:
        super().__init__(reason)
        self.rule = rule


def usable(remedies: Sequence[DeclaredRemedy], tier: int) -> list[DeclaredRemedy]:
    """Return the remedies that a tier may use now."""
    return [remedy for remedy in remedies if remedy.tier <= tier and not remedy.waits]


def listing(remedies: Sequence[DeclaredRemedy], tier: int) -> str:
    """Return the text for `remedy` without arguments."""
    found = usable(remedies, tier)
    if not found:
        return "No remedy is declared for this tier.\n"
    lines = [f"  {remedy.usage}: {remedy.description}" for remedy in found]
    return "\n".join(("Remedies (call one as `remedy NAME ARGUMENT…`):", *lines, ""))


def read_call(argv: Argv, remedies: Sequence[DeclaredRemedy], tier: int) -> RemedyCall:
    """Return the call of `remedy NAME ARGUMENT…`; raise RemedyRefused for anything else."""
    _program, name, *arguments = argv
    remedy = next((one for one in remedies if one.name == name), None)
    if remedy is None:
        names = ", ".join(one.usage for one in usable(remedies, tier)) or "none at this tier"
        raise RemedyRefused(
            "no such remedy", f"The operator declared no remedy of that name. There are: {names}."
        )
    if remedy.waits:
        raise RemedyRefused(
            "waits for a person",
            f"The remedy {name} does not run: {remedy.waits}. A person has to accept it first: say "
            "so in your report.",
        )
    if problem := _problem(remedy, arguments):
        raise RemedyRefused(
            "wrong parameters", f"It did not run: {problem}. Call it as `remedy {remedy.usage}`."
        )
    values = {
        parameter.name: str(int(value)) if parameter.is_integer else value
        for parameter, value in zip(remedy.parameters, arguments, strict=True)
    }
    return RemedyCall(
        name=name,
        argv=filled(remedy.command, values),
        grants=remedy.grants,
        seconds=remedy.seconds,
        tier=remedy.tier,
        looks=remedy.kind == LOOK_KIND,
        effects=_effects(remedy, " ".join((REMEDY, name, *values.values())), values),
        stamp=remedy.stamp,
        script=remedy.script,
        script_at=remedy.script_at,
    )


def _problem(remedy: DeclaredRemedy, arguments: Sequence[str]) -> str:
    if len(arguments) != len(remedy.parameters):
        return f"{remedy.name} takes {len(remedy.parameters)} arguments, not {len(arguments)}"
    for parameter, value in zip(remedy.parameters, arguments, strict=True):
        if problem := parameter.problem(value, remedy.services):
            return problem
    return ""


def _effects(
    remedy: DeclaredRemedy, action: str, values: dict[str, str]
) -> tuple[CommandEffect, ...]:
    if remedy.kind == LOOK_KIND:
        return ()
    if remedy.kind not in COUNTED:
        return (CommandEffect(kind=remedy.kind, service="", action=action),)
    named = [values[one.name] for one in remedy.parameters if one.is_service]
    services = dict.fromkeys(named or [remedy.service or EVERYTHING])
    return tuple(
        CommandEffect(kind=remedy.kind, service=service, action=action) for service in services
    )
