"""Accepting a sandbox proof that got worse."""

from __future__ import annotations

import pytest
from django.urls import reverse

from escalation.web import sandbox
from tests.factories import SandboxProofFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def called(monkeypatch) -> list[bool]:
    """Whether those who wait were called."""
    found: list[bool] = []

    def start_waiting() -> int:
        found.append(True)
        return 1

    monkeypatch.setattr(sandbox, "start_waiting", start_waiting)
    return found


def accept(client, proof, **form: str) -> None:
    client.post(reverse("web:accept_proof", args=[proof.pk]), form)
    proof.refresh_from_db()


def test_accepting_a_worse_proof_records_who_and_when_and_starts_waiting_sessions(
    operator_client, operator, called
):
    proof = SandboxProofFactory(worse=True)

    accept(operator_client, proof, confirm="on")

    assert proof.accepted_by == operator
    assert proof.accepted_at is not None
    assert not proof.holds_higher_tiers
    assert called == [True]


def test_without_a_confirmation_nothing_is_accepted(operator_client, called):
    proof = SandboxProofFactory(worse=True)

    accept(operator_client, proof)

    assert proof.holds_higher_tiers
    assert called == []


def test_only_a_worse_proof_is_accepted_and_only_once(operator_client, called):
    fine, worse = SandboxProofFactory(), SandboxProofFactory(worse=True)
    accept(operator_client, fine, confirm="on")
    accept(operator_client, worse, confirm="on")
    first = worse.accepted_at

    accept(operator_client, worse, confirm="on")

    assert fine.accepted_at is None
    assert worse.accepted_at == first
    assert called == [True]
