"""A write is retried after its commit succeeded and only the answer was lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import OperationalError, transaction
from django.utils import timezone

from escalation.queue import enqueue_with
from escalation.run import finish, runner
from escalation.run.recorder import Recorder
from escalation.run.runner import TAKEN, admit
from escalation.supervisor.decision import Ending
from escalation.worker.schedules import pause
from sessions_app.models import Session
from tests.escalation.rows import ESCALATE, queued_session

pytestmark = pytest.mark.django_db
Status = Session.Status


def loaded(session: Session) -> Session:
    return Session.objects.select_related("cycle__watch").get(pk=session.pk)


def test_a_repeated_admission_finds_its_own_claim(session):
    moment = timezone.now()
    admit(session, moment)
    pause("by hand")

    assert admit(session, moment) == ""


def test_a_second_delivery_of_a_session_is_not_admitted(session):
    admit(session, timezone.now())

    assert admit(loaded(session), timezone.now()) == TAKEN


def test_a_session_claimed_by_another_worker_is_not_put_back(session):
    admit(session)
    began = session.started_at
    runner._put_back(session, Recorder(session), "not now", began)
    admit(loaded(session))

    runner._put_back(session, Recorder(session), "not now", began)

    assert loaded(session).status == Status.RUNNING


@pytest.mark.django_db(transaction=True)
def test_a_session_ends_once_when_the_answer_of_its_commit_is_lost(workdir: Path):
    session = queued_session(workdir)
    admit(session)
    lost: list[bool] = []

    def lose_answer() -> None:
        if not lost:
            lost.append(True)
            raise OperationalError("server closed the connection unexpectedly")

    ending = Ending(tier=1, status=Status.COMPLETED, report=ESCALATE, stored={"report": ESCALATE})
    with enqueue_with(lambda _next: transaction.on_commit(lose_answer)):
        finish.finish(session, Recorder(session), ending)

    assert lost == [True]
    assert loaded(session).status == Status.ESCALATED
    assert session.children.count() == 1
