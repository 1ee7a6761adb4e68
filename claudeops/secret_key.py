"""A secret key that is made once, when it is first used, and stays with the installation."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from claudeops.state_directory import make_state_directory


def stored_secret_key(state_directory: Path) -> str:
    """Written beside and linked into place: nobody can read half a key, and the first one wins."""
    make_state_directory(state_directory)
    path = state_directory / "secret_key"
    if not (path.exists() and path.read_text().strip()):
        draft = state_directory / f"secret_key.{secrets.token_hex(8)}"
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(50))
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            if not path.read_text().strip():  # left empty by a crash
                draft.replace(path)
        draft.unlink(missing_ok=True)
    return path.read_text().strip()
