"""What to tell a person when the database cannot be used."""

from __future__ import annotations

from django.db import connection
from django.db.utils import Error

from sessions_app.reading.plain_text import one_line

LONGEST = 300


def trouble_with_database(error: Error) -> str:
    """No table is no fault of the server: the installation was never set up, or is an older one."""
    said = one_line(str(error), LONGEST)
    if "no such table" in said or "does not exist" in said or "no such column" in said:
        return (
            f"The database is not set up for this version ({said}). "
            "`claudeops upgrade` does that, and so does `claudeops up`."
        )
    return f"The database does not answer ({said}). {_remedy()} Nothing was changed."


def _remedy() -> str:
    where = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"Look at {where['NAME']}: is its disk full, or is it another user's?"
    place = f"{where['HOST'] or 'the local socket'}:{where['PORT'] or 5432}"
    return f"Is PostgreSQL running at {place}, and is DATABASE_URL right?"
