from __future__ import annotations

import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ImproperlyConfigured

from sessions_app.reading.sealing import SealedWithAnotherKey, is_ours, seal, unseal

OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
SECRET = b"json://user:hunter2@example.org/\x00\xff"


@pytest.fixture(autouse=True)
def keys(settings) -> None:
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (OLD,)


def test_what_was_sealed_comes_back_byte_for_byte():
    assert unseal(seal(SECRET), "It") == SECRET


def test_nothing_of_it_can_be_read_while_it_is_sealed():
    assert b"hunter2" not in seal(SECRET)


def test_the_same_thing_never_looks_the_same():
    assert seal(SECRET) != seal(SECRET)


def test_another_key_is_named_as_what_is_wrong_and_what_to_do(settings):
    sealed = seal(SECRET)
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (NEW,)

    with pytest.raises(SealedWithAnotherKey, match="The address of mail cannot be opened.*Put the"):
        unseal(sealed, "The address of mail")
    assert not is_ours(sealed)


def test_a_new_key_before_the_old_one_seals_and_both_open(settings):
    sealed = seal(SECRET)
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (NEW, OLD)

    assert unseal(sealed, "It") == SECRET
    sealed_anew = seal(SECRET)
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (NEW,)
    assert unseal(sealed_anew, "It") == SECRET


@pytest.mark.parametrize("place", [8, 20, -1])
def test_damage_is_told_from_another_key(place):
    sealed = bytearray(seal(SECRET))
    sealed[place] ^= 1

    with pytest.raises(ValueError, match="It is damaged"):
        unseal(bytes(sealed), "It")


def test_a_file_that_holds_no_key_is_named(settings):
    settings.CLAUDEOPS_ENCRYPTION_KEYS = ("letmein",)

    with pytest.raises(ImproperlyConfigured, match="44 characters"):
        seal(SECRET)
