"""What is kept sealed: Fernet, with the installation's own keys.

The first key seals; each of them opens, so that a key can be replaced while old things are kept. A
sealed thing begins with the print of its key, which tells a key that is not here from damage. Then
comes Fernet's token, without its base64, which would make an archive a third larger.
"""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

PRINT_BYTES = 8
FERNET_VERSION = b"\x80"
KEY_IS_ANOTHER = (
    "it was sealed with another key. Put the key back that was in encryption_key in the state "
    "directory (or in CLAUDEOPS_ENCRYPTION_KEY) when it was stored; a second line there, or a "
    "second key after a comma, is tried too. Nothing is lost as long as that key is somewhere"
)
NO_KEYS = (
    "encryption_key in the state directory holds something else than keys: put it back as it was. "
    "A key has 44 characters, and each stands on a line of its own."
)


class SealedWithAnotherKey(Exception):
    """It is there, and none of our keys is the one that sealed it."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} cannot be opened: {KEY_IS_ANOTHER}.")


def seal(clear: bytes) -> bytes:
    key_print, fernet = next(iter(_fernets(_keys()).items()))
    return key_print + base64.urlsafe_b64decode(fernet.encrypt(clear))


def unseal(sealed: bytes, what: str) -> bytes:
    """Raise SealedWithAnotherKey, which names what could not be opened; ValueError for damage."""
    if sealed[PRINT_BYTES : PRINT_BYTES + 1] != FERNET_VERSION:
        raise ValueError(f"{what} is damaged")
    fernet = _fernets(_keys()).get(sealed[:PRINT_BYTES])
    if fernet is None:
        raise SealedWithAnotherKey(what)
    try:
        return fernet.decrypt(base64.urlsafe_b64encode(sealed[PRINT_BYTES:]))
    except InvalidToken as error:
        raise ValueError(f"{what} is damaged") from error


def is_ours(sealed: bytes) -> bool:
    """Whether one of our keys sealed it; its beginning is enough."""
    return sealed[:PRINT_BYTES] in _fernets(_keys())


def needs_new_seal(sealed: bytes) -> bool:
    """Whether an older key of ours sealed it, which cannot be dropped before the first one has."""
    older = list(_fernets(_keys()))[1:]
    return sealed[:PRINT_BYTES] in older


def has_older_keys() -> bool:
    return len(_fernets(_keys())) > 1


def _keys() -> tuple[str, ...]:
    return tuple(settings.CLAUDEOPS_ENCRYPTION_KEYS)


@lru_cache(maxsize=4)
def _fernets(keys: tuple[str, ...]) -> dict[bytes, Fernet]:
    """Each key by its print, in their order."""
    try:
        return {hashlib.sha256(key.encode()).digest()[:PRINT_BYTES]: Fernet(key) for key in keys}
    except ValueError as error:
        raise ImproperlyConfigured(NO_KEYS) from error
