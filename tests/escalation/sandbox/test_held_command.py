"""A command that needs approval, with the real client and real sandboxes."""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import pytest

from escalation.command_policy.decision import Decision, ExecRequest
from escalation.sandbox.command_runner import ApprovalAnswer, ApprovalQuestion, CommandRunner
from escalation.sandbox.layout import RunPaths
from escalation.sandbox.limits import SandboxLimits
from escalation.sandbox.setup import write_client
from sessions_app.models.session import Verdict
from tests.escalation.sandbox.running import Running, allowed, running, wait_until

ASK = Decision(
    verdict=Verdict.ASK,
    rule="asked by Bash(touch:*)",
    reason="The operator wants to.",
    grant="network",
    argv=("touch", "made"),
)
TEXT = "curl http://example.org"
"""A program that is a shim; the decision makes `touch made` of it."""


class Asking:
    def __init__(self) -> None:
        self.questions: list[ApprovalQuestion] = []
        self.decision = ASK

    def decide(self, request: ExecRequest) -> Decision:
        return self.decision

    def the_question(self) -> ApprovalQuestion:
        wait_until(lambda: self.questions)
        return self.questions[-1]


SAME_AGAIN = "run exactly the same command again"


@contextmanager
def holding(
    host, asking: Asking, limits: SandboxLimits | None = None, paths: RunPaths | None = None
) -> Iterator[Running]:
    found = Running(paths or host.paths(writable=True))
    write_client(found.paths.run_directory)
    runner = CommandRunner(
        found.paths,
        asking.decide,
        found.decisions.append,
        lambda record, end: found.ends.append(end),
        ask=asking.questions.append,
        limits=limits,
    )
    found.runner = runner
    with runner.serving():
        yield found


def made(host) -> bool:
    return (host.root / "system/made").exists()


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_it_waits_and_runs_once_it_is_approved(own_host, asking):
    with holding(own_host, asking) as runner, runner.start(f"{TEXT}; echo fine") as client:
        question = asking.the_question()
        waited = client.poll() is None and not made(own_host)
        question.settle(ApprovalAnswer(approved=True))
        said, _ = client.communicate(timeout=20)

    assert waited
    assert (said, client.returncode, made(own_host)) == ("fine\n", 0, True)
    assert question.began
    assert [end.location for end in runner.ends] == ["sandbox", "sandbox"]


def test_a_rejected_command_does_not_run_and_returns_the_note(own_host, asking):
    with holding(own_host, asking) as runner, runner.start(TEXT) as client:
        asking.the_question().settle(ApprovalAnswer(approved=False, words="Not on a Friday."))
        _, complained = client.communicate(timeout=20)

    assert (client.returncode, made(own_host)) == (126, False)
    assert complained.splitlines()[-1] == "Not on a Friday."
    ended = [(end.exit_code, end.location, end.has_run) for end in runner.ends]
    assert ended == [(126, "", False), (126, "sandbox", True)]


def test_the_decision_is_repeated_after_the_approval(own_host, asking):
    with holding(own_host, asking) as runner, runner.start(TEXT) as client:
        question = asking.the_question()
        asking.decision = Decision(verdict=Verdict.DENY, rule="cooldown", reason="Too often.")
        question.settle(ApprovalAnswer(approved=True))
        _, complained = client.communicate(timeout=20)

    assert "the decision has changed" in complained
    assert (client.returncode, made(own_host), question.began) == (126, False, False)


def test_the_question_stays_open_when_the_cli_cancels(own_host, asking):
    with holding(own_host, asking) as runner, runner.start(TEXT) as client:
        question = asking.the_question()
        client.send_signal(signal.SIGTERM)
        _, complained = client.communicate(timeout=20)

    assert question.left
    assert complained.count(SAME_AGAIN) == 1
    assert not made(own_host)


