from __future__ import annotations

import socket
from pathlib import Path

import pytest
from django.utils import timezone
from django_q.models import Schedule

from escalation.agent.binary import fingerprint_of
from escalation.errors import CannotRun
from escalation.sandbox.bubblewrap import SandboxState
from escalation.sandbox.proof import proof
from escalation.sandbox.proof.play import kernel
from escalation.worker.schedules import SANDBOX_PROOF
from sessions_app.models import Notification, SandboxProof
from tests.escalation.fake_cli import FakeCli
from tests.factories import SandboxProofFactory

CORPUS, ATTACKS = SandboxProof.Kind.CORPUS, SandboxProof.Kind.ATTACKS
pytestmark = pytest.mark.django_db


def found(failed=0):
    return {
        **{"host": "lighthouse", "kernel": "Linux 6.1", "sandbox": "bubblewrap 0.8.0"},
        **{"cli_version": "2.1.325", "cli_fingerprint": "abc", "seconds": 60},
        **{"rows": [{"ok": True}], "tried": 3, "failed": failed},
    }


def test_a_proof_is_stored_with_all_that_was_found():
    stored = proof.store(CORPUS, found())

    stored.refresh_from_db()
    assert (stored.kind, stored.host, stored.kernel) == ("corpus", "lighthouse", "Linux 6.1")
    assert (stored.tried, stored.failed, stored.rows) == (3, 0, [{"ok": True}])
    assert (stored.finished_at - stored.started_at).total_seconds() == 60
    assert not stored.is_worse


def test_more_failures_than_in_the_proof_before_are_worse():
    SandboxProofFactory(failed=1)

    assert not proof.store(CORPUS, found(failed=1)).is_worse
    assert proof.store(CORPUS, found(failed=2)).is_worse


def test_a_worse_proof_sends_a_notification():
    proof.store(CORPUS, found())
    assert not Notification.objects.exists()

    proof.store(CORPUS, found(failed=1))

    told = Notification.objects.get()
    assert told.kind == Notification.Kind.SANDBOX_WORSE
    assert "1 of 3" in told.title
    assert told.path == "/sandbox/"


def test_a_proof_that_holds_higher_tiers_is_no_measure_until_it_is_accepted():
    SandboxProofFactory(failed=1)
    worse = proof.store(CORPUS, found(failed=2))
    assert proof.store(CORPUS, found(failed=2)).is_worse

    worse.accepted_at = timezone.now()
    worse.save()
    assert not proof.store(CORPUS, found(failed=2)).is_worse


def test_the_kinds_are_measured_apart():
    SandboxProofFactory(kind=ATTACKS, failed=9)

    assert proof.store(CORPUS, found(failed=1)).is_worse


def test_a_first_proof_with_failures_needs_acceptance():
    assert proof.store(CORPUS, found(failed=1)).holds_higher_tiers


@pytest.fixture
def proved(fake_cli: FakeCli):
    """Both kinds, here, with the CLI and the kernel as they are."""
    now = {
        "host": socket.gethostname(),
        "kernel": kernel(),
        "cli_fingerprint": fingerprint_of(Path(fake_cli.path)),
    }
    return [SandboxProofFactory(kind=kind, **now) for kind in (CORPUS, ATTACKS)]


def test_nothing_is_due_while_cli_and_kernel_are_the_same(proved):
    assert proof.due_kinds() == []


@pytest.mark.parametrize("field", ["cli_fingerprint", "kernel", "host"])
def test_another_cli_kernel_or_host_makes_a_proof_due(field, proved):
    setattr(proved[1], field, "another")
    proved[1].save()

    assert proof.due_kinds() == [ATTACKS]


def test_without_any_proof_both_are_due(fake_cli):
    assert proof.due_kinds() == [CORPUS, ATTACKS]


def test_due_kinds_are_played_in_scratch_and_stored(fake_cli, monkeypatch):
    asked = []

    def play(arguments, *, low_priority):
        assert low_priority
        asked.append(arguments)
        return found()

    monkeypatch.setattr(proof, "play_in_scratch", play)

    stored = proof.prove_if_due()

    assert asked == [(), ("--attacks",)]
    assert [each.kind for each in stored] == [CORPUS, ATTACKS]


def test_a_proof_ahead_is_announced_with_its_time(fake_cli):
    at = timezone.now().replace(hour=7, minute=5)
    Schedule.objects.create(name=SANDBOX_PROOF, func="x", next_run=at)

    assert f"at {timezone.localtime(at):%H:%M}" in proof.proof_ahead()


def test_a_proof_that_is_not_due_is_not_announced(proved):
    assert proof.proof_ahead() == ""


@pytest.fixture
def no_sandboxes(monkeypatch):
    state = SandboxState(in_force=False, why="bubblewrap is not installed")
    monkeypatch.setattr(proof, "sandbox_or_refusal", lambda: state)


def test_without_sandboxes_nothing_is_played(no_sandboxes, fake_cli):
    assert proof.prove_if_due() == []
    with pytest.raises(CannotRun, match="bubblewrap is not installed.*--dry"):
        proof.prove(CORPUS)
