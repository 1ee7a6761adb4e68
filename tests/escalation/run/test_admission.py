"""Admission of queued sessions: limits, pauses, and the last slot given once."""

from __future__ import annotations

import os
import socket
import threading

import pytest
from django.db import connection
from django.utils import timezone

from escalation.agent.process import boot_id, started_at
from escalation.run import runner
from escalation.run.runner import admit, objection
from escalation.worker.schedules import pause
from sessions_app.models import PauseSwitch, SandboxProof, Session
from tests.factories import CycleFactory, SandboxProofFactory, SessionFactory


def waiting(**facts) -> Session:
    session: Session = SessionFactory(
        cycle=CycleFactory(running=True),
        status=Session.Status.QUEUED,
        started_at=None,
        finished_at=None,
        **facts,
    )
    return session


@pytest.mark.django_db
def test_a_waiting_session_may_start():
    assert objection(waiting()) == ""


@pytest.mark.django_db
def test_admission_claims_the_session_for_this_process():
    session = waiting()

    assert admit(session) == ""
    session.refresh_from_db()
    assert session.status == Session.Status.RUNNING
    assert (session.host, session.boot_id) == (socket.gethostname(), boot_id())
    assert (session.runner_pid, session.runner_started) == (os.getpid(), started_at(os.getpid()))
    assert session.heartbeat_at is not None


@pytest.mark.django_db
def test_a_claimed_session_is_not_admitted_again():
    session = waiting()
    admit(session)

    assert "already taken" in admit(session)


@pytest.mark.django_db
@pytest.mark.parametrize("status", [Session.Status.COMPLETED, Session.Status.CANCELLED])
def test_a_session_that_has_ended_is_not_admitted(status):
    session = waiting()
    Session.objects.update(status=status)

    assert admit(session) != ""
    session.refresh_from_db()
    assert session.status == status


@pytest.mark.django_db
def test_the_limit_of_all_sessions_is_named(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 2
    SessionFactory.create_batch(2, running=True)

    assert "CLAUDEOPS_MAX_SESSIONS" in objection(waiting())


@pytest.mark.django_db
def test_last_slot_is_given(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 2
    SessionFactory(running=True)

    assert objection(waiting()) == ""


@pytest.mark.django_db
def test_ended_sessions_take_no_slot(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory()

    assert objection(waiting()) == ""


@pytest.mark.django_db
def test_a_session_does_not_count_against_itself(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    settings.CLAUDEOPS_MAX_TIER3_SESSIONS = 1

    assert objection(SessionFactory(running=True, tier=3)) == ""


@pytest.mark.django_db
def test_the_limit_of_tier_3_applies_only_to_tier_3():
    SessionFactory(running=True, tier=3)

    assert "CLAUDEOPS_MAX_TIER3_SESSIONS" in objection(waiting(tier=3))
    assert objection(waiting(tier=2)) == ""


@pytest.mark.django_db
def test_other_tiers_take_no_slot_of_tier_3():
    SessionFactory(running=True, tier=2)

    assert objection(waiting(tier=3)) == ""


@pytest.mark.django_db
def test_during_a_pause_the_objection_has_its_reason():
    pause("the disks are being changed")

    assert "the disks are being changed" in objection(waiting())


@pytest.mark.django_db
def test_a_session_that_must_wait_stays_queued_and_nothing_is_started(fake_cli, settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    SessionFactory(running=True)
    session = waiting()

    assert runner.run(session) is False
    session.refresh_from_db()
    assert (session.status, session.started_at) == (Session.Status.QUEUED, None)
    assert fake_cli.calls == []


@pytest.mark.django_db
def test_admission_does_not_change_the_pause_switch():
    admit(waiting())

    assert PauseSwitch.current().paused is False


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("tier", "limits"),
    [(1, {"CLAUDEOPS_MAX_SESSIONS": 1}), (3, {"CLAUDEOPS_MAX_TIER3_SESSIONS": 1})],
)
def test_of_many_concurrent_sessions_one_gets_the_last_slot(settings, tier, limits):
    for name, value in limits.items():
        setattr(settings, name, value)
    sessions = [waiting(tier=tier) for _ in range(6)]
    barrier = threading.Barrier(len(sessions))
    answers: list[str] = []

    def contend(session: Session) -> None:
        barrier.wait(10)
        answers.append(admit(session))
        connection.close()

    threads = [threading.Thread(target=contend, args=(session,)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers.count("") == 1
    assert Session.objects.filter(status=Session.Status.RUNNING).count() == 1


@pytest.mark.django_db
def test_higher_tiers_wait_while_a_worse_sandbox_proof_is_not_accepted():
    SandboxProofFactory(failed=1, is_worse=True)

    assert "sandbox proof" in objection(waiting(tier=2))
    assert objection(waiting(tier=1)) == ""


@pytest.mark.django_db
def test_accepted_or_better_sandbox_proof_holds_no_session():
    proof = SandboxProofFactory(failed=1, is_worse=True)
    SandboxProofFactory(kind=SandboxProof.Kind.ATTACKS)
    assert SandboxProof.holding() == proof

    proof.accepted_at = timezone.now()
    proof.save()
    assert objection(waiting(tier=3)) == ""

    SandboxProofFactory(failed=2, is_worse=True)
    SandboxProofFactory(failed=0)
    assert objection(waiting(tier=3)) == ""
