"""What this installation is made of."""

from __future__ import annotations

import platform
import sqlite3

import django
from django.conf import settings
from django.db import connection


def versions() -> dict[str, str]:
    """By name, as somebody who reports a bug is asked for them."""
    return {
        "Claude Ops": settings.CLAUDEOPS_VERSION,
        "Python": platform.python_version(),
        "Django": django.get_version(),
        "Database": database_version(),
        "Kernel": f"{platform.system()} {platform.release()}",
    }


def database_version() -> str:
    if connection.vendor != "postgresql":
        return f"SQLite {sqlite3.sqlite_version}"
    number = connection.pg_version  # type: ignore[attr-defined]
    return f"PostgreSQL {number // 10_000}.{number % 10_000}"
