"""What the gate says to a command of the corpus, without running anything."""

from __future__ import annotations

import time
from pathlib import Path

from escalation.agent import Traces
from escalation.gate import doors
from escalation.gate.decision import Decision, Verdict, decide
from escalation.rehearsal.walls.corpus import ALLOW, CONTAIN, DENY, Row
from escalation.rehearsal.walls.outcome import RowOutcome
from escalation.run.walls import WallsWanted, policy_of
from escalation.tiers import LOWEST_TIER, Tier, get_tier

NOWHERE = Path("/srv/shop")
# Behind these doors is the operator's own machine, of which there is no stand-in.
DOORS_TO_THIS_HOST = {doors.HOST, doors.BUS, doors.KUBE, doors.PROCESSES}


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
    """A hostile command may be contained as well: by effect there is no difference."""
    return decision in {ALLOW: {ALLOW}, CONTAIN: {CONTAIN}, DENY: {DENY, CONTAIN}}[expect]


def decision_on(command: str, tier: Tier, workdir: Path = NOWHERE) -> Decision:
    wanted = WallsWanted(
        tier=tier,
        workdir=workdir,
        config_directory=NOWHERE,
        run_directory=NOWHERE,
        surroundings={},
        login={},
        traces=Traces(),
    )
    return decide(policy_of(wanted), command)


def would_act_on_this_host(row: Row) -> bool:
    """Whether playing it would change the operator's own system: a real service restarted.

    What the lowest tier may do as well only looks, whatever door it needs.
    """
    decision = decision_on(row.command, get_tier(row.tier))
    if decision.verdict != Verdict.ALLOW or not decision.doors & DOORS_TO_THIS_HOST:
        return False
    lowest = decision_on(row.command, get_tier(LOWEST_TIER))
    return lowest.verdict != Verdict.ALLOW or row.expect != ALLOW
