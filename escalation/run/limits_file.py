"""`claude-ops.toml` in the working directory of a watch: it can lower what agents may do.

An agent may write in the directory, so the file never raises anything: of each limit the stricter
one holds. It is read once for each cycle. A file that cannot be read, or is wrong, leaves Tier 1
alone, because nobody knows what it was to forbid.
"""

from __future__ import annotations

import os
import stat
import tomllib
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, ValidationError

from escalation.command_policy.grants import grants_for
from sessions_app.grants import parse_grants
from sessions_app.models import Cycle, Watch
from sessions_app.models.autonomy import AutonomyLevel, Policy, written_tiers
from sessions_app.models.watch import LIMITS_NAME, read_ask_rules
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean, cut, money
from sessions_app.tiers import LOWEST_TIER, tier_numbers

LARGEST_FILE = 64_000
LONGEST_PROBLEM = 300


def _tier(number: int) -> int:
    if number not in tier_numbers():
        raise ValueError(f"there is no Tier {number}")
    return number


def _tier_above(number: int) -> int:
    if number == LOWEST_TIER:
        raise ValueError(f"Tier {LOWEST_TIER} needs no approval")
    return _tier(number)


def _amount(value: object) -> Decimal:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    amount = Decimal(str(value)) if is_number else Decimal("NaN")
    if not amount.is_finite() or amount < 0:
        raise ValueError("write an amount in dollars, like 2.50")
    return amount


def _level(name: str) -> str:
    return AutonomyLevel(name).value


def _ask(rules: list[str]) -> list[str]:
    return list(read_ask_rules(" ".join(rules)))


def _grants(words: list[str]) -> list[str]:
    if problems := parse_grants(" ".join(words))[1]:
        raise ValueError(problems[0])
    return words


