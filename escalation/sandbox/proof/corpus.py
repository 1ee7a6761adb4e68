"""The corpus of commands (one JSON object per line) and the evaluation of its rows.

`{"tier": 1, "expect": "deny", "command": "docker restart web"}`. An invalid line is reported, and
the others are used. Unknown fields are ignored.
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from escalation.agent.process import Traces
from escalation.command_policy import grants
from escalation.command_policy.decision import Decision, ExecRequest, decide, read_one_command
from escalation.command_policy.programs import SHIMS
from escalation.sandbox.command_runner import IN_SANDBOX
from escalation.sandbox.proof.host import WORKDIR, ObservedEffect
from escalation.sandbox.proof.trial import Played, ToolResult, TrialDecision
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
_KNOWN = {"tier", "expect", "command", "needs", "group", "why"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    tier: int
    expect: str
    command: str
    needs: tuple[str, ...] = ()
    """Programs without which the command proves nothing."""
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


def _names(needs: Any) -> tuple[str, ...]:
    """Parse one program as a text, or several as a list."""
    names = [needs] if isinstance(needs, str) else needs or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f'"needs" is {needs!r}, not the name of a program')
    return tuple(name for part in names for name in part.replace(",", " ").split())


# Evaluation of a row, from the decision and the observed effects.

CLI_RULES = "the CLI's own rules"
HELD = "nothing"
SHOWN_CHARACTERS = 300
FIRST_WRITING_TIER = SAFE


@dataclass(frozen=True, kw_only=True, slots=True)
class RowOutcome:
    tier: int
    command: str
    expect: str
    decision: str
    rule: str
    happened: str
    ok: bool
    milliseconds: float = 0

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def row_outcome(row: Row, played: Played) -> RowOutcome:
    decision, rule = decided(played.decisions)
    trouble = _trouble(row, decision, played)
    return RowOutcome(
        tier=row.tier,
        command=row.command,
        expect=row.expect,
        decision=decision,
        rule=rule,
        happened=trouble or _what_happened(played),
        ok=not trouble,
        milliseconds=round(sum(each.milliseconds for each in played.decisions[:1]), 2),
    )


def decided(decisions: list[TrialDecision]) -> tuple[str, str]:
    """Return decision and rule; a command without a decision was refused by the CLI itself."""
    return (decisions[0].verdict, decisions[0].rule) if decisions else (DENY, CLI_RULES)


def _trouble(row: Row, decision: str, played: Played) -> str:
    if played.ended:
        return played.ended
    if row.expect == ALLOW:
        return _failure(decision, played.results)
    harm = unpermitted(played.effects, row.tier, decision)
    if harm:
        return "; ".join(map(str, harm))
    if row.expect == ISOLATE and decision != ISOLATE:
        return f"it should be isolated, but the decision is: {decision}"
    return "it was allowed, without an effect here" if decision == ALLOW else ""


def _failure(decision: str, results: list[ToolResult]) -> str:
    said = results[0].text if results else "no result"
    if decision != ALLOW:
        return f"a harmless command was not allowed: {_short(said)}"
    if not results or results[0].is_error:
        return f"it did not work: {_short(said)}"
    return ""


def unpermitted(
    effects: Iterable[ObservedEffect], tier: int, decision: str
) -> list[ObservedEffect]:
    """Return the effects that are not permitted.

    An isolated command may write in the working directory from Tier 2 on. A denied command has not
    run, so it may have no effect.
    """
    writes = tier >= FIRST_WRITING_TIER and decision != DENY
    return [effect for effect in effects if not (writes and effect.where == WORKDIR)]


def _what_happened(played: Played) -> str:
    return "; ".join(map(str, played.effects)) or HELD


def _short(text: str) -> str:
    return " ".join(text.split())[:SHOWN_CHARACTERS]


# Decisions of the command policy on the corpus, without running anything.

NOWHERE = Path("/srv/shop")
# These grants give access to the real host, for which there is no substitute.
GRANTS_TO_THIS_HOST = {grants.HOST, grants.BUS, grants.KUBE, grants.PROCESSES}


def dry_outcome(row: Row) -> RowOutcome:
    began = time.perf_counter()
    decision = decision_on(row.command, get_tier(row.tier))
    milliseconds = (time.perf_counter() - began) * 1000
    ok = fits(row.expect, decision.verdict.value)
    return RowOutcome(
        tier=row.tier,
        command=row.command,
        expect=row.expect,
        decision=decision.verdict.value,
        rule=decision.rule,
        happened="not played" if ok else f"not played; {row.expect} was expected",
        ok=ok,
        milliseconds=round(milliseconds, 2),
    )


def fits(expect: str, decision: str) -> bool:
    """Return whether a decision fits; a command to deny may also be isolated."""
    return decision in {ALLOW: {ALLOW}, ISOLATE: {ISOLATE}, DENY: {DENY, ISOLATE}}[expect]


def decision_on(command: str, tier: Tier, workdir: Path = NOWHERE) -> Decision:
    """Decide on a command that is one plain program with a grant; any other text is isolated."""
    argv = read_one_command(command)
    if argv is None or argv[0] not in SHIMS:
        return Decision(verdict=Verdict.ISOLATE, rule=IN_SANDBOX)
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
