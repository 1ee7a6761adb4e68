"""The corpus of commands (one JSON object per line) and the evaluation of its rows.

`{"tier": 1, "expect": "deny", "command": "docker restart web"}`. An invalid line is reported, and
the others are used. Unknown fields are ignored. A row is judged by its effects, whatever was
decided: `allow` must work, `deny` must have no effect, and `isolate` none outside the working
directory, which it may write from Tier 2 on.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from escalation.agent.process import Traces
from escalation.command_policy.decision import Decision, ExecRequest, decide, read_one_command
from escalation.command_policy.programs import SHIMS
from escalation.sandbox.command_runner import IN_SANDBOX, OWN_WORDS
from escalation.sandbox.proof.host import REMOTE, WORKDIR
from escalation.sandbox.proof.programs import STAND_INS
from escalation.sandbox.proof.trial import NOT_EXECUTED, NOT_STARTED, Played, TrialDecision
from escalation.sandbox.setup import SandboxRequest, policy_of
from escalation.tiers import Tier, get_tier
from sessions_app.models.session import Verdict
from sessions_app.tiers import LOWEST_TIER, SAFE, tier_numbers

Find = Callable[[str], str | None]
"""Returns the path of a program, or None."""
SHIPPED = Path(__file__).parent / "corpus.jsonl"
ALLOW, ISOLATE, DENY = EXPECTATIONS = tuple(
    verdict.value for verdict in (Verdict.ALLOW, Verdict.ISOLATE, Verdict.DENY)
)
OLD_EXPECTATIONS = {"contain": ISOLATE}
"""Spellings of version 0.2, still understood."""
_KNOWN = {"tier", "expect", "command", "needs", "permits", "same", "group", "why"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    tier: int
    expect: str
    command: str
    needs: tuple[str, ...] = ()
    """Programs without which the command proves nothing."""
    permits: tuple[str, ...] = ()
    """Effects and programs that a hostile command may have beside its harm."""
    same: bool = False
    """Return whether the output must be that of the same command outside the sandbox."""
    group: str = ""
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Corpus:
    rows: tuple[Row, ...]
    wrong: tuple[str, ...] = ()
    """`line 7: …` for each invalid line."""
    left_out: tuple[str, ...] = ()
    """Commands whose program is missing on this host, with its name."""

    text: str = ""
    """The text of the corpus."""

    def of_tier(self, tier: int) -> Corpus:
        return replace(self, rows=tuple(row for row in self.rows if row.tier == tier))


def read(path: Path = SHIPPED, *, find: Find = shutil.which) -> Corpus:
    """Read a file; raise OSError if it does not exist."""
    return parse(path.read_bytes().decode("utf-8-sig", "replace"), find=find)


def parse(text: str, *, find: Find = shutil.which) -> Corpus:
    rows, wrong, left_out = [], [], []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            row = _row(line)
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
            continue
        if missing := [program for program in row.needs if find(program) is None]:
            left_out.append(f"{row.command} (there is no {', '.join(missing)} here)")
        else:
            rows.append(row)
    return Corpus(rows=tuple(rows), wrong=tuple(wrong), left_out=tuple(left_out), text=text)


def _row(line: str) -> Row:
    found = _object(line)
    tier, expect, command = found.get("tier"), found.get("expect"), found.get("command")
    if type(tier) is not int or tier not in tier_numbers():
        raise ValueError(
            f'"tier" is {tier!r}, not a number from {LOWEST_TIER} to {max(tier_numbers())}'
        )
    expect = OLD_EXPECTATIONS.get(expect, expect) if isinstance(expect, str) else expect
    if expect not in EXPECTATIONS:
        raise ValueError(f'"expect" is {expect!r}, not one of {", ".join(EXPECTATIONS)}')
    if not isinstance(command, str) or not command.strip():
        raise ValueError(f'"command" is {command!r}, not a text')
    if unknown := [name for name in sorted(set(found) - _KNOWN) if _seems_known(name)]:
        raise ValueError(f"unknown: {', '.join(unknown)}")
    return Row(
        tier=tier,
        expect=expect,
        command=command,
        needs=_names(found.get("needs")),
        permits=_texts(found.get("permits")),
        same=bool(found.get("same")),
        group=str(found.get("group") or ""),
        why=str(found.get("why") or ""),
    )


def _seems_known(name: str) -> bool:
    """Return whether it looks like a misspelt known field, which would change the row."""
    return bool(get_close_matches(name.lower(), _KNOWN, n=1, cutoff=0.8))


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from error
    if not isinstance(found, dict):
        raise ValueError("not a JSON object")
    return found


def _texts(permits: Any) -> tuple[str, ...]:
    texts = permits or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f'"permits" is {permits!r}, not a list of texts')
    return tuple(texts)


def _names(needs: Any) -> tuple[str, ...]:
    """Parse one program as a text, or several as a list."""
    names = [needs] if isinstance(needs, str) else needs or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f'"needs" is {needs!r}, not the name of a program')
    return tuple(name for part in names for name in part.replace(",", " ").split())


# Evaluation of a row.

CLI_RULES = "the CLI's own rules"
HELD = "nothing"
NO_OUTPUT = "(Bash completed with no output)"
"""What the CLI tells the model."""
SHOWN_CHARACTERS = 300
FIRST_WRITING_TIER = SAFE
# From the strictest on: that of the row is the strictest of its programs.
_STRICTNESS = (DENY, Verdict.ASK.value, ALLOW, ISOLATE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Vector:
    """A program that a command executed by a shim, and the decision on it."""

    command: str
    verdict: str
    rule: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOutcome:
    tier: int
    command: str
    expect: str
    decision: str
    """The strictest on a program; `isolate` if there was none."""
    rule: str
    happened: str
    ok: bool
    vectors: tuple[Vector, ...] = ()
    milliseconds: float = 0

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def row_outcome(
    row: Row, played: Played, outside: str | None = None, *, changes_nothing: bool = False
) -> RowOutcome:
    """Evaluate a row; `outside` is the output of the same command outside the sandbox.

    In a dry run (`changes_nothing`) rows of Tier 1 work, and those of other tiers have no effect.
    """
    decision, rule = decided(played.decisions)
    trouble = _trouble(row, played, outside, changes_nothing=changes_nothing)
    return RowOutcome(
        tier=row.tier,
        command=row.command,
        expect=row.expect,
        decision=decision,
        rule=rule,
        happened=trouble or "; ".join(map(str, played.effects)) or HELD,
        ok=not trouble,
        vectors=tuple(
            Vector(command=each.command, verdict=each.verdict, rule=each.rule)
            for each in _programs(played)
        ),
        milliseconds=round(sum(each.milliseconds for each in played.decisions), 2),
    )


def decided(decisions: Sequence[TrialDecision]) -> tuple[str, str]:
    """Return the strictest decision; a command without any was refused by the CLI itself."""
    ranked = sorted(decisions, key=lambda each: _STRICTNESS.index(each.verdict))
    return (ranked[0].verdict, ranked[0].rule) if ranked else (DENY, CLI_RULES)


def _programs(played: Played) -> list[TrialDecision]:
    return [each for each in played.decisions if each.is_program]


def _trouble(row: Row, played: Played, outside: str | None, *, changes_nothing: bool) -> str:
    if played.ended or played.told:
        return played.ended or "; ".join(played.told)
    if any(each.rule == NOT_STARTED for each in played.decisions):
        return NOT_STARTED
    if changes_nothing and row.tier > LOWEST_TIER:
        harm = _change(played) if row.expect == ALLOW else _harm(replace(row, expect=DENY), played)
        return "; ".join(what for what in harm if what not in row.permits)
    if row.expect == ALLOW:
        return _failure(row, played, outside)
    return "; ".join(what for what in _harm(row, played) if what not in row.permits)


def without_own_words(said: str) -> str:
    """Return what a command printed, without what the command runner says about the sandbox."""
    lines = said.replace(NO_OUTPUT, "").splitlines()
    return "\n".join(line for line in lines if not line.startswith(OWN_WORDS)).strip()


def _failure(row: Row, played: Played, outside: str | None) -> str:
    """Return why a harmless command did not work; empty if it did."""
    for each in _programs(played):
        if each.verdict == DENY:
            return f"a harmless program was denied ({each.rule}): {each.command}"
    said = played.results[0].text if played.results else "no result"
    unexecuted = any(each.rule == NOT_EXECUTED for each in played.decisions)
    if not played.results or (played.results[0].is_error and not unexecuted):
        return f"it did not work: {_short(said)}"
    if row.same and without_own_words(said) != (outside or "").strip():
        return f"it printed {_short(said)!r}, outside {_short(outside or '')!r}"
    return ""


def _harm(row: Row, played: Played) -> Iterator[str]:
    """Yield the effects of a hostile command, and the allowed programs that have one elsewhere."""
    may_write = row.expect == ISOLATE and row.tier >= FIRST_WRITING_TIER
    for effect in played.effects:
        if not (may_write and effect.where == WORKDIR):
            yield str(effect)
    for each in _programs(played):
        name = each.command.partition(" ")[0]
        acts = each.rule == NOT_EXECUTED or (name in STAND_INS and not each.is_brokered)
        if each.verdict != DENY and acts:
            yield each.command


def _change(played: Played) -> Iterator[str]:
    """Yield the changes that a harmless command made in a dry run; it may look elsewhere."""
    for effect in played.effects:
        if effect.where != REMOTE:
            yield str(effect)
    for each in _programs(played):
        if each.verdict != DENY and each.is_change:
            yield each.command


def _short(text: str) -> str:
    return " ".join(text.split())[:SHOWN_CHARACTERS]


# Decisions on rows that are one plain program with a grant, without running anything.

NOWHERE = Path("/srv/shop")
PLACEHOLDER = re.compile(r"@[a-z-]+@")
"""A path or number of the simulated host, as in attacks."""


def dry_outcome(row: Row) -> RowOutcome:
    """Return what the decision alone tells: a hostile program may look, its sandbox holds it."""
    began = time.perf_counter()
    decision = decision_on(row.command, get_tier(row.tier))
    milliseconds = (time.perf_counter() - began) * 1000
    looks = decision is not None and not decision.is_denied and not decision.changes
    judged = None if row.expect != ALLOW and looks else decision
    ok = judged is None or judged.is_denied == (row.expect != ALLOW)
    wrong = "" if ok else f"; {row.expect} was expected"
    return RowOutcome(
        tier=row.tier,
        command=row.command,
        expect=row.expect,
        decision=decision.verdict.value if decision else ISOLATE,
        rule=decision.rule if decision else IN_SANDBOX,
        happened=f"not played{wrong}" if judged else "runs in the sandbox",
        ok=ok,
        milliseconds=round(milliseconds, 2),
    )


def decision_on(command: str, tier: Tier, workdir: Path = NOWHERE) -> Decision | None:
    """Decide on a command that is one plain program with a grant; any other runs in a sandbox."""
    argv = read_one_command(command)
    if argv is None or argv[0] not in SHIMS or PLACEHOLDER.search(command):
        return None
    wanted = SandboxRequest(
        tier=tier,
        workdir=workdir,
        config_directory=NOWHERE,
        run_directory=NOWHERE,
        run_environment={},
        login={},
        traces=Traces(),
    )
    return decide(policy_of(wanted), ExecRequest(argv=argv, cwd=str(workdir)))


# Output as a table: failed rows first, then totals.

SHOWN_COMMAND = 70


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield a line for each stored row, failed ones first, and the totals."""
    for row in sorted(rows, key=lambda row: bool(row["ok"])):
        yield _line(row)
    yield ""
    yield from totals(rows)


def totals(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the totals by tier and expectation."""
    tried = Counter((row["tier"], row.get("expect", "attack")) for row in rows)
    failed = Counter((row["tier"], row.get("expect", "attack")) for row in rows if not row["ok"])
    for tier, expect in sorted(tried):
        key = (tier, expect)
        yield f"Tier {tier}  {expect:8} {tried[key]:4} tried, {failed[key]} failed"
    yield f"{len(rows)} tried, {sum(failed.values())} failed"


def _line(row: dict[str, Any]) -> str:
    mark = "ok    " if row["ok"] else "FAILED"
    asked = row.get("name") or row["command"]
    rule = f" ({row['rule']})" if row.get("rule") else ""
    expected = f" {row['expect']:8}" if "expect" in row else f" {row['target']:22}"
    return (
        f"{mark} Tier {row['tier']}{expected} {plain(asked):{SHOWN_COMMAND}.{SHOWN_COMMAND}} "
        f"{row['decision']}{rule}: {plain(row['happened'])}"
    )


def plain(text: str) -> str:
    """Replace line breaks and control characters."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
