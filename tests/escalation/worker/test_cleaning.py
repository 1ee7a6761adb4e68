"""Expiry and housekeeping: what is removed, what is archived first, and what is never removed."""

from __future__ import annotations

import logging
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.utils import timezone
from django_q.models import Schedule

from escalation import tasks
from escalation.resume import transcripts
from escalation.supervisor import cycles
from escalation.worker.housekeeping import Cleaned, clean
from escalation.worker.schedules import ensure_housekeeping
from sessions_app.models import Conversation, Cycle, Session, SessionEvent, Transcript
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import run, transcript_of
from tests.factories import CycleFactory, SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db
Status, State = Session.Status, Conversation.State
NOW = timezone.now()
DAY = timedelta(days=1)
# Of a cleaning that finds nothing but sessions to index, however much there is to look at.
QUERIES = 39


def conversation(age: timedelta, **fields) -> Conversation:
    number = Conversation.objects.count()
    return Conversation.objects.create(
        session_id=f"conversation-{number}", last_used_at=NOW - age, **fields
    )


def state_of(conversation: Conversation) -> str:
    conversation.refresh_from_db()
    return conversation.state


def old_session(age: timedelta = 91 * DAY, **fields) -> Session:
    session = SessionFactory(**{"finished_at": NOW - age, **fields})
    SessionEventFactory.create_batch(3, session=session)
    return session


