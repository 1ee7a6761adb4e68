"""DATABASE_URL to Django's settings for SQLite and PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import dj_database_url

Database: TypeAlias = dict[str, Any]

SQLITE, POSTGRESQL = "django.db.backends.sqlite3", "django.db.backends.postgresql"
RECONNECTING_POSTGRESQL = "claudeops.postgresql"
SQLITE_OPTIONS = {
    # A writer waits for another writer instead of failing; readers never wait under WAL.
    "timeout": 20,
    # Taking the write lock at once avoids the "database is locked" of a late upgrade.
    "transaction_mode": "IMMEDIATE",
    "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
}

POSTGRESQL_OPTIONS = {
    # A server that cannot be reached is an error within seconds, not within a quarter of an hour:
    # a runner that is cut off must know it before another host goes on with its work.
    "connect_timeout": 5,
    "keepalives_idle": 5,
    "keepalives_interval": 3,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}

dj_database_url.register("sqlite3", SQLITE)


def sqlite_database(path: Path | str) -> Database:
    return {"ENGINE": SQLITE, "NAME": str(path), "OPTIONS": dict(SQLITE_OPTIONS)}


def database_from_url(url: str) -> Database:
    """Raise ValueError, with a sentence for the operator, when the address cannot be used."""
    database = _parsed(url)
    if database["ENGINE"] == SQLITE:
        # The library takes an address without a path for a database in memory.
        if database.get("HOST") or database["NAME"] in {"", ":memory:"}:
            raise ValueError("must name a file, as in sqlite:////srv/claudeops.sqlite3")
        return sqlite_database(database["NAME"])
    if database["ENGINE"] != POSTGRESQL:
        raise ValueError("must begin with sqlite:/// or postgresql://")
    if not database["NAME"]:
        raise ValueError("must name a database, as in postgresql://user@host/claudeops")
    options = {**POSTGRESQL_OPTIONS, **database.get("OPTIONS", {})}
    return {**database, "ENGINE": RECONNECTING_POSTGRESQL, "OPTIONS": options}


def _parsed(url: str) -> Database:
    try:
        return dict(dj_database_url.parse(url))
    except dj_database_url.UnknownSchemeError as error:
        raise ValueError("must begin with sqlite:/// or postgresql://") from error
    except dj_database_url.ParseError as error:
        raise ValueError(
            "must be an address like postgresql://user:password@host:5432/claudeops, "
            "with special characters written as %40"
        ) from error
