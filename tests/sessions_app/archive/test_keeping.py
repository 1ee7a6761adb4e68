"""Archived data: encrypted, unchanged, and removed after its retention time."""

from __future__ import annotations

import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk.types import SessionKey
from cryptography.fernet import Fernet
from django.conf import settings
from django.utils import timezone

from sessions_app.archive.encryption_key import (
    encrypt_chunks,
    encrypt_with_first_key,
    old_transcripts,
    older_keys_status,
    remove_old,
)
from sessions_app.archive.transcripts import (
    TranscriptLocked,
    append_entries,
    append_missing,
    encode,
    load_entries,
)
from sessions_app.models import Session, Transcript, TranscriptChunk
from sessions_app.redaction.encryption import address_of
from tests.factories import ChannelFactory, SessionFactory

pytestmark = pytest.mark.django_db
KEY: SessionKey = {"project_key": "-srv-shop", "session_id": "11111111-1111-4111-8111-111111111111"}
SECRET = "ghp_" + "a1B2" * 9
SAID = {"type": "user", "uuid": "a", "message": f"the token is {SECRET} \ud800 \x00"}
KEYS = (Fernet.generate_key().decode(),)
OTHER_KEYS = (Fernet.generate_key().decode(),)


@pytest.fixture(params=["database", "directory"])
def place(request, settings, tmp_path: Path) -> Path:
    directory = tmp_path / "archive"
    settings.CLAUDEOPS_ENCRYPTION_KEYS = KEYS
    settings.CLAUDEOPS_ARCHIVE_DIR = str(directory) if request.param == "directory" else ""
    return directory


def stored(place: Path) -> bytes:
    """All that lies on disk of the archive, in rows and in files."""
    rows = b"".join(bytes(chunk.content) for chunk in TranscriptChunk.objects.all())
    return rows + b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())


def kept_in_the_clear(place: Path, entry: dict[str, Any]) -> TranscriptChunk:
    """As it was stored before the archive was sealed."""
    content = zlib.compress(encode(entry))
    transcript = Transcript.objects.create(**KEY)
    chunk = TranscriptChunk(transcript=transcript, number=0, entries=1)
    if settings.CLAUDEOPS_ARCHIVE_DIR:
        place.mkdir()
        (place / "old.z").write_bytes(content)
        chunk.stored_as = "old.z"
    else:
        chunk.content = content
    chunk.save()
    return chunk


def readable(content: bytes) -> bool:
    try:
        return b"ghp_" in zlib.decompress(content)
    except zlib.error:
        return b"ghp_" in content


def test_archived_entries_are_encrypted_and_returned_unchanged(place):
    append_entries(KEY, [SAID])

    assert not readable(stored(place))
    assert load_entries(KEY) == [SAID]


def test_unencrypted_entries_are_read(place):
    kept_in_the_clear(place, SAID)

    assert readable(stored(place))
    assert load_entries(KEY) == [SAID]


def test_unencrypted_entries_are_encrypted_once(place, django_capture_on_commit_callbacks):
    kept_in_the_clear(place, SAID)

    with django_capture_on_commit_callbacks(execute=True):
        assert encrypt_chunks() == 1

    assert not readable(stored(place))
    assert load_entries(KEY) == [SAID]
    assert encrypt_chunks() == 0


def test_a_missing_file_does_not_prevent_the_encryption_of_others(place, caplog):
    first = kept_in_the_clear(place, SAID)
    TranscriptChunk.objects.create(
        transcript=first.transcript, number=1, entries=1, stored_as="nowhere.z"
    )

    assert encrypt_chunks() == 1
    assert "Could not encrypt" in caplog.text


def test_entries_of_an_older_key_are_encrypted_with_the_new_one(
    place, settings, django_capture_on_commit_callbacks
):
    append_entries(KEY, [SAID])
    target = ChannelFactory(address="json://me:hunter2hunter2@127.0.0.1:9/")
    assert older_keys_status() == ""
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (*OTHER_KEYS, *KEYS)
    before = older_keys_status()

    with django_capture_on_commit_callbacks(execute=True):
        assert encrypt_with_first_key() == 2

    after = older_keys_status()
    assert encrypt_with_first_key() == 0
    settings.CLAUDEOPS_ENCRYPTION_KEYS = OTHER_KEYS
    target.refresh_from_db()
    assert load_entries(KEY) == [SAID]
    assert address_of(target) == "json://me:hunter2hunter2@127.0.0.1:9/"
    assert ("2 items" in before, "can be removed" in after) == (True, True)
    assert len(list(place.rglob("*.sealed"))) <= 1


def test_entries_of_an_unknown_key_are_unchanged(place, settings):
    append_entries(KEY, [SAID])
    ChannelFactory()
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (*OTHER_KEYS, Fernet.generate_key().decode())

    assert encrypt_with_first_key() == 0

    settings.CLAUDEOPS_ENCRYPTION_KEYS = KEYS
    assert load_entries(KEY) == [SAID]


def test_with_one_key_the_archive_is_not_read(place, django_assert_num_queries):
    append_entries(KEY, [SAID])

    with django_assert_num_queries(0):
        assert encrypt_with_first_key() == 0


def test_another_key_decrypts_nothing_and_loses_nothing(place, settings):
    append_entries(KEY, [SAID])
    settings.CLAUDEOPS_ENCRYPTION_KEYS = OTHER_KEYS

    with pytest.raises(TranscriptLocked, match="encrypted with another key"):
        load_entries(KEY)
    with pytest.raises(TranscriptLocked):
        append_missing(KEY, [SAID, {**SAID, "uuid": "b"}])

    settings.CLAUDEOPS_ENCRYPTION_KEYS = KEYS
    assert load_entries(KEY) == [SAID]


def test_the_summary_is_redacted(place):
    append_entries(KEY, [{**SAID, "message": {"role": "user", "content": SECRET}}])

    assert SECRET not in str(Transcript.objects.get().summary)


def test_an_old_transcript_is_removed_with_its_files(place, django_capture_on_commit_callbacks):
    append_entries(KEY, [SAID])

    with django_capture_on_commit_callbacks(execute=True):
        assert remove_old(timezone.now() + timedelta(seconds=1)) == 1

    assert stored(place) == b""
    assert load_entries(KEY) is None


def test_a_recent_transcript_and_one_in_use_are_kept(place):
    append_entries(KEY, [SAID])
    now = timezone.now()

    assert not old_transcripts(now - timedelta(days=1)).exists()
    SessionFactory(session_id=KEY["session_id"], status=Session.Status.RUNNING)
    assert not old_transcripts(now + timedelta(days=1)).exists()