def old_file(path: Path, age: timedelta = timedelta(hours=2), size: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    moment = (NOW - age).timestamp()
    os.utime(path, (moment, moment))
    return path


@pytest.fixture
def ran(fake_cli, session) -> Session:
    """A finished run, with its transcript on disk."""
    fake_cli.reports(HEALTHY)
    return run(session)


def test_a_conversation_that_was_not_used_for_a_day_expires_with_its_reason():
    old, young = conversation(timedelta(hours=25)), conversation(timedelta(hours=23))

    cleaned = clean(now=NOW)

    assert (state_of(old), state_of(young)) == (State.EXPIRED, State.LIVE)
    assert "CLAUDEOPS_RESUME_MAX_AGE" in old.reason
    assert cleaned.conversations_expired == 1


def test_the_age_of_expiry_is_a_setting(settings):
    settings.CLAUDEOPS_RESUME_MAX_AGE = 3600
    old = conversation(timedelta(hours=2))

    clean(now=NOW)

    assert state_of(old) == State.EXPIRED


def test_a_conversation_in_use_never_expires():
    held = conversation(30 * DAY, in_use_by=SessionFactory(running=True))

    assert clean(now=NOW).conversations_expired == 0
    assert state_of(held) == State.LIVE


def test_a_retired_conversation_keeps_its_reason():
    retired = conversation(30 * DAY, state=State.RETIRED, reason="refused")

    clean(now=NOW)

    assert (state_of(retired), retired.reason) == (State.RETIRED, "refused")


def test_an_interrupted_session_expires_and_other_statuses_stay():
    sessions = {
        status: SessionFactory(status=status, finished_at=NOW - 2 * DAY)
        for status in set(Status) - set(Session.OPEN_STATUSES)
    }

    cleaned = clean(now=NOW)

    after = {status: Session.objects.get(pk=row.pk).status for status, row in sessions.items()}
    assert after == {**{status: status for status in sessions}, Status.INTERRUPTED: Status.EXPIRED}
    assert cleaned.sessions_expired == 1


def test_an_expiry_is_an_event_with_a_reason():
    session = SessionFactory(status=Status.INTERRUPTED, finished_at=NOW - 2 * DAY)

    clean(now=NOW)

    payload = session.events.get(kind="status").payload
    assert (payload["from"], payload["to"]) == ("interrupted", "expired")
    assert payload["text"]


def waiting(age: timedelta, **fields) -> Session:
    return SessionFactory(
        **{
            "running": True,
            "status": Status.QUEUED,
            "created_at": NOW - age,
            "started_at": None,
            **fields,
        }
    )


def test_a_session_that_was_queued_for_longer_than_a_day_expires_and_its_cycle_could_not_run():
    old, young = waiting(timedelta(hours=25)), waiting(timedelta(hours=23))

    cleaned = clean(now=NOW)

    old.refresh_from_db()
    young.refresh_from_db()
    assert (old.status, old.cycle.state, old.cycle.outcome) == (
        Status.EXPIRED,
        Cycle.State.FINISHED,
        Cycle.Outcome.COULD_NOT_RUN,
    )
    assert "CLAUDEOPS_RESUME_MAX_AGE" in old.error
    assert old.error == old.cycle.outcome_reason
    assert old.finished_at is not None
    assert (young.status, young.cycle.is_active) == (Status.QUEUED, True)
    assert cleaned.sessions_expired == 1


def test_a_watch_whose_session_expired_in_the_queue_can_run_again():
    old = waiting(timedelta(days=3))

    clean(now=NOW)

    watch = Session.objects.get(pk=old.pk).cycle.watch
    assert watch is not None
    assert cycles.start(watch, trigger="manual").is_active


def test_a_follow_up_that_expires_in_the_queue_keeps_the_outcome():
    asked = waiting(
        timedelta(days=3),
        purpose=Session.Purpose.FOLLOW_UP,
        cycle=CycleFactory(state=Cycle.State.RUNNING, outcome=Cycle.Outcome.FIXED),
    )

    clean(now=NOW)

    cycle = Session.objects.get(pk=asked.pk).cycle
    assert (cycle.state, cycle.outcome) == (Cycle.State.FINISHED, Cycle.Outcome.FIXED)


def test_a_queued_session_that_is_claimed_meanwhile_does_not_expire(monkeypatch):
    old = waiting(timedelta(days=3))
    finish = Session.finish

    def taken_first(session: Session, status: str, reason: str = "", **facts: Any) -> None:
        Session.objects.filter(pk=session.pk).update(status=Status.RUNNING)
        finish(session, status, reason, **facts)

    monkeypatch.setattr(Session, "finish", taken_first)

    clean(now=NOW)

    old.refresh_from_db()
    assert old.status != Status.EXPIRED
    assert old.cycle.is_active


def finished_long_ago(ran: Session, count: int) -> None:
    """More cycles like one that ran, archived and old."""
    for number in range(count):
        cycle = CycleFactory(finished_at=NOW - 91 * DAY)
        session = SessionFactory(
            cycle=cycle, config_dir=ran.config_dir, workdir=ran.workdir, finished_at=NOW - DAY
        )
        Transcript.objects.create(project_key=f"p{number}", session_id=session.session_id)


@pytest.mark.parametrize("more", [0, 10])
def test_the_number_of_queries_does_not_grow_with_the_history(ran, django_assert_num_queries, more):
    finished_long_ago(ran, 1 + more)

    with django_assert_num_queries(QUERIES):
        clean(now=NOW)


def test_a_transcript_that_was_not_archived_is_archived(ran):
    Transcript.objects.all().delete()

    cleaned = clean()

    assert cleaned.transcripts_archived == 1
    assert transcripts.is_archived(ran.session_id)
    assert clean().transcripts_archived == 0


def test_a_session_in_use_is_not_archived(ran):
    Transcript.objects.all().delete()
    Session.objects.filter(pk=ran.pk).update(status=Status.RUNNING)

    assert clean().transcripts_archived == 0


def test_one_transcript_that_cannot_be_archived_does_not_stop_housekeeping(ran, monkeypatch):
    Transcript.objects.all().delete()
    old = conversation(30 * DAY)

    def fail(session):
        raise OSError("the disk is full")

    monkeypatch.setattr(transcripts, "archive", fail)

    clean(now=NOW)

    assert state_of(old) == State.EXPIRED


def test_events_are_removed_after_their_retention_and_sessions_stay():
    old, young = old_session(91 * DAY), old_session(89 * DAY)

    cleaned = clean(now=NOW)

    assert (old.events.count(), young.events.count()) == (0, 3)
    assert cleaned.events_pruned == 3
    assert Session.objects.count() == 2


def test_the_retention_is_a_setting(settings):
    settings.CLAUDEOPS_EVENT_RETENTION_DAYS = 7
    old = old_session(8 * DAY)

    clean(now=NOW)

    assert not old.events.exists()


@pytest.mark.parametrize("status", Session.OPEN_STATUSES)
def test_events_of_a_session_in_use_are_never_pruned(status):
    session = old_session(status=status, finished_at=None)
    again = old_session(status=status)

    clean(now=NOW)

    assert (session.events.count(), again.events.count()) == (3, 3)


def cycle_directories(settings, cycle: Cycle) -> list[Path]:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    places = [state / "claude" / f"cycle-{cycle.pk}", state / "drills" / f"cycle-{cycle.pk}"]
    for place in places:
        old_file(place / "projects" / "x.jsonl", size=100)
    return places


def test_directories_of_old_cycles_are_removed_and_counted(settings):
    old = cycle_directories(settings, CycleFactory(finished_at=NOW - 91 * DAY))
    young = cycle_directories(settings, CycleFactory(finished_at=NOW - 89 * DAY))
    active = cycle_directories(settings, CycleFactory(running=True))

    cleaned = clean(now=NOW)

    assert [place.exists() for place in (*old, *young, *active)] == [False] * 2 + [True] * 4
    assert (cleaned.directories_removed, cleaned.bytes_freed) == (2, 200)


def test_a_transcript_that_could_not_be_archived_is_not_deleted(ran, monkeypatch):
    Transcript.objects.all().delete()
    Cycle.objects.filter(pk=ran.cycle_id).update(finished_at=NOW - 91 * DAY)
    monkeypatch.setattr(transcripts, "archive", lambda session: 0)

    clean(now=NOW)

    assert transcript_of(ran).exists()


def test_a_handoff_file_that_disappears_does_not_stop_housekeeping(settings):
    """A link to nothing is listed and cannot be looked at, as a file that was just removed."""
    handoffs = settings.CLAUDEOPS_STATE_DIR / "handoffs"
    left = old_file(handoffs / "left.json")
    (handoffs / "gone.json").symlink_to(handoffs / "nothing")

    cleaned = clean(now=NOW)

    assert (cleaned.handoff_files_removed, left.exists()) == (1, False)


def test_a_leftover_handoff_file_is_removed_with_a_warning_and_a_new_one_is_kept(settings, caplog):
    folder = Path(settings.CLAUDEOPS_STATE_DIR) / "handoffs"
    old = old_file(folder / "cycle-1-session-1.json", timedelta(minutes=61))
    new = old_file(folder / "cycle-2-session-2.json", timedelta(minutes=59))

    with caplog.at_level(logging.WARNING):
        cleaned = clean(now=NOW)

    assert (old.exists(), new.exists()) == (False, True)
    assert (cleaned.handoff_files_removed, cleaned.bytes_freed) == (1, 10)
    assert "cycle-1-session-1.json" in caplog.text


def everything_old(settings) -> dict[str, Any]:
    """Something for every step to do."""
    old_session()
    SessionFactory(status=Status.INTERRUPTED, finished_at=NOW - 2 * DAY)
    conversation(30 * DAY)
    cycle_directories(settings, CycleFactory(finished_at=NOW - 91 * DAY))
    old_file(Path(settings.CLAUDEOPS_STATE_DIR) / "handoffs" / "old.json")
    return snapshot(settings)


def snapshot(settings) -> dict[str, Any]:
    return {
        "sessions": list(Session.objects.order_by("pk").values()),
        "events": SessionEvent.objects.count(),
        "conversations": list(Conversation.objects.order_by("pk").values()),
        "archive": Transcript.objects.count(),
        "files": sorted(str(path) for path in Path(settings.CLAUDEOPS_STATE_DIR).rglob("*")),
    }


def test_a_dry_run_changes_nothing_and_counts_the_same(settings, ran):
    Transcript.objects.all().delete()
    before = everything_old(settings)

    would = clean(dry_run=True, now=NOW)

    assert snapshot(settings) == before
    assert would == clean(now=NOW)
    assert 0 not in (would.transcripts_archived, would.events_pruned, would.bytes_freed)


def test_a_second_housekeeping_finds_nothing(settings):
    everything_old(settings)
    clean(now=NOW)

    assert clean(now=NOW) == Cleaned()


def test_housekeeping_never_deletes_sessions_or_conversations(settings):
    before = everything_old(settings)

    clean(now=NOW)

    after = snapshot(settings)
    assert len(after["sessions"]) == len(before["sessions"])
    assert len(after["conversations"]) == len(before["conversations"])


def test_without_a_state_directory_nothing_is_removed():
    assert clean() == Cleaned()


@pytest.mark.parametrize(("options", "word"), [([], "Done"), (["--dry-run"], "Would be done")])
def test_the_command_reports_every_count(settings, options, word, capsys):
    everything_old(settings)

    call_command("clean", *options)

    said = capsys.readouterr().out
    assert said.startswith(f"{word}. ")
    assert "events pruned: 3" in said
    assert "bytes freed: 210" in said


def test_with_dry_run_the_command_changes_nothing(settings):
    before = everything_old(settings)

    call_command("clean", "--dry-run")

    assert snapshot(settings) == before


def test_the_task_reports_what_it_removed(settings):
    old = conversation(30 * DAY)

    assert "conversations expired: 1" in tasks.clean_up()
    assert state_of(old) == State.EXPIRED


def test_housekeeping_is_scheduled_once():
    ensure_housekeeping()
    ensure_housekeeping()

    schedule = Schedule.objects.get(name="cleaning")
    assert (schedule.func, schedule.schedule_type) == ("escalation.tasks.clean_up", "H")
