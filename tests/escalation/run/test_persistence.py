"""What must not be lost is written again until the database takes it."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from escalation.next_step.cycles import leave_to_caller
from escalation.run import persistence, runner
from escalation.run.persistence import persistently
from sessions_app.models import Conversation, Cycle, Session
from tests.escalation.rows import HEALTHY


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(persistence, "LOOK_SECONDS", 0.01)


def full_at_first(action, times: int = 2):
    """The disk is full when it is asked for the first times."""
    left = [times]

    def act(*args, **options):
        if left[0]:
            left[0] -= 1
            raise OperationalError("database or disk is full")
        return action(*args, **options)

    return act


def test_it_is_tried_again_and_gives_what_the_action_gives():
    assert persistently(full_at_first(lambda: "stored")) == "stored"


def test_after_its_patience_the_trouble_is_passed_on(monkeypatch):
    monkeypatch.setattr(persistence, "PATIENCE_SECONDS", 0.05)

    with pytest.raises(OperationalError):
        persistently(full_at_first(lambda: "stored", times=1000))


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("owner", "name"), [(runner, "admit"), (Cycle, "begin"), (Conversation, "take")]
)
def test_a_full_disk_at_the_start_of_a_run_only_delays_it(
    fake_cli, session, monkeypatch, owner, name
):
    fake_cli.reports(HEALTHY)
    monkeypatch.setattr(owner, name, full_at_first(getattr(owner, name)))

    assert runner.run(session, enqueue=leave_to_caller)

    assert Session.objects.get(pk=session.pk).status == Session.Status.COMPLETED