def test_what_to_do_is_said_before_the_cli_can_kill_the_call(own_host, asking):
    with holding(own_host, asking) as runner, runner.start(TEXT) as client:
        said = client.stderr.readline() + client.stderr.readline()
        waits = asking.the_question().answer is None
        client.kill()

    assert waits
    assert TEXT in said
    assert SAME_AGAIN in said


def test_what_to_do_is_said_where_there_is_no_sandbox(own_host, asking):
    paths = replace(own_host.paths(writable=True), sandboxed=False)
    with holding(own_host, asking, paths=paths) as runner, runner.start(TEXT) as client:
        asking.the_question().settle(ApprovalAnswer(approved=False, words="No."))
        _, complained = client.communicate(timeout=20)

    assert complained.count(SAME_AGAIN) == 1


def test_a_program_that_the_text_itself_stops_leaves_its_question_open(own_host, asking):
    with holding(own_host, asking) as runner:
        said = runner.call(f"timeout 1 {TEXT} 2>/dev/null; echo on")

    assert asking.the_question().left
    assert (said.stdout, said.returncode) == ("on\n", 0)
    assert said.stderr.count(SAME_AGAIN) == 1


def test_a_change_at_a_broker_leaves_its_question_open_with_its_client(own_host, asking):
    """A client of Docker or Kubernetes waits at the broker, which does not know its Bash call."""
    client, connection = socket.socketpair()
    with client, connection, holding(own_host, asking) as runner:
        wait = partial(runner.runner.judge, lambda: ASK, "docker restart web", parent="docker")
        waiting = threading.Thread(target=wait, kwargs={"waiting": connection})
        with runner.start("echo on; sleep 60") as call:
            assert call.stdout.readline() == "on\n"
            waiting.start()
            question = asking.the_question()
            client.sendall(b"more of the request")
            said = call.stderr.readline() + call.stderr.readline()
            call.kill()
        waits_on = not question.left
        client.close()
        waiting.join(20)

    assert waits_on
    assert question.left
    assert "docker restart web" in said
    assert SAME_AGAIN in said


def test_the_question_stays_open_when_the_client_dies(own_host, asking):
    with holding(own_host, asking) as runner:
        with runner.start(TEXT) as client:
            question = asking.the_question()
            client.kill()
        wait_until(lambda: question.left)

    assert not made(own_host)


def test_an_answer_after_the_client_disconnected_starts_nothing(own_host, asking):
    with holding(own_host, asking) as runner:
        with runner.start(TEXT) as client:
            question = asking.the_question()
            client.kill()
            client.wait(20)
            question.settle(ApprovalAnswer(approved=True))
        wait_until(lambda: question.left)

    assert not made(own_host)
    assert not question.began


def test_the_end_of_the_run_ends_the_waiting(own_host, asking):
    with holding(own_host, asking) as runner:
        client = runner.start(TEXT)
        question = asking.the_question()
    with client:
        client.communicate(timeout=20)

    assert question.left
    assert client.returncode in (126, 137)
    assert not made(own_host)


def test_waiting_commands_take_no_slot(own_host, asking):
    with holding(own_host, asking) as runner:
        loop = f"for i in {' '.join('x' * 40)}; do {TEXT} & done; wait"
        clients = [runner.start(loop)]
        wait_until(lambda: len(asking.questions) == 40)
        asking.decision = allowed("network", "echo", "still here")
        said = runner.call(TEXT)
        for question in asking.questions:
            question.settle(ApprovalAnswer(approved=False, words="No."))
        for client in clients:
            with client:
                client.communicate(timeout=20)

    assert said.stdout == "still here\n"


def test_does_not_run_without_an_approver(own_host):
    with running(own_host.paths(writable=True), ASK) as runner:
        said = runner.call(TEXT)

    assert said.returncode == 126
    assert "No approver" in said.stderr


def test_a_command_over_its_time_limit_is_ended(own_host, asking):
    with holding(own_host, asking, SandboxLimits(longest_seconds=0.5)) as runner:
        said = runner.call("sleep 60")

    assert "It ran for more than" in said.stderr
    assert said.returncode != 0
