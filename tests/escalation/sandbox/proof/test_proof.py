from __future__ import annotations

import socket
from pathlib import Path

import pytest
from django.utils import timezone

from escalation.agent import fingerprint_of
from escalation.errors import CannotRun
from escalation.rehearsal.walls import proof
from escalation.rehearsal.walls.play import kernel
from escalation.rooms.bubblewrap import RoomsState
from sessions_app.models import Happening, WallsProof
from tests.escalation.fake_cli import FakeCli
from tests.factories import WallsProofFactory

CORPUS, ATTACKS = WallsProof.Kind.CORPUS, WallsProof.Kind.ATTACKS
pytestmark = pytest.mark.django_db


def found(failed=0):
    return {
        **{"host": "lighthouse", "kernel": "Linux 6.1", "rooms": "bubblewrap 0.8.0"},
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
    WallsProofFactory(failed=1)

    assert not proof.store(CORPUS, found(failed=1)).is_worse
    assert proof.store(CORPUS, found(failed=2)).is_worse


def test_people_are_told_of_walls_that_got_worse_and_of_no_others():
    proof.store(CORPUS, found())
    assert not Happening.objects.exists()

    proof.store(CORPUS, found(failed=1))

    told = Happening.objects.get()
    assert told.kind == Happening.Kind.WALLS_WORSE
    assert told.title == "The walls got worse: 1 of 3 failed"
    assert told.path == "/walls/"


def test_a_proof_that_holds_higher_tiers_is_no_measure_until_it_is_accepted():
    WallsProofFactory(failed=1)
    worse = proof.store(CORPUS, found(failed=2))
    assert proof.store(CORPUS, found(failed=2)).is_worse

    worse.accepted_at = timezone.now()
    worse.save()
    assert not proof.store(CORPUS, found(failed=2)).is_worse


def test_the_kinds_are_measured_apart():
    WallsProofFactory(kind=ATTACKS, failed=9)

    assert proof.store(CORPUS, found(failed=1)).is_worse


def test_walls_that_were_never_seen_to_hold_wait_for_a_person():
    assert proof.store(CORPUS, found(failed=1)).holds_higher_tiers


@pytest.fixture
def proved(fake_cli: FakeCli):
    """Both kinds, here, with the CLI and the kernel as they are."""
    now = {
        "host": socket.gethostname(),
        "kernel": kernel(),
        "cli_fingerprint": fingerprint_of(Path(fake_cli.path)),
    }
    return [WallsProofFactory(kind=kind, **now) for kind in (CORPUS, ATTACKS)]


def test_nothing_is_due_while_cli_and_kernel_are_the_same(proved):
    assert proof.due_kinds() == []


@pytest.mark.parametrize("field", ["cli_fingerprint", "kernel", "host"])
def test_another_cli_kernel_or_host_makes_a_proof_due(field, proved):
    setattr(proved[1], field, "another")
    proved[1].save()

    assert proof.due_kinds() == [ATTACKS]


def test_without_any_proof_both_are_due(fake_cli):
    assert proof.due_kinds() == [CORPUS, ATTACKS]


def test_what_is_due_is_tried_apart_and_stored(fake_cli, monkeypatch):
    asked = []

    def play(arguments, *, progress):
        asked.append(arguments)
        return found()

    monkeypatch.setattr(proof, "play_apart", play)

    stored = proof.prove_if_due()

    assert asked == [(), ("--attacks",)]
    assert [each.kind for each in stored] == [CORPUS, ATTACKS]


@pytest.fixture
def no_rooms(monkeypatch):
    state = RoomsState(in_force=False, why="bubblewrap is not installed")
    monkeypatch.setattr(proof, "rooms_or_refusal", lambda: state)


def test_without_rooms_hostile_commands_are_not_let_loose(no_rooms, fake_cli):
    assert proof.prove_if_due() == []
    with pytest.raises(CannotRun, match="bubblewrap is not installed.*--dry"):
        proof.prove(CORPUS)
