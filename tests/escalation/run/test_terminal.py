"""The conversation of a session is opened in a terminal, or refused, or recovered."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.management import call_command

from escalation.agent.process import Manner, StopAsked, Terminal, Watcher, run_in_terminal
from escalation.errors import RefusalCode
from escalation.run.terminal import attach, require_attachable
from escalation.supervisor import manual
from sessions_app.models import (
    Approval,
    Conversation,
    Cycle,
    PauseSwitch,
    Session,
    Transcript,
    Watch,
)
from tests.escalation.recovery_cases import answer, orphan, prompt, recovered, uuids
from tests.escalation.recovery_cases import write_transcript as write
from tests.escalation.refusals import command_refused, refused
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import run
from tests.factories import CycleFactory, SessionFactory, user_with

pytestmark = pytest.mark.django_db
Status, Purpose = Session.Status, Session.Purpose


@pytest.fixture
def finished(fake_cli, session) -> Session:
    fake_cli.reports(HEALTHY)
    return run(session)


def nothing(session: Session) -> None:
    pass


def reopen(session: Session) -> None:
    Cycle.objects.filter(pk=session.cycle_id).update(state=Cycle.State.RUNNING)


def remove_watch(session: Session) -> None:
    Watch.objects.filter(pk=session.cycle.watch_id).delete()


def pause(session: Session) -> None:
    PauseSwitch.objects.update_or_create(pk=1, defaults={"paused": True, "reason": "upgrade"})


def retire(session: Session) -> None:
    Conversation.retire(session.session_id, "too long")


def hold(session: Session) -> None:
    assert Conversation.take(session.session_id, SessionFactory(running=True))


def remove_transcripts(session: Session) -> None:
    for path in Path(session.config_dir).rglob("*.jsonl"):
        path.unlink()
    Transcript.objects.filter(session_id=session.session_id).delete()


def run_again(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(status=Status.RUNNING)


def make_ephemeral(session: Session) -> None:
    Cycle.objects.filter(pk=session.cycle_id).update(ephemeral=True)


def lower_the_level(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(tier=2)
    Cycle.objects.filter(pk=session.cycle_id).update(max_tier=1)


def require_approval(session: Session) -> None:
    Session.objects.filter(pk=session.pk).update(tier=2)
    Cycle.objects.filter(pk=session.cycle_id).update(approval="2")


@pytest.mark.parametrize(
    ("role", "change", "code"),
    [
        ("viewer", nothing, RefusalCode.NOT_PERMITTED),
        ("operator", require_approval, RefusalCode.NOT_PERMITTED),
        ("operator", run_again, RefusalCode.SESSION_STATUS),
        ("operator", remove_watch, RefusalCode.WATCH_REMOVED),
        ("operator", pause, RefusalCode.PAUSED),
        ("operator", reopen, RefusalCode.CYCLE_ACTIVE),
        ("operator", lower_the_level, RefusalCode.POLICY),
        ("operator", retire, RefusalCode.NO_CONVERSATION),
        ("operator", hold, RefusalCode.IN_USE),
        ("operator", make_ephemeral, RefusalCode.NO_CONVERSATION),
        ("operator", remove_transcripts, RefusalCode.NO_CONVERSATION),
    ],
)
def test_a_session_that_cannot_be_attached_is_refused(
    finished, role: str, change: Callable[[Session], None], code: RefusalCode
):
    change(finished)
    changed = Session.objects.select_related("cycle__watch").get(pk=finished.pk)
    before = Session.objects.count()

    with refused(code):
        attach(changed, Terminal(0, 1), by=user_with(role))

    assert Session.objects.count() == before


def test_a_full_installation_creates_no_session(finished, settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory(running=True)
    before = Session.objects.count()

    with refused(RefusalCode.IN_USE):
        attach(finished, Terminal(0, 1), by=user_with("operator"))

    assert Session.objects.count() == before
    finished.cycle.refresh_from_db()
    assert finished.cycle.state == Cycle.State.FINISHED


def test_an_approver_may_attach_a_tier_that_needs_approval(finished):
    require_approval(finished)
    changed = Session.objects.select_related("cycle__watch").get(pk=finished.pk)

    require_attachable(changed, by=user_with("approver"))

    assert not Approval.objects.exists()


def test_a_command_without_a_terminal_is_refused():
    with command_refused(RefusalCode.NO_TERMINAL):
        call_command("session", "attach", str(SessionFactory().pk))


def test_an_attached_session_whose_terminal_was_killed_keeps_what_was_said(tmp_path):
    cycle = CycleFactory(outcome="healthy", outcome_reason="All is well.", state="running")
    parent = SessionFactory(cycle=cycle)
    session = orphan(
        tmp_path,
        seen=False,
        cycle=cycle,
        parent_session=parent,
        purpose=Purpose.ATTACHED,
        continued_by="resume",
        requested_by=user_with("operator", username="grace"),
    )
    write(session, answer("of the parent", seconds=-600), prompt("asked"), answer("told"))

    after, _done = recovered(session)

    assert (after.status, after.session_id) == (Status.INTERRUPTED, session.session_id)
    assert uuids(session) == ["asked", "told"]
    assert after.escalation_reason.startswith("Attached by grace.")
    assert not session.children.exists()
    cycle.refresh_from_db()
    assert (cycle.state, cycle.outcome, cycle.outcome_reason) == (
        *("finished", "healthy"),
        "All is well.",
    )


def test_an_attached_session_cannot_be_retried():
    session = SessionFactory(purpose=Purpose.ATTACHED, status=Status.INTERRUPTED)

    with refused(RefusalCode.SESSION_STATUS):
        manual.retry(session)


ECHO = """
import os, sys, tty
tty.setraw(0)
os.write(1, b"ready %d %d" % os.get_terminal_size(0))
while (key := os.read(0, 1)) != b"q":
    os.write(1, key.upper())
"""


class Keyboard(threading.Thread):
    """Types into a terminal when the program is ready, and collects what it shows."""

    def __init__(self, keys: bytes) -> None:
        super().__init__(daemon=True)
        self.master, self.slave = os.openpty()
        self.keys = keys
        self.shown = b""

    def run(self) -> None:
        while b"ready" not in self.shown:
            self.shown += os.read(self.master, 1000)
        os.write(self.master, self.keys)
        while True:
            try:
                self.shown += os.read(self.master, 1000)
            except OSError:
                return


def talk(keys: bytes, asked: Callable[[], StopAsked | None] = lambda: None):
    keyboard = Keyboard(keys)
    keyboard.start()
    watcher = Watcher(
        on_stdout=lambda line: None,
        on_stderr=lambda line: None,
        has_result=lambda: False,
        on_tick=asked,
    )
    terminal = Terminal(keyboard.slave, keyboard.slave)
    ended = run_in_terminal(
        [sys.executable, "-ISc", ECHO],
        environment={},
        cwd=Path("/"),
        terminal=terminal,
        watcher=watcher,
    )
    os.close(keyboard.slave)
    keyboard.join(5)
    os.close(keyboard.master)
    return ended, keyboard.shown


def test_ctrl_c_reaches_the_program_and_ctrl_z_does_not():
    ended, shown = talk(b"a\x03\x1abq")

    assert (ended.manner, ended.exit_code) == (Manner.EXITED, 0)
    assert b"A\x03B" in shown


def test_a_program_that_is_stopped_leaves_a_plain_terminal():
    until = time.monotonic() + 2

    ended, shown = talk(
        b"a", lambda: StopAsked("person", "by grace") if time.monotonic() > until else None
    )

    assert ended.manner == Manner.STOPPED
    assert b"\x1b[?1049l" in shown
