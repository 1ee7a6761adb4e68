"""Leftovers on a host of sessions that another host has ended."""

from __future__ import annotations

import os

import pytest

from escalation.run import recovery
from escalation.run.prepare import run_directory_of
from escalation.run.recovery import sweep
from sessions_app.models import Session
from tests.escalation.recovery_cases import living_runner, orphan

pytestmark = pytest.mark.django_db


@pytest.fixture
def stopped(monkeypatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(recovery, "stop_processes", lambda session: found.append(session.pk))
    return found


def with_directory(session: Session, *, seconds_old: float = 60.0) -> Session:
    directory = run_directory_of(session)
    directory.mkdir(parents=True)
    (directory / "tools").write_text("")
    moment = directory.stat().st_mtime - seconds_old
    os.utime(directory, (moment, moment))
    return session


def test_leftovers_of_a_session_ended_elsewhere_are_removed(tmp_path, stopped):
    session = with_directory(orphan(tmp_path, status=Session.Status.INTERRUPTED))

    sweep()

    assert stopped == [session.pk]
    assert not run_directory_of(session).exists()


def test_processes_of_a_dead_runner_are_stopped_and_its_files_kept(tmp_path, stopped):
    session = with_directory(orphan(tmp_path))

    sweep()

    assert stopped == [session.pk]
    assert run_directory_of(session).exists()


def test_a_session_with_a_live_runner_is_left_alone(tmp_path, stopped):
    session = with_directory(orphan(tmp_path, **living_runner()))

    sweep()

    assert stopped == []
    assert run_directory_of(session).exists()


def test_a_session_that_is_ending_is_left_to_its_runner(tmp_path, stopped):
    session = orphan(tmp_path, status=Session.Status.COMPLETED)
    with_directory(session, seconds_old=1.0)

    sweep()

    assert stopped == []
    assert run_directory_of(session).exists()


def test_a_directory_that_disappears_does_not_stop_the_search(tmp_path, stopped):
    """A link to nothing is listed and cannot be looked at, as one that was just removed."""
    session = with_directory(orphan(tmp_path, status=Session.Status.INTERRUPTED))
    runs = run_directory_of(session).parent
    (runs / f"session-{session.pk + 1}").symlink_to(runs / "nothing")

    sweep()

    assert stopped == [session.pk]
