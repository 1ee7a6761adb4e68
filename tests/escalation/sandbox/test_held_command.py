"""A command that a person has to approve, with the real client and real rooms."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from escalation.gate.decision import Decision, Verdict
from escalation.rooms.client import write_client
from escalation.rooms.limits import Limits
from escalation.rooms.questions import Answer, Question
from escalation.rooms.tool_runner import ToolRunner
from tests.escalation.rooms.running import Running, allowed, running, wait_until

ASK = Decision(verdict=Verdict.ASK, rule="asked by Bash(touch:*)", reason="The operator wants to.")


class Asking:
    def __init__(self) -> None:
        self.questions: list[Question] = []
        self.decision = ASK

    def decide(self, command: str) -> Decision:
        return self.decision

    def the_question(self) -> Question:
        wait_until(lambda: self.questions)
        return self.questions[-1]


@contextmanager
def holding(host, asking: Asking, limits: Limits | None = None) -> Iterator[Running]:
    found = Running(host.place(writable=True))
    write_client(found.place.run_directory)
    runner = ToolRunner(
        found.place,
        asking.decide,
        found.decisions.append,
        lambda record, end: found.ends.append(end),
        ask=asking.questions.append,
        limits=limits,
    )
    with runner.serving():
        yield found


def made(host) -> bool:
    return (host.root / "system/made").exists()


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_it_waits_and_runs_once_it_is_approved(own_host, asking):
    with holding(own_host, asking) as runner, runner.start("touch made; echo fine") as client:
        question = asking.the_question()
        waited = client.poll() is None and not made(own_host)
        question.settle(Answer(approved=True))
        said, _ = client.communicate(timeout=20)

    assert waited
    assert (said, client.returncode, made(own_host)) == ("fine\n", 0, True)
    assert question.began
    assert [end.room for end in runner.ends] == ["room"]


def test_a_rejection_is_told_and_nothing_runs(own_host, asking):
    with holding(own_host, asking) as runner, runner.start("touch made") as client:
        asking.the_question().settle(Answer(approved=False, words="Not on a Friday."))
        _, complained = client.communicate(timeout=20)

    assert (client.returncode, complained, made(own_host)) == (126, "Not on a Friday.\n", False)
    ended = [(end.exit_code, end.room, end.has_run) for end in runner.ends]
    assert ended == [(126, "", False)]


def test_it_is_judged_again_before_it_starts(own_host, asking):
    with holding(own_host, asking) as runner, runner.start("touch made") as client:
        question = asking.the_question()
        asking.decision = Decision(verdict=Verdict.DENY, rule="cooldown", reason="Too often.")
        question.settle(Answer(approved=True))
        _, complained = client.communicate(timeout=20)

    assert "is judged otherwise by now" in complained
    assert (client.returncode, made(own_host), question.began) == (126, False, False)


def test_the_cli_that_gives_up_leaves_the_question(own_host, asking):
    with holding(own_host, asking) as runner, runner.start("touch made") as client:
        question = asking.the_question()
        client.send_signal(signal.SIGTERM)
        _, complained = client.communicate(timeout=20)

    assert question.left
    assert "run the very same command again to find the answer" in complained
    assert not made(own_host)


def test_a_client_that_dies_leaves_the_question(own_host, asking):
    with holding(own_host, asking) as runner:
        with runner.start("touch made") as client:
            question = asking.the_question()
            client.kill()
        wait_until(lambda: question.left)

    assert not made(own_host)


def test_an_answer_in_the_moment_of_leaving_starts_nothing(own_host, asking):
    with holding(own_host, asking) as runner:
        with runner.start("touch made") as client:
            question = asking.the_question()
            client.kill()
            client.wait(20)
            question.settle(Answer(approved=True))
        wait_until(lambda: question.left)

    assert not made(own_host)
    assert not question.began


def test_the_end_of_the_run_ends_the_waiting(own_host, asking):
    with holding(own_host, asking) as runner:
        client = runner.start("touch made")
        question = asking.the_question()
    with client:
        client.communicate(timeout=20)

    assert question.left
    assert client.returncode == 126
    assert not made(own_host)


def test_commands_that_wait_keep_no_place_from_the_others(own_host, asking):
    with holding(own_host, asking) as runner:
        clients = [runner.start("touch made") for _ in range(20)]
        wait_until(lambda: len(asking.questions) == 20)
        asking.decision = allowed()
        said = runner.call("echo still here")
        for question in asking.questions:
            question.settle(Answer(approved=False, words="No."))
        for client in clients:
            with client:
                client.communicate(timeout=20)

    assert said.stdout == "still here\n"


def test_where_nobody_can_be_asked_it_does_not_run(own_host):
    with running(own_host.place(writable=True), ASK) as runner:
        said = runner.call("touch made")

    assert said.returncode == 126
    assert "Nobody can be asked here" in said.stderr


def test_what_runs_for_too_long_is_ended_where_the_clis_own_time_out_was_raised(own_host, asking):
    asking.decision = allowed()
    with holding(own_host, asking, Limits(longest_seconds=0.5)) as runner:
        said = runner.call("sleep 60")

    assert "It ran for more than" in said.stderr
    assert said.returncode != 0
