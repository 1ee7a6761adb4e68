"""The differential test: its texts, its comparison, and some thousand texts in real sandboxes."""

from __future__ import annotations

from collections import Counter

import pytest

from escalation.command_policy.decision import Decision, ExecRequest
from escalation.command_policy.understanding import Argv
from escalation.sandbox.proof.differential import (
    TOO_LONG,
    Asked,
    Records,
    compare,
    compare_texts,
    differential,
    texts,
)
from escalation.sandbox.proof.host import ProofHost
from sessions_app.models.session import Verdict

UPTIME = ("ssh", "--", "nas", "uptime")
REBOOT = ("ssh", "--", "nas", "reboot")


def decide_on(request: ExecRequest) -> Decision:
    """Allow everything but a reboot, with `--` behind the program."""
    if "reboot" in request.argv:
        return Decision(verdict=Verdict.DENY, rule="needs Tier 3")
    program, *rest = request.argv
    return Decision(verdict=Verdict.ALLOW, rule="understood", argv=(program, "--", *rest))


def asked(*words: str) -> Asked:
    return Asked(argv=words, cwd="/srv")


def found(records: Records, *, complete: bool = True) -> list[tuple[str, str]]:
    outcome = compare(1, records, decide_on, complete=complete)
    return [(each.command, each.happened) for each in outcome.differences]


def test_a_vector_that_the_policy_returned_is_no_difference():
    assert found(Records(asked=[asked("ssh", "nas", "uptime")], ran=[UPTIME])) == []


def test_a_vector_that_ran_without_being_asked_for_is_a_difference():
    assert found(Records(ran=[UPTIME])) == [
        ("ssh -- nas uptime", "ran without a decision that allows it")
    ]


def test_a_denied_vector_that_ran_is_a_difference():
    records = Records(asked=[asked("ssh", "nas", "reboot")], ran=[REBOOT])

    assert [command for command, _what in found(records)] == ["ssh -- nas reboot"]


def test_a_vector_that_ran_twice_for_one_decision_is_a_difference():
    records = Records(asked=[asked("ssh", "nas", "uptime")], ran=[UPTIME, UPTIME])

    assert len(found(records)) == 1


def test_a_vector_that_ran_with_other_words_is_a_difference():
    records = Records(asked=[asked("ssh", "nas", "uptime")], ran=[(*UPTIME, "-p")])

    assert len(found(records, complete=False)) == 1


def test_an_allowed_vector_that_did_not_run_is_a_difference_if_all_texts_ended():
    records = Records(asked=[asked("ssh", "nas", "uptime")])

    assert found(records) == [("ssh -- nas uptime", "was allowed and did not run")]
    assert found(records, complete=False) == []


def test_a_program_of_a_stopped_text_may_run_beside_the_next_texts_once():
    late: Counter[Argv] = Counter()
    stopped = Records(asked=[asked("ssh", "nas", "uptime")])
    later = Records(ran=[UPTIME, UPTIME])

    first = compare(1, stopped, decide_on, complete=False, late=late)
    second = compare(1, later, decide_on, complete=True, late=late)
    third = compare(1, Records(ran=[UPTIME]), decide_on, complete=True, late=late)

    assert [len(each.differences) for each in (first, second, third)] == [0, 1, 1]


def test_a_pkill_that_finds_no_process_is_seen_at_both_ends(host: ProofHost):
    with differential(host, 2) as each:
        outcome = each.run(["pkill -x no-such-process"])

    assert (outcome.asked, outcome.allowed, outcome.ran) == (1, 1, 1)
    assert outcome.differences == []


def test_vectors_that_are_too_long_to_be_recorded_are_not_compared():
    assert found(Records(asked=[asked("ssh", TOO_LONG)], ran=[("ssh", TOO_LONG)])) == []


def test_the_same_seed_gives_the_same_different_texts():
    some = texts(500, seed=3)

    assert some == texts(500, seed=3)
    assert len(set(some)) == 500
    assert some != texts(500, seed=4)


def test_an_executed_vector_is_seen_at_both_ends(host: ProofHost):
    with differential(host, 1) as each:
        outcome = each.run(["s'yst'emctl status $'ngi\\x6ex'; systemctl restart nginx"])

    assert (outcome.asked, outcome.allowed, outcome.ran) == (2, 1, 1)
    assert outcome.differences == []


def test_a_text_that_ends_the_driver_leaves_its_batch_unfinished(host: ProofHost):
    with differential(host, 1) as each:
        outcome = each.run(["systemctl status nginx; kill -9 $PPID"])

    assert (outcome.ran, outcome.unfinished, outcome.differences) == (1, 1, [])


def test_what_the_runner_executes_beside_the_policy_is_found(host: ProofHost):
    with differential(host, 1) as each:
        each.decide_on = decide_on
        outcome = each.run(["systemctl status nginx"])

    assert {each.command for each in outcome.differences} == {
        "systemctl --no-pager status nginx",
        "systemctl -- status nginx",
    }


def test_a_program_runs_also_where_its_caller_closed_its_descriptors(host: ProofHost):
    """The connection of its client must not take their place."""
    closed = ("<&-", ">&-", "2>&-", ">&- <&-", ">&- 2>&-", "<&- 2>&-", "<&- >&- 2>&-")
    texts = [f"systemctl cat nginx {each}" for each in closed]
    texts += [f"exec {closed[-1]}; systemctl status nginx", f"nohup docker ps {closed[-1]} &"]
    with differential(host, 1) as each:
        outcome = each.run(texts)

    assert (outcome.asked, outcome.allowed, outcome.ran) == (len(texts),) * 3
    assert (outcome.unfinished, outcome.differences) == (0, [])


def test_a_vector_of_pgrep_is_seen_once(host: ProofHost):
    """Its client executes itself again, without the words."""
    with differential(host, 1) as each:
        outcome = each.run(["pgrep -x nginx; /usr/bin/pgrep -f 'a b'"])

    assert (outcome.asked, outcome.allowed, outcome.ran) == (2, 2, 2)
    assert outcome.differences == []


@pytest.mark.timeout(300)
def test_some_hundred_texts_have_no_difference(host: ProofHost):
    outcome = compare_texts(host, 300, 1, lambda line: None)

    assert outcome.differences == []
    assert outcome.texts == 300
    assert min(outcome.asked, outcome.ran) > 60


@pytest.mark.prove
def test_some_thousand_texts_have_no_difference(host: ProofHost):
    outcome = compare_texts(host, 5000, 1, lambda line: None)

    assert outcome.differences == []
    assert outcome.texts == 5000
    assert min(outcome.asked, outcome.ran) > 1000
