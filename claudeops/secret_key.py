"""Keys that are made once, when they are first used, and stay with the installation."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from claudeops.state_directory import make_state_directory

FERNET_BYTES = 32


def stored_secret_key(state_directory: Path) -> str:
    """Django's own."""
    return _stored(state_directory, "secret_key", lambda: secrets.token_urlsafe(50))


def stored_encryption_keys(state_directory: Path) -> tuple[str, ...]:
    """What seals archive and addresses, one key a line: the first seals, each of them opens."""
    return tuple(_stored(state_directory, "encryption_key", _new_fernet_key).split())


def _new_fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(FERNET_BYTES)).decode()


def _stored(state_directory: Path, name: str, make: Callable[[], str]) -> str:
    """Written beside and linked into place: nobody can read half a key, and the first one wins."""
    make_state_directory(state_directory)
    path = state_directory / name
    if not (path.exists() and path.read_text().strip()):
        draft = state_directory / f"{name}.{secrets.token_hex(8)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(make())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            if not path.read_text().strip():  # left empty by a crash
                draft.replace(path)
        draft.unlink(missing_ok=True)
    return path.read_text().strip()
