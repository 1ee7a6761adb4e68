from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from sessions_app.redaction.encryption import (
    EncryptedWithAnotherKey,
    decrypt,
    encrypt,
    has_known_key,
)

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
SECRET = b"json://user:hunter2@example.org/\x00\xff"


@pytest.fixture(autouse=True)
def keys(settings) -> None:
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (OLD,)


def test_what_was_encrypted_comes_back_byte_for_byte():
    assert decrypt(encrypt(SECRET), "It") == SECRET


def test_nothing_of_it_can_be_read_while_it_is_encrypted():
    assert b"hunter2" not in encrypt(SECRET)


def test_the_same_thing_never_looks_the_same():
    assert encrypt(SECRET) != encrypt(SECRET)


def test_another_key_is_named_as_what_is_wrong_and_what_to_do(settings):
    encrypted = encrypt(SECRET)
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (NEW,)

    with pytest.raises(
        EncryptedWithAnotherKey, match="The address of mail cannot be decrypted.*Restore the"
    ):
        decrypt(encrypted, "The address of mail")
    assert not has_known_key(encrypted)


def test_a_new_key_before_the_old_one_seals_and_both_open(settings):
    encrypted = encrypt(SECRET)
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (NEW, OLD)

    assert decrypt(encrypted, "It") == SECRET
    encrypted_anew = encrypt(SECRET)
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (NEW,)
    assert decrypt(encrypted_anew, "It") == SECRET


@pytest.mark.parametrize("place", [8, 20, -1])
def test_damage_is_told_from_another_key(place):
    encrypted = bytearray(encrypt(SECRET))
    encrypted[place] ^= 1

    with pytest.raises(ValueError, match="It is damaged"):
        decrypt(bytes(encrypted), "It")


def test_a_file_that_holds_no_key_is_named(settings):
    settings.CLAUDEOPS_ENCRYPTION_KEYS = ("letmein",)

    with pytest.raises(ImproperlyConfigured, match="44 characters"):
        encrypt(SECRET)
