"""The addresses of targets: secrets, sealed at rest, and known to the masking where text is made.

A process learns them when it begins something whose text they could stand in (`learned_values`).
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from sessions_app.models import Target
from sessions_app.reading.learned_values import forget_all, learn
from sessions_app.reading.sealing import SealedWithAnotherKey, seal, unseal

WHAT = "notification address"


def sealed_address(address: str) -> bytes:
    return seal(address.encode())


def address_of(target: Target) -> str:
    """Raise SealedWithAnotherKey where none of our keys opens it."""
    what = f"The address of {target.name}"
    try:
        address = unseal(bytes(target.sealed_address), what).decode()
    except ValueError as error:
        raise SealedWithAnotherKey(what) from error
    learn(WHAT, target.pk, _secrets_in(address))
    return address


def learn_addresses() -> None:
    """Those of all targets; one that no key opens stays unknown, and is shown elsewhere."""
    forget_all(WHAT)
    for target in Target.objects.only("name", "sealed_address"):
        try:
            address_of(target)
        except SealedWithAnotherKey:
            continue


def _secrets_in(address: str) -> list[str]:
    """The whole, and what stands in it as a password."""
    try:
        password = urlsplit(address).password
    except ValueError:
        password = None
    return [address, unquote(password)] if password else [address]
