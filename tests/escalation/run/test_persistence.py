"""Writes are retried until the database accepts them."""

from __future__ import annotations

import pytest
from django.db import OperationalError

from escalation.run import recorder, runner
from escalation.run.recorder import persistently
from sessions_app.models import Conversation, Cycle, Session
from tests.escalation.rows import HEALTHY


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(recorder, "LOOK_SECONDS", 0.01)


def full_at_first(action, times: int = 2):
    """The disk is full when it is asked for the first times."""
    left = [times]

    def act(*args, **options):
        if left[0]:
            left[0] -= 1
            raise OperationalError("database or disk is full")
        return action(*args, **options)

    return act


def test_retry_returns_the_result_of_the_action():
    assert persistently(full_at_first(lambda: "stored")) == "stored"


def test_after_the_timeout_the_error_is_raised(monkeypatch):
    monkeypatch.setattr(recorder, "TIMEOUT_SECONDS", 0.05)

    with pytest.raises(OperationalError):
        persistently(full_at_first(lambda: "stored", times=1000))


def test_an_error_of_another_kind_is_raised_at_once():
    attempts = []

    def action() -> None:
        attempts.append(1)
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 (raised three lines above)
        persistently(action)

    assert len(attempts) == 1


def test_ctrl_c_is_not_retried():
    attempts = []

    def action() -> None:
        attempts.append(1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        persistently(action)

    assert len(attempts) == 1


def test_many_retries_are_one_line_in_the_log(caplog):
    persistently(full_at_first(lambda: "stored", times=5))

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "disk is full" in caplog.text


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("owner", "name"), [(runner, "admit"), (Cycle, "begin"), (Conversation, "take")]
)
def test_a_full_disk_at_the_start_of_a_run_only_delays_it(
    fake_cli, session, monkeypatch, owner, name
):
    fake_cli.reports(HEALTHY)
    monkeypatch.setattr(owner, name, full_at_first(getattr(owner, name)))

    assert runner.run(session)

    assert Session.objects.get(pk=session.pk).status == Session.Status.COMPLETED
