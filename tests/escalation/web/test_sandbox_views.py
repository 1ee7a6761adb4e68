"""Accepting walls that got worse."""

from __future__ import annotations

import pytest
from django.urls import reverse

from escalation.queue import slots
from tests.factories import SandboxProofFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def called(monkeypatch) -> list[bool]:
    """Whether those who wait were called."""
    found: list[bool] = []

    def start_waiting() -> int:
        found.append(True)
        return 1

    monkeypatch.setattr(slots, "start_waiting", start_waiting)
    return found


def accept(client, proof, **form: str) -> None:
    client.post(reverse("web:accept_proof", args=[proof.pk]), form)
    proof.refresh_from_db()


def test_who_and_when_are_recorded_and_those_who_wait_are_called(operator_client, operator, called):
    proof = SandboxProofFactory(worse=True)

    accept(operator_client, proof, confirm="on")

    assert proof.accepted_by == operator
    assert proof.accepted_at is not None
    assert not proof.holds_higher_tiers
    assert called == [True]


def test_without_a_tick_nothing_is_accepted(operator_client, called):
    proof = SandboxProofFactory(worse=True)

    accept(operator_client, proof)

    assert proof.holds_higher_tiers
    assert called == []


def test_what_holds_nothing_up_is_not_accepted_and_a_second_time_changes_nothing(
    operator_client, called
):
    fine, worse = SandboxProofFactory(), SandboxProofFactory(worse=True)
    accept(operator_client, fine, confirm="on")
    accept(operator_client, worse, confirm="on")
    first = worse.accepted_at

    accept(operator_client, worse, confirm="on")

    assert fine.accepted_at is None
    assert worse.accepted_at == first
    assert called == [True]
