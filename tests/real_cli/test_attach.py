"""A person talks to the real CLI in a terminal, in the conversation of an ended session."""

from __future__ import annotations

import os
import signal
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escalation.agent.process import Terminal
from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.run.terminal import attach
from sessions_app.archive.transcripts import latest_project
from sessions_app.models import Conversation, Session
from tests.escalation.rows import notes_of
from tests.factories import user_with
from tests.real_cli.conftest import report_call

FIRST = Reply(say="Fine.", calls=(report_call(),))
PATIENCE_SECONDS = 60


Step = tuple[str, Callable[[], None] | str]


class Person(threading.Thread):
    """Waits until a text is on the terminal or in a transcript, and then types or acts."""

    def __init__(self, transcripts: Path, *steps: Step) -> None:
        super().__init__(daemon=True)
        self.master, self.slave = os.openpty()
        termios.tcsetwinsize(self.slave, (40, 120))
        os.set_blocking(self.master, False)
        self._transcripts = transcripts
        self._steps = steps
        self._shown = b""
        self.missed = ""
        """The text for which it waited in vain."""

    @property
    def terminal(self) -> Terminal:
        return Terminal(self.slave, self.slave)

    def run(self) -> None:
        for awaited, act in self._steps:
            until = time.monotonic() + PATIENCE_SECONDS
            while not self._sees(awaited):
                if time.monotonic() > until:
                    self.missed = awaited
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
            self._look(1.0)  # the CLI draws in several steps
            if callable(act):
                act()
                continue
            os.write(self.master, act.encode())
            self._look(0.5)  # keys that come together are a paste
            os.write(self.master, b"\r")
        while self._look(0.2):
            pass

    def _sees(self, text: str) -> bool:
        self._look(0.2)
        written = (path.read_text() for path in self._transcripts.rglob("*.jsonl"))
        return text.encode() in self._shown or any(f'"{text}"' in each for each in written)

    def _look(self, seconds: float) -> bool:
        """Read what is shown, so that the CLI is not blocked. Return False at the end."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.05)
            try:
                self._shown += os.read(self.master, 65536)
            except BlockingIOError:
                continue
            except OSError:
                return False
        return True


@pytest.fixture
def person(own_state: Path) -> Iterator[Callable[..., Person]]:
    made: list[Person] = []

    def start(*steps: Step) -> Person:
        made.append(Person(own_state / "claude", *steps))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        os.close(each.slave)
        each.join(5)
        os.close(each.master)
        assert not each.missed


def said(session: Session) -> str:
    return str([event.payload for event in session.events.filter(source="stream")])


def test_what_is_said_in_a_terminal_is_a_session_of_its_own(scripted_api, watch_cycle, person):
    looks = ScriptedToolCall(tool="Bash", input={"command": "ls -a", "description": "Look"})
    api = scripted_api(FIRST, Reply(say="I look.", calls=(looks,)), Reply(say="Nothing here."))
    first = watch_cycle.run().sessions.get()
    operator = user_with("operator", username="grace")
    ada = person(
        ("❯", "What is here?"),
        ("Nothing here.", "!ls -d ."),
        ("There is nothing more to add.", "/exit"),
    )

    attached = attach(first, ada.terminal, by=operator)

    assert (attached.status, attached.purpose) == ("completed", "attached")
    assert (attached.parent_session_id, attached.tier) == (first.pk, first.tier)
    assert attached.session_id not in ("", first.session_id)
    assert "What is here?" in said(attached)
    assert "Nothing here." in said(attached)
    assert "Fine." not in said(attached)
    judged = attached.events.filter(kind="command").order_by("pk")
    assert list(judged.values_list("payload__command", "payload__verdict")) == [
        ("ls -a", "isolate"),
        ("ls -a", "allow"),
        ("ls -d .", "isolate"),
        ("ls -d .", "allow"),
    ]
    assert "Attached by grace." in notes_of(attached, "decision")
    assert attached.input_tokens > 0
    assert attached.cost_usd is not None
    assert (attached.cost_basis, attached.cost_usd > 0) == ("telemetry", True)
    asked = [request.text() for request in api.requests if request.main]
    assert "What is here?" in asked[1]
    assert "Fine." in asked[1]
    assert latest_project(attached.session_id) is not None
    attached.cycle.refresh_from_db()
    assert (attached.cycle.state, attached.cycle.outcome) == ("finished", "healthy")
    assert not Conversation.objects.exclude(in_use_by=None).exists()


@pytest.mark.prove
@pytest.mark.parametrize("cli_version", ["2.0.77"], indirect=True)
def test_what_the_oldest_cli_does_in_a_terminal_goes_through_the_policy_of_tier_2(
    scripted_api, watch_cycle, person, cli_version
):
    def runs(command: str) -> Reply:
        call = {"command": command, "description": "Do it"}
        return Reply(say="I do it.", calls=(ScriptedToolCall(tool="Bash", input=call),))

    scripted_api(
        FIRST,
        Reply(say="Reported."),  # it asks once more after its report
        runs("systemctl restart no-such-unit"),
        runs("systemctl stop claudeops-worker"),
        Reply(say="Both are done."),
    )
    first = watch_cycle.run(tier=2).sessions.get()
    ada = person(("❯", "Restart it, and stop the worker."), ("Both are done.", "/exit"))

    attached = attach(first, ada.terminal, by=user_with("operator", username="grace"))

    assert (attached.status, attached.tier, attached.cli_version[:6]) == ("completed", 2, "2.0.77")
    judged = attached.events.filter(kind="command", payload__command__startswith="systemctl")
    verdicts = dict(judged.order_by("pk").values_list("payload__command", "payload__verdict"))
    assert verdicts == {
        "systemctl restart no-such-unit": "allow",
        "systemctl stop claudeops-worker": "deny",
    }
    assert [change.action for change in attached.changes.all()] == [
        "systemctl restart no-such-unit"
    ]


def test_ctrl_c_leaves_the_cli_and_keeps_what_was_said(scripted_api, watch_cycle, person):
    scripted_api(FIRST, Reply(say="I think about it."))
    first = watch_cycle.run().sessions.get()

    def press() -> None:
        for _ in range(2):
            os.write(ada.master, b"\x03")
            time.sleep(0.3)

    ada = person(("❯", "What is here?"), ("I think about it.", press))

    attached = attach(first, ada.terminal, by=user_with("operator", username="grace"))

    assert (attached.status, attached.stop_cause) == ("completed", "")
    assert "I think about it." in said(attached)


def test_a_lost_connection_keeps_what_was_said(scripted_api, watch_cycle, person):
    scripted_api(FIRST, Reply(say="I think about it."))
    first = watch_cycle.run().sessions.get()
    operator = user_with("operator", username="grace")

    def hang_up() -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    ada = person(("❯", "What is here?"), ("I think about it.", hang_up))

    attached = attach(first, ada.terminal, by=operator)

    assert (attached.status, attached.stop_cause) == ("completed", "foreground")
    assert "What is here?" in said(attached)
    assert "I think about it." in said(attached)
    assert attached.cost_usd is not None
    assert (attached.cost_basis, attached.cost_usd > 0) == ("telemetry", True)
    assert attached.finished_at is not None
