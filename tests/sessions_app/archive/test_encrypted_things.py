"""A key that cannot decrypt stored data is reported."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from claude_agent_sdk.types import SessionKey
from cryptography.fernet import Fernet

from escalation.checks import check_encryption_key
from escalation.worker.worker import _check_encryption_key
from sessions_app.archive.encryption_key import check_keys, undecryptable_data
from sessions_app.archive.transcripts import append_entries
from tests.factories import ChannelFactory

pytestmark = pytest.mark.django_db
KEY: SessionKey = {"project_key": "-srv-shop", "session_id": "11111111-1111-4111-8111-111111111111"}


@pytest.fixture(params=["database", "directory"])
def kept(request, settings, tmp_path: Path) -> None:
    in_directory = request.param == "directory"
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive") if in_directory else ""
    append_entries(KEY, [{"type": "user", "uuid": "a"}])
    ChannelFactory(name="mail")


@pytest.fixture
def another_key(settings) -> None:
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (Fernet.generate_key().decode(),)


def test_with_the_right_key_nothing_is_reported(kept):
    assert undecryptable_data() == []
    assert check_keys()[0]
    assert check_encryption_key(databases=["default"]) == []


def test_data_encrypted_with_another_key_is_reported(kept, another_key):
    assert undecryptable_data() == [
        "The address of mail",
        "Transcript 11111111-1111-4111-8111-111111111111 #0",
    ]
    opens, said = check_keys()
    assert not opens
    assert (
        "The address of mail and 1 more cannot be decrypted: it was encrypted with another key"
        in said
    )


def test_the_check_and_the_worker_report_another_key(kept, another_key, caplog):
    [found] = check_encryption_key(databases=["default"])
    with caplog.at_level(logging.ERROR):
        _check_encryption_key()

    assert found.id == "escalation.E007"
    assert "encrypted with another key" in found.msg
    assert "encrypted with another key" in caplog.text


def test_the_check_reads_the_database_only_when_it_may(django_assert_num_queries):
    with django_assert_num_queries(0):
        assert check_encryption_key() == []
