"""Only the CLI's own files hold an unencrypted conversation: private, and for a limited time."""

from __future__ import annotations

import stat
from datetime import timedelta
from pathlib import Path

import pytest
from django.utils import timezone

from escalation.worker.housekeeping import clean
from sessions_app.models import Cycle, Transcript
from tests.real_cli.playing import play

pytestmark = pytest.mark.django_db


def transcripts_in(state: Path) -> list[Path]:
    return list(state.rglob("projects/**/*.jsonl"))


def is_for_its_owner_alone(path: Path) -> bool:
    return not stat.S_IMODE(path.stat().st_mode) & 0o077


def test_an_unencrypted_conversation_is_private_and_removed_after_its_retention(own_state):
    drill = play("fixed-at-tier-2")
    found = transcripts_in(own_state)

    assert found
    assert [path for path in found if not is_for_its_owner_alone(path)] == []

    Cycle.objects.filter(pk=drill.cycle.pk).update(finished_at=timezone.now() - timedelta(days=91))
    clean()

    assert transcripts_in(own_state) == []
    assert Transcript.objects.exists()
    assert not Transcript.objects.filter(chunks__encrypted=False).exists()
