"""What the gate may hold a command against, and what whoever is asked is told."""

from __future__ import annotations

import select
import threading
from typing import Any

import pytest

from escalation.agent import Bell
from escalation.gate.decision import Decision, Verdict
from escalation.next_step.lineage import lineage_of
from escalation.run import heard as heard_module
from escalation.run.heard import Heard, heard_in
from sessions_app.models import Cycle
from tests.factories import (
    CycleFactory,
    GateEventFactory,
    SessionEventFactory,
    SessionFactory,
)

pytestmark = pytest.mark.django_db
COMMAND = "docker restart web"
ALLOWED = Decision(verdict=Verdict.ALLOW, rule="understood", effects=(COMMAND,))


def said(text: str) -> dict[str, Any]:
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}


def called(command: str, call: str = "t1") -> dict[str, Any]:
    block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": command}}
    return {"type": "assistant", "message": {"content": [block]}}


def printed(output: str, call: str = "t1") -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": output}
    return {"type": "user", "message": {"content": [block]}}


def verdict(heard: Heard, decision: Decision = ALLOWED) -> Verdict:
    """As a thread of the tool runner asks, while the reader comes round."""
    found: list[Verdict] = []
    asking = threading.Thread(
        target=lambda: found.append(heard.review(COMMAND, decision).verdict), daemon=True
    )
    asking.start()
    while asking.is_alive():
        heard.came_round()
        asking.join(0.01)
    return found[0]


def test_what_a_tool_of_this_run_printed_counts():
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)))

    before = verdict(heard)
    heard.observe(printed(f"run {COMMAND}"))

    assert (before, verdict(heard)) == (Verdict.ALLOW, Verdict.ASK)


def test_what_the_model_said_does_not():
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)))
    heard.observe(said(f"I will run {COMMAND}"))
    heard.observe(called(COMMAND))

    assert verdict(heard) == Verdict.ALLOW


def test_a_result_that_quotes_its_own_command_does_not():
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)))
    heard.observe(called(COMMAND))
    heard.observe(printed(f"Permission to use Bash with command {COMMAND} has been denied."))

    assert verdict(heard) == Verdict.ALLOW


def test_what_the_gate_itself_said_does_not():
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)))
    reason = f"Run `{COMMAND}` by itself."
    heard.review("x", Decision(verdict=Verdict.DENY, rule="r", reason=reason))
    heard.observe(printed(f"exit 126\n{reason}"))

    assert verdict(heard) == Verdict.ALLOW


def test_tier_1_is_not_held_up():
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=1)))
    heard.observe(printed(COMMAND))

    assert heard.review(COMMAND, ALLOWED).verdict == Verdict.ALLOW


def test_what_the_tier_before_read_counts_without_what_the_gate_told_it():
    parent = SessionFactory(escalated=True)
    GateEventFactory(
        session=parent, sequence=1, verdict="deny", more={"reason": f"Not for Tier 1: {COMMAND}"}
    )
    SessionEventFactory(
        session=parent, sequence=2, kind="user", payload=printed(f"Not for Tier 1: {COMMAND}")
    )
    child = SessionFactory(running=True, tier=2, parent_session=parent, cycle=parent.cycle)
    only_ours = verdict(heard_in(lineage_of(child)))
    SessionEventFactory(session=parent, sequence=3, kind="user", payload=printed(COMMAND))

    assert only_ours == Verdict.ALLOW
    assert verdict(heard_in(lineage_of(child))) == Verdict.ASK


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [(Cycle.Trigger.MANUAL, Verdict.ALLOW), (Cycle.Trigger.SCHEDULE, Verdict.ASK)],
)
def test_a_request_of_a_person_names_it_and_that_of_an_unattended_trigger_does_not(
    trigger, expected
):
    cycle = CycleFactory(running=True, trigger=trigger, prompt=f"Please {COMMAND}.")
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2, cycle=cycle)))
    heard.observe(printed(COMMAND))

    assert verdict(heard) == expected


def test_a_reader_that_does_not_come_round_closes_the_gate(monkeypatch):
    monkeypatch.setattr(heard_module, "LONGEST_LAG_SECONDS", 0.05)
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)))

    with pytest.raises(TimeoutError):
        heard.review(COMMAND, ALLOWED)


def test_the_plan_is_what_was_said_since_the_last_result():
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)))
    heard.observe(said("Long ago."))
    heard.observe(printed("x"))
    heard.observe(said("web is down, so I restart it."))

    assert heard.last_words == "web is down, so I restart it."


def test_whoever_waits_for_the_reader_calls_it():
    """As often as it has to come round, so that no command waits for a tick."""
    bell = Bell()
    heard = heard_in(lineage_of(SessionFactory(running=True, tier=2)), bell)
    found: list[Verdict] = []
    asking = threading.Thread(
        target=lambda: found.append(heard.review(COMMAND, ALLOWED).verdict), daemon=True
    )

    with bell.hung():
        asking.start()
        while asking.is_alive() and select.select([bell], [], [], 5)[0]:
            bell.silence()
            heard.came_round()
            asking.join(0.05)

    assert found == [Verdict.ALLOW]
