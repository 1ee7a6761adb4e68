"""A secret key that is made once and stays with the installation."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def stored_secret_key(state_directory: Path) -> str:
    path = state_directory / "secret_key"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return path.read_text().strip()
    with os.fdopen(descriptor, "w") as file:
        key = secrets.token_urlsafe(50)
        file.write(key)
    return key
