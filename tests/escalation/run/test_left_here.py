"""What runs leave on a host when another host has ended them."""

from __future__ import annotations

import os

import pytest

from escalation.recovery import left_here
from escalation.recovery.left_here import sweep
from escalation.run.directory import run_directory_of
from sessions_app.models import Session
from tests.escalation.recovery_cases import living_runner, orphan

pytestmark = pytest.mark.django_db


@pytest.fixture
def stopped(monkeypatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(left_here, "stop_processes", lambda session: found.append(session.pk))
    return found


def with_directory(session: Session, *, seconds_old: float = 60.0) -> Session:
    directory = run_directory_of(session)
    directory.mkdir(parents=True)
    (directory / "tools").write_text("")
    moment = directory.stat().st_mtime - seconds_old
    os.utime(directory, (moment, moment))
    return session


def test_what_a_run_left_that_another_host_has_ended_is_stopped_and_removed(tmp_path, stopped):
    session = with_directory(orphan(tmp_path, status=Session.Status.INTERRUPTED))

    sweep()

    assert stopped == [session.pk]
    assert not run_directory_of(session).exists()


def test_the_processes_of_a_run_whose_runner_died_are_stopped_and_its_traces_kept(
    tmp_path, stopped
):
    session = with_directory(orphan(tmp_path))

    sweep()

    assert stopped == [session.pk]
    assert run_directory_of(session).exists()


def test_a_run_whose_runner_lives_is_left_alone(tmp_path, stopped):
    session = with_directory(orphan(tmp_path, **living_runner()))

    sweep()

    assert stopped == []
    assert run_directory_of(session).exists()


def test_a_run_that_ends_at_this_moment_is_left_to_its_runner(tmp_path, stopped):
    session = orphan(tmp_path, status=Session.Status.COMPLETED)
    with_directory(session, seconds_old=1.0)

    sweep()

    assert stopped == []
    assert run_directory_of(session).exists()
