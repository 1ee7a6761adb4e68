"""After its runner died, a session gets a true end once, and its chain continues if it may."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.agent.process import started_at
from escalation.queue import enqueue_with
from escalation.resume import transcripts
from escalation.resume.transcripts import own_and_unheard
from escalation.run import finish, recorder, recovery
from escalation.run.recovery import orphans, recover, runner_lives
from sessions_app.models import Approval, Change, Conversation, Cycle, Session
from tests.escalation.processes import is_gone_soon
from tests.escalation.recovery_cases import (
    Handed,
    dead_process,
    heard,
    living_runner,
    orphan,
    recovered,
    tool_call,
    tool_result,
)
from tests.factories import ApprovalFactory, SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db


def test_a_session_whose_runner_has_ended_is_an_orphan(tmp_path):
    session = orphan(tmp_path)

    assert orphans() == [session]


def test_a_session_with_a_live_runner_is_no_orphan(tmp_path):
    session = orphan(tmp_path, **living_runner())

    after, done = recovered(session)

    assert (after.status, done) == (Session.Status.RUNNING, [])


def test_a_session_with_a_live_but_silent_runner_is_no_orphan(tmp_path):
    long_ago = timezone.now() - timedelta(minutes=9)

    assert runner_lives(orphan(tmp_path, heartbeat_at=long_ago, **living_runner()))


def test_a_reused_pid_is_no_runner(tmp_path):
    session = orphan(tmp_path, **{**living_runner(), "runner_started": 1})

    assert not runner_lives(session)


def test_a_pid_of_an_earlier_boot_is_no_runner(tmp_path):
    assert not runner_lives(orphan(tmp_path, boot_id="another-boot", **living_runner()))


def test_a_session_without_a_runner_is_an_orphan(tmp_path):
    assert not runner_lives(orphan(tmp_path, runner_pid=None, runner_started=None))


@pytest.mark.parametrize(("seconds", "lives"), [(1, True), (40, True), (50, False)])
def test_runner_on_another_host_is_dead_after_silence(tmp_path, seconds, lives):
    seen = timezone.now() - timedelta(seconds=seconds)

    assert runner_lives(orphan(tmp_path, host="elsewhere", heartbeat_at=seen)) is lives


def test_sessions_of_other_hosts_need_one_query(tmp_path, django_assert_num_queries):
    """Every worker of every host looks every few seconds."""
    for _ in range(3):
        orphan(tmp_path, host="elsewhere")

    with django_assert_num_queries(1):
        assert orphans() == []


@pytest.mark.parametrize("status", [Session.Status.QUEUED, Session.Status.COMPLETED])
def test_only_running_sessions_are_orphans(tmp_path, status):
    orphan(tmp_path, status=status)

    assert orphans() == []


def test_the_session_ends_as_interrupted_with_its_reason(tmp_path):
    after, [done] = recovered(orphan(tmp_path))

    assert after.status == Session.Status.INTERRUPTED
    assert after.finished_at is not None
    assert "checks the state first" in after.escalation_reason
    assert (done.session, done.tier) == (after.pk, 1)


def test_the_change_of_status_is_an_event_with_the_reason(tmp_path):
    after, _done = recovered(orphan(tmp_path))

    event = after.events.filter(kind="status").get()
    assert (event.payload["from"], event.payload["to"]) == ("running", "interrupted")
    assert "ended from outside" in event.payload["text"]


def test_the_chain_continues_in_the_same_conversation(tmp_path):
    session, handed = orphan(tmp_path, tier=2), Handed()

    recovered(session, handed)

    [successor] = handed.sessions
    assert (successor.parent_session, successor.tier) == (session, 2)
    assert successor.purpose == Session.Purpose.RECOVERY
    assert successor.continued_by == Session.ContinuedBy.RESUME
    assert successor.cycle.is_active


def test_a_running_tool_of_tier_1_does_not_prevent_a_continuation(tmp_path):
    session, handed = orphan(tmp_path), Handed()
    heard(session, tool_call("a"))

    recovered(session, handed)

    assert len(handed.sessions) == 1


@pytest.mark.parametrize("tier", [2, 3])
def test_unfinished_work_needs_a_person(tmp_path, tier):
    session, handed = orphan(tmp_path, tier=tier), Handed()
    heard(session, tool_call("a"))

    after, _done = recovered(session, handed)

    assert handed.sessions == []
    assert after.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert "half done" in after.cycle.outcome_reason


def test_a_finished_tool_is_no_unfinished_work(tmp_path):
    session, handed = orphan(tmp_path, tier=3), Handed()
    heard(session, tool_call("a"), tool_result("b"))

    recovered(session, handed)

    assert len(handed.sessions) == 1


def test_a_repeatedly_interrupted_tier_needs_a_person(tmp_path, settings):
    settings.CLAUDEOPS_MAX_INTERRUPTIONS = 1
    first = SessionFactory(status=Session.Status.INTERRUPTED)
    session, handed = orphan(tmp_path, parent_session=first, cycle=first.cycle), Handed()
    Cycle.objects.update(state=Cycle.State.RUNNING)

    after, _done = recovered(session, handed)

    assert handed.sessions == []
    assert "2 times" in after.cycle.outcome_reason


def test_an_interrupted_follow_up_keeps_the_outcome(tmp_path):
    session, handed = orphan(tmp_path, purpose=Session.Purpose.FOLLOW_UP), Handed()
    Cycle.objects.update(outcome=Cycle.Outcome.FIXED)

    after, _done = recovered(session, handed)

    assert (after.status, handed.sessions) == (Session.Status.INTERRUPTED, [])
    assert (after.cycle.state, after.cycle.outcome) == ("finished", "fixed")


def test_an_id_that_the_cli_never_confirmed_is_not_stored(tmp_path):
    after, _done = recovered(orphan(tmp_path, seen=False))

    assert (after.status, after.session_id) == (Session.Status.INTERRUPTED, "")


def test_the_conversation_is_released(tmp_path):
    session = orphan(tmp_path)
    Conversation.take(session.session_id, session)

    recovered(session)

    assert Conversation.objects.get().in_use_by is None


def test_the_transcript_is_archived(tmp_path, monkeypatch):
    archived = []
    monkeypatch.setattr(transcripts, "archive", archived.append)
    session = orphan(tmp_path)

    recovered(session)

    assert archived == [session]


def test_a_second_recovery_does_nothing(tmp_path):
    session, handed = orphan(tmp_path), Handed()
    first, _done = recovered(session, handed)
    events = list(first.events.values_list("sequence", "kind"))
    Session.objects.filter(status=Session.Status.QUEUED).delete()

    second, done = recovered(session, handed)

    assert done == []
    assert len(handed.sessions) == 1
    assert list(second.events.values_list("sequence", "kind")) == events


def test_dry_run_changes_nothing(tmp_path):
    session, handed = orphan(tmp_path), Handed()

    with enqueue_with(handed):
        [done] = recover(dry_run=True)

    session.refresh_from_db()
    assert "would" in done.what
    assert (session.status, handed.sessions) == (Session.Status.RUNNING, [])


def test_several_orphans_are_all_recovered(tmp_path):
    sessions = [orphan(tmp_path, session_id=f"{n}" * 8 + ID_TAIL) for n in range(3)]

    recover()

    ended = Session.objects.filter(status=Session.Status.INTERRUPTED)
    assert set(ended) == set(sessions)


def test_one_failed_recovery_does_not_stop_the_others(tmp_path, monkeypatch):
    good = orphan(tmp_path)
    bad = orphan(tmp_path, session_id="3" * 8 + ID_TAIL)
    monkeypatch.setattr(finish, "own_and_unheard", _failing_for(bad, own_and_unheard))

    recover()

    good.refresh_from_db()
    assert good.status == Session.Status.INTERRUPTED


def test_an_unreadable_spool_does_not_stop_the_others(tmp_path):
    session = orphan(tmp_path)
    recorder.spool_path(SessionFactory()).mkdir(parents=True)

    after, _done = recovered(session)

    assert after.status == Session.Status.INTERRUPTED


def test_a_failed_recovery_can_be_repeated_by_the_same_process(tmp_path, monkeypatch):
    session = orphan(tmp_path)
    with monkeypatch.context() as broken:
        broken.setattr(finish, "own_and_unheard", _failing_for(session, None))
        with contextlib.suppress(RuntimeError):  # whether it may raise is another question
            recover()

    after, _done = recovered(session)

    assert after.status == Session.Status.INTERRUPTED


def test_of_two_concurrent_recoveries_the_second_does_nothing(tmp_path, monkeypatch):
    session, handed = orphan(tmp_path), Handed()
    mine = orphans
    monkeypatch.setattr(recovery, "orphans", _after_another_recovery(mine))

    with enqueue_with(handed):
        recover()

    session.refresh_from_db()
    assert session.status == Session.Status.INTERRUPTED
    assert session.children.count() == 1
    assert session.events.filter(kind="status").count() == 1


def test_a_surviving_cli_is_stopped(tmp_path):
    survivor = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"])
    session = orphan(tmp_path, cli_pid=survivor.pid, cli_started=started_at(survivor.pid))

    recovered(session)

    assert is_gone_soon(survivor.pid)
    survivor.wait()


@pytest.mark.parametrize("facts", [{"boot_id": "another"}, {"cli_started": 1}])
def test_a_process_with_a_reused_pid_is_never_signalled(tmp_path, facts):
    stranger = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"])
    known = {"cli_pid": stranger.pid, "cli_started": started_at(stranger.pid), **facts}

    recovered(orphan(tmp_path, **known))

    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_processes_of_another_host_are_not_searched(tmp_path):
    stranger = subprocess.Popen([sys.executable, "-IS", "-c", "import time; time.sleep(60)"])
    session = orphan(
        tmp_path,
        host="elsewhere",
        heartbeat_at=timezone.now() - timedelta(hours=1),
        cli_pid=stranger.pid,
        cli_started=started_at(stranger.pid),
    )

    after, _done = recovered(session)

    assert after.status == Session.Status.INTERRUPTED
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


def test_the_host_of_the_session_is_kept(tmp_path):
    long_ago = timezone.now() - timedelta(hours=1)

    after, _done = recovered(orphan(tmp_path, host="elsewhere", heartbeat_at=long_ago))

    assert after.host == "elsewhere"


def test_a_dead_process_has_no_start_time():
    assert started_at(dead_process()) is None


ID_TAIL = "-2222-4222-8222-222222222222"


def _failing_for(session, otherwise):
    def fail(found):
        if found.pk == session.pk:
            raise RuntimeError("a damaged file")
        return otherwise(found)

    return fail


def _after_another_recovery(find):
    """Between the look and the deed, another process does the same work."""

    def look():
        found = find()
        for session in find():
            recovery._recover_one(session)
        return found

    return look


def test_approvals_of_a_dead_session_are_withdrawn(tmp_path):
    """Its command did not run and never will; whoever answers now is told so."""
    session = orphan(tmp_path, tier=2)
    heard(session, tool_call("first"))
    approval = ApprovalFactory(of_a_command=True, session=session)

    after, _done = recovered(session)

    approval.refresh_from_db()
    assert approval.state == Approval.State.WITHDRAWN
    assert after.status == Session.Status.INTERRUPTED


@pytest.mark.parametrize("state", ["waiting", "approved"])
def test_a_command_that_only_waited_for_approval_waits_on(tmp_path, state):
    session, handed = orphan(tmp_path, tier=2), Handed()
    heard(session, tool_call("first"))
    asked = {"call": "c1", "verdict": "ask", "command": "df", "parent": ""}
    effect = {"kind": "other", "service": "", "action": "df"}
    SessionEventFactory(
        session=session,
        sequence=99,
        source="supervisor",
        kind="command",
        payload={**asked, "effects": [effect]},
    )
    approval = ApprovalFactory(of_a_command=True, session=session, command="df", state=state)

    recovered(session, handed)

    [following] = handed.sessions
    approval.refresh_from_db()
    assert following.purpose == Session.Purpose.RECOVERY
    assert approval.state == state
    assert (approval.session_id == following.pk) == (state == "waiting")
    assert not Change.objects.exists()


def test_a_command_whose_approval_was_used_may_be_half_done(tmp_path):
    session, handed = orphan(tmp_path, tier=2), Handed()
    heard(session, tool_call("first"))
    asked = {"call": "c1", "verdict": "ask", "command": "df", "parent": ""}
    SessionEventFactory(
        session=session, sequence=99, source="supervisor", kind="command", payload=asked
    )
    ApprovalFactory(
        of_a_command=True,
        session=session,
        command="df",
        state="approved",
        used_at=timezone.now(),
    )

    recovered(session, handed)

    assert handed.sessions == []