Amount = Annotated[Decimal, BeforeValidator(_amount)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Budgets(_Table):
    day: Amount | None = None
    cycle: Amount | None = None


class Lowering(_Table):
    """Table [watch] of the file, in the words of `claudeops apply`."""

    autonomy: Annotated[str, AfterValidator(_level)] | None = None
    max_tier: Annotated[int, AfterValidator(_tier)] | None = None
    dry_run: bool = False
    approval: list[Annotated[int, AfterValidator(_tier_above)]] = []
    ask: Annotated[list[str], AfterValidator(_ask)] = []
    grants: Annotated[list[str], AfterValidator(_grants)] = []
    budgets: Budgets = Budgets()


class _File(_Table):
    watch: Lowering = Lowering()
    # Tables of `claudeops apply`, which takes nothing from [watch].
    watches: Any = None
    sources: Any = None
    channels: Any = None


LOOK_ONLY = Lowering(autonomy=AutonomyLevel.LOOK.value)


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitsFile:
    wanted: Lowering | None = None
    """None if there is no file."""
    problem: str = ""
    """Reason for which the file is not understood; `wanted` then is to look only."""


def read_limits(workdir: Path) -> LimitsFile:
    """Read the file in a working directory. No link is followed, and no pipe blocks."""
    try:
        directory = os.open(workdir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(LIMITS_NAME, flags, dir_fd=directory)
        finally:
            os.close(directory)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return _broken("it is no ordinary file")
            data = file.read(LARGEST_FILE + 1)
    except FileNotFoundError:
        return LimitsFile()
    except OSError as error:
        return _broken(f"it cannot be read, or is a link ({error.strerror})")
    if len(data) > LARGEST_FILE:
        return _broken(f"it has more than {LARGEST_FILE} bytes")
    return parsed_limits(data)


def parsed_limits(data: bytes) -> LimitsFile:
    try:
        content = tomllib.loads(data.decode(), parse_float=Decimal)
        return LimitsFile(wanted=_File.model_validate(content).watch)
    except ValidationError as error:
        first = error.errors()[0]
        return _broken(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except (ValueError, RecursionError, ArithmeticError) as error:
        return _broken(f"it is not TOML ({error})")


def _broken(problem: str) -> LimitsFile:
    said = cut(clean(redacted(problem)), LONGEST_PROBLEM)
    return LimitsFile(wanted=LOOK_ONLY, problem=said)


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of the operator, and what is left of them."""

    policy: Policy
    ask: tuple[str, ...] = ()
    grants: str = ""
    """Options of the watch."""
    day_usd: Decimal | None = None
    cycle_usd: Decimal | None = None


def lowered(limits: Limits, wanted: Lowering) -> Limits:
    """Return the stricter of each limit. Pure."""
    policy = limits.policy.narrowed_by(
        Policy(
            max_tier=limits.policy.max_tier if wanted.max_tier is None else wanted.max_tier,
            dry_run=wanted.dry_run,
            approval_tiers=frozenset(wanted.approval),
        )
    )
    if wanted.autonomy is not None:
        policy = policy.narrowed_by(AutonomyLevel(wanted.autonomy).policy)
    return replace(
        limits,
        policy=policy,
        ask=tuple(dict.fromkeys((*limits.ask, *wanted.ask))),
        grants=" ".join((limits.grants, *removals(wanted))).strip(),
        day_usd=_least(limits.day_usd, wanted.budgets.day),
        cycle_usd=_least(limits.cycle_usd, wanted.budgets.cycle),
    )


def removals(wanted: Lowering) -> tuple[str, ...]:
    """Return the options that revoke a grant; those that give one are ignored."""
    return tuple(
        word for word in " ".join(wanted.grants).replace(",", " ").split() if word[0] == "-"
    )


def _least(one: Decimal | None, other: Decimal | None) -> Decimal | None:
    return min((amount for amount in (one, other) if amount is not None), default=None)


def differences(before: Limits, after: Limits) -> tuple[str, ...]:
    """Describe what was lowered, for people. Pure."""
    found = []
    if after.policy.max_tier < before.policy.max_tier:
        found.append(f"no tier above {after.policy.max_tier}, not {before.policy.max_tier}")
    if after.policy.dry_run and not before.policy.dry_run:
        found.append("dry run")
    asked = after.policy.approval_tiers - before.policy.approval_tiers
    found += [
        f"Tier {tier} needs approval" for tier in sorted(asked) if tier <= after.policy.max_tier
    ]
    found += [f"{rule} needs approval" for rule in after.ask if rule not in before.ask]
    kept = grants_for(watch_words=after.grants).words()
    given = grants_for(watch_words=before.grants).words()
    found += [f"no grant {word}" for word in given if word not in kept]
    for words, least, most in (
        ("in a day", after.day_usd, before.day_usd),
        ("in a cycle", after.cycle_usd, before.cycle_usd),
    ):
        if least is not None and least != most:
            found.append(f"{money(least)} {words} at most")
    return tuple(found)


@dataclass(frozen=True, kw_only=True, slots=True)
class Lowered:
    """Effect of the file in the directory of a watch."""

    lines: tuple[str, ...]
    problem: str = ""


def lowered_now(watch: Watch) -> Lowered | None:
    """Read the file on this host; None if there is none, or if it lowers nothing."""
    found = read_limits(Path(watch.workdir)) if Path(watch.workdir).is_dir() else LimitsFile()
    if found.wanted is None:
        return None
    before = Limits(
        policy=watch.policy,
        ask=read_ask_rules(watch.ask),
        grants=watch.grants,
        day_usd=watch.budget_day_usd,
    )
    lines = differences(before, lowered(before, found.wanted))
    return Lowered(lines=lines, problem=found.problem) if lines or found.problem else None


def lower(cycle: Cycle) -> Lowered | None:
    """Lower the limits of a cycle by the file, and return what was lowered; None if it was before.

    The caller stores the fields of `Cycle.LOWERED_FIELDS`. Nothing of an earlier cycle matters, and
    nothing that is written into the file later.
    """
    watch = cycle.watch
    if cycle.lowered is not None or watch is None or cycle.drill:
        return None
    found = read_limits(Path(cycle.workdir))
    cycle.lowered = {}
    if found.wanted is None:
        return Lowered(lines=())
    before = Limits(
        policy=cycle.policy,
        ask=cycle.ask_rules,
        grants=watch.grants,
        day_usd=watch.budget_day_usd,
        cycle_usd=cycle.budget_usd,
    )
    after = lowered(before, found.wanted)
    lines = differences(before, after)
    cycle.max_tier, cycle.dry_run = after.policy.max_tier, after.policy.dry_run
    cycle.approval = written_tiers(after.policy.approval_tiers)
    cycle.budget_usd = after.cycle_usd
    cycle.lowered = {
        "lines": list(lines),
        "problem": found.problem,
        "ask": found.wanted.ask,
        "grants": list(removals(found.wanted)),
        "day_usd": None if found.wanted.budgets.day is None else str(found.wanted.budgets.day),
    }
    return Lowered(lines=lines, problem=found.problem)
