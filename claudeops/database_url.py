"""DATABASE_URL to Django's settings for SQLite and PostgreSQL."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

SQLITE_OPTIONS = {
    # A writer waits for another writer instead of failing; readers never wait under WAL.
    "timeout": 20,
    # Taking the write lock at once avoids the "database is locked" of a late upgrade.
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}


def sqlite_database(path: Path | str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": str(path),
        "OPTIONS": dict(SQLITE_OPTIONS),
        # A file, because a web server under test is another thread; one for each test run.
        "TEST": {
            "NAME": str(Path(tempfile.gettempdir()) / f"claudeops-test-{os.getpid()}.sqlite3")
        },
    }


def database_from_url(url: str) -> dict[str, Any]:
    """Raise ValueError, with a sentence for the operator, when the address cannot be used."""
    parts = urlsplit(url)
    if parts.scheme in {"sqlite", "sqlite3"}:
        if parts.netloc or len(parts.path) < 2:
            raise ValueError("must name a file, as in sqlite:////srv/claudeops.sqlite3")
        return sqlite_database(unquote(parts.path[1:]))
    if parts.scheme in {"postgres", "postgresql"}:
        name = unquote(parts.path.lstrip("/"))
        if not name:
            raise ValueError("must name a database, as in postgresql://user@host/claudeops")
        return {
            "ENGINE": "django.db.backends.postgresql",
            "NAME": name,
            "USER": unquote(parts.username or ""),
            "PASSWORD": unquote(parts.password or ""),
            "HOST": parts.hostname or "",
            "PORT": str(parts.port or ""),
            "OPTIONS": dict(parse_qsl(parts.query)),
        }
    raise ValueError("must begin with sqlite:/// or postgresql://")
