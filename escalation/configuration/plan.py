"""The plan: what differs between two states of the configuration. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any


class Kind(StrEnum):
    """Kinds of things that are declared, in the order in which they are applied."""

    WATCH = "watch"
    PROBE = "probe"
    REMEDY = "remedy"
    MAINTENANCE = "maintenance"
    SOURCE = "source"
    CHANNEL = "channel"

    @property
    def rank(self) -> int:
        return list(Kind).index(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    """Identity of something declared."""

    kind: Kind
    name: str
    watch: str = ""
    """Watch that it is part of."""

    @property
    def order(self) -> tuple[str, int, str]:
        """A watch with all that is part of it, then sources and channels."""
        owner = self.watch or (self.name if self.kind == Kind.WATCH else "\U0010ffff")
        return owner, self.kind.rank, self.name

    def __str__(self) -> str:
        inner = f"{self.watch}/{self.name}" if self.watch else self.name
        return f"{self.kind} {inner}"


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret in a state: its fingerprint alone."""

    fingerprint: str

    def __str__(self) -> str:
        return "(secret)"


MADE = Secret("made")

State = Mapping[Address, Mapping[str, Any]]
"""What is configured, in the words of the files. Values that are not set are left out."""


class Action(StrEnum):
    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"

    @property
    def sign(self) -> str:
        return {Action.ADD: "+", Action.CHANGE: "~", Action.REMOVE: "-"}[self]


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldChange:
    name: str
    before: Any = None
    after: Any = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    action: Action
    address: Address
    fields: tuple[FieldChange, ...] = ()


def difference(before: State, after: State) -> tuple[Step, ...]:
    """Return what leads from one state to the other, field by field."""
    steps = []
    for address in sorted({*before, *after}, key=lambda one: one.order):
        old, new = before.get(address), after.get(address)
        fields = tuple(
            FieldChange(name=name, before=(old or {}).get(name), after=(new or {}).get(name))
            for name in dict.fromkeys((*(new or {}), *(old or {})))
            if (old or {}).get(name) != (new or {}).get(name)
        )
        if old is None:
            steps.append(Step(action=Action.ADD, address=address, fields=fields))
        elif new is None:
            steps.append(Step(action=Action.REMOVE, address=address))
        elif fields:
            steps.append(Step(action=Action.CHANGE, address=address, fields=fields))
    return tuple(steps)


def with_made_secrets(
    steps: Iterable[Step], made: Collection[tuple[Address, str]]
) -> tuple[Step, ...]:
    """Forget the fingerprints of secrets that are made anew each time: the plan stays the same."""
    return tuple(
        replace(
            step,
            fields=tuple(
                replace(one, after=MADE)
                if isinstance(one.after, Secret) and (step.address, one.name) in made
                else one
                for one in step.fields
            ),
        )
        for step in steps
    )


def digest(steps: Iterable[Step]) -> str:
    """Identify a plan, to notice that another one would be carried out than was shown."""
    return hashlib.sha256(repr(list(steps)).encode()).hexdigest()


def summary(steps: Iterable[Step]) -> str:
    counted = dict.fromkeys(Action, 0)
    for step in steps:
        counted[step.action] += 1
    return ", ".join(f"{number} to {action}" for action, number in counted.items())


def value_text(value: Any) -> str:
    """Format a value of a field for people."""
    if value is None:
        return "(not set)"
    if isinstance(value, Secret):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def drift(applied: State, current: State) -> tuple[Step, ...]:
    """Return what was changed since the configuration of a watch was applied.

    A switch that the file leaves open is nobody's change.
    """
    compared = {
        address: {
            name: value
            for name, value in words.items()
            if name != "enabled" or address not in applied or "enabled" in applied[address]
        }
        for address, words in current.items()
    }
    return difference(applied, compared)


def stored(state: State) -> list[dict[str, Any]]:
    """Return a state as JSON."""
    return [
        {
            "kind": address.kind.value,
            "name": address.name,
            "watch": address.watch,
            "words": dict(words),
        }
        for address, words in sorted(state.items(), key=lambda pair: pair[0].order)
    ]


def read_stored(rows: Iterable[Mapping[str, Any]]) -> dict[Address, dict[str, Any]]:
    return {
        Address(kind=Kind(row["kind"]), name=row["name"], watch=row["watch"]): dict(row["words"])
        for row in rows
    }
