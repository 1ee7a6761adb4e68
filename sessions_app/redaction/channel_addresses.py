"""Encrypted addresses of notification channels.

Decrypted addresses are registered with redaction. A process loads them before it writes text that
may contain them (`learn_addresses`).
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from sessions_app.models import Channel
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, decrypt, encrypt
from sessions_app.redaction.redact import forget_all, learn

KIND = "notification address"


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


def learn_addresses() -> None:
    """Register the addresses of all channels with redaction, except those that no key decrypts."""
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
