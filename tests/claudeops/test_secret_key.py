from __future__ import annotations

import multiprocessing

from cryptography.fernet import Fernet

from claudeops.state import stored_encryption_keys, stored_secret_key


def test_a_key_is_created_once_and_kept(tmp_path):
    first = stored_secret_key(tmp_path)

    assert len(first) >= 50
    assert stored_secret_key(tmp_path) == first


def test_the_directory_is_created_private(tmp_path):
    stored_secret_key(tmp_path / "new" / "state")

    assert (tmp_path / "new" / "state").stat().st_mode & 0o777 == 0o700


def test_two_installations_have_two_keys(tmp_path):
    assert stored_secret_key(tmp_path / "a") != stored_secret_key(tmp_path / "b")


def test_only_the_owner_can_read_it(tmp_path):
    stored_secret_key(tmp_path)

    assert (tmp_path / "secret_key").stat().st_mode & 0o777 == 0o600


def test_a_key_written_by_a_person_is_stripped(tmp_path):
    (tmp_path / "secret_key").write_text("chosen by a person\n")

    assert stored_secret_key(tmp_path) == "chosen by a person"


def test_an_empty_file_is_filled(tmp_path):
    (tmp_path / "secret_key").touch()

    assert len(stored_secret_key(tmp_path)) >= 50


def test_concurrent_processes_use_the_same_key(tmp_path):
    # Not forked: a copy of a process with threads may wait for a lock that none of its own holds.
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        for attempt in range(30):
            directory = tmp_path / str(attempt)

            keys = set(pool.map(stored_secret_key, [directory] * 8, chunksize=1))

            assert len(keys) == 1
            assert [path.name for path in directory.iterdir()] == ["secret_key"]


def test_the_encryption_key_is_created_once_as_a_fernet_key(tmp_path):
    [key] = stored_encryption_keys(tmp_path)

    assert Fernet(key)
    assert stored_encryption_keys(tmp_path) == (key,)
    assert (tmp_path / "encryption_key").stat().st_mode & 0o777 == 0o600


def test_a_second_line_is_a_second_key(tmp_path):
    (tmp_path / "encryption_key").write_text("new\nold\n")

    assert stored_encryption_keys(tmp_path) == ("new", "old")
