"""Encryption with Fernet and the keys of the installation.

The first key encrypts and every key decrypts, so that keys can be replaced. Encrypted data begins
with a fingerprint of the key, which tells a missing key from damaged data. The token of Fernet
follows without base64, which would make the archive a third larger.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from cryptography.fernet import Fernet, InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from sessions_app.models import Channel, Source
from sessions_app.redaction.redact import forget_all, learn

FINGERPRINT_BYTES = 8
FERNET_VERSION = b"\x80"
KEY_IS_ANOTHER = (
    "it was encrypted with another key. Restore the key that was in encryption_key in the state "
    "directory (or in CLAUDEOPS_ENCRYPTION_KEY) when it was stored, as a second line of the file "
    "or after a comma. The data can be read as long as that key exists"
)
NO_KEYS = (
    "encryption_key in the state directory does not contain valid keys: restore the file. "
    "A key has 44 characters, and each key has a line of its own."
)


class EncryptedWithAnotherKey(Exception):
    """Raised for data that none of the keys of the installation can decrypt."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} cannot be decrypted: {KEY_IS_ANOTHER}.")


def encrypt(clear: bytes) -> bytes:
    key_print, fernet = next(iter(_fernets(_keys()).items()))
    return key_print + base64.urlsafe_b64decode(fernet.encrypt(clear))


def decrypt(encrypted: bytes, what: str) -> bytes:
    """Raise EncryptedWithAnotherKey if no key fits, ValueError if the data is damaged."""
    if encrypted[FINGERPRINT_BYTES : FINGERPRINT_BYTES + 1] != FERNET_VERSION:
        raise ValueError(f"{what} is damaged")
    fernet = _fernets(_keys()).get(encrypted[:FINGERPRINT_BYTES])
    if fernet is None:
        raise EncryptedWithAnotherKey(what)
    try:
        return fernet.decrypt(base64.urlsafe_b64encode(encrypted[FINGERPRINT_BYTES:]))
    except InvalidToken as error:
        raise ValueError(f"{what} is damaged") from error


def has_known_key(encrypted: bytes) -> bool:
    """Return True if one of the keys decrypts the data. Only its beginning is read."""
    return encrypted[:FINGERPRINT_BYTES] in _fernets(_keys())


def has_older_key(encrypted: bytes) -> bool:
    """Return True if the data is encrypted with a key other than the first."""
    older = list(_fernets(_keys()))[1:]
    return encrypted[:FINGERPRINT_BYTES] in older


def has_older_keys() -> bool:
    return len(_fernets(_keys())) > 1


def _keys() -> tuple[str, ...]:
    return tuple(settings.CLAUDEOPS_ENCRYPTION_KEYS)


@lru_cache(maxsize=4)
def _fernets(keys: tuple[str, ...]) -> dict[bytes, Fernet]:
    """Return the keys by their fingerprints, in order."""
    try:
        return {
            hashlib.sha256(key.encode()).digest()[:FINGERPRINT_BYTES]: Fernet(key) for key in keys
        }
    except ValueError as error:
        raise ImproperlyConfigured(NO_KEYS) from error


# Addresses of notification channels and secrets of sources of alerts. Decrypted ones are registered
# with redaction; a process loads them before it writes text that may contain them
# (`learn_addresses`).

KIND = "notification address"
SOURCE_KIND = "secret of an alert source"


def encrypt_address(address: str) -> bytes:
    return encrypt(address.encode())


def address_of(channel: Channel) -> str:
    """Decrypt the address of a channel. Raise EncryptedWithAnotherKey if no key fits."""
    what = f"The address of {channel.name}"
    try:
        address = decrypt(bytes(channel.encrypted_address), what).decode()
    except ValueError as error:
        raise EncryptedWithAnotherKey(what) from error
    learn(KIND, channel.pk, _secrets_in(address))
    return address


def secret_of(source: Source) -> str:
    """Decrypt the secret of a source. Raise EncryptedWithAnotherKey if no key fits."""
    what = f"The secret of {source.name}"
    try:
        secret = decrypt(bytes(source.encrypted_secret), what).decode()
    except ValueError as error:
        raise EncryptedWithAnotherKey(what) from error
    learn(SOURCE_KIND, source.pk, [secret])
    return secret


def learn_addresses() -> None:
    """Register addresses of channels and secrets of sources with redaction, except those that no
    key decrypts."""
    forget_all(SOURCE_KIND)
    for source in Source.objects.exclude(encrypted_secret=b"").only("name", "encrypted_secret"):
        with contextlib.suppress(EncryptedWithAnotherKey):
            secret_of(source)
    forget_all(KIND)
    for channel in Channel.objects.only("name", "encrypted_address"):
        try:
            address_of(channel)
        except EncryptedWithAnotherKey:
            continue


def _secrets_in(address: str) -> list[str]:
    """Return the address and the password in it."""
    try:
        password = urlsplit(address).password
    except ValueError:
        password = None
    return [address, unquote(password)] if password else [address]
