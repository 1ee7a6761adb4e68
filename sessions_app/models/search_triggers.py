"""Keeps `SearchText` in step with what it repeats, and makes the index behind it.

They are made after every `migrate` and taken away before: SQLite forgets the triggers of a table
that a migration makes anew, and PostgreSQL refuses to change a column that a trigger names. SQLite
needs FTS5 with trigrams (3.34 or newer), PostgreSQL its own extension pg_trgm.
"""

# ruff: noqa: S608  (statements are put together from the names in this file alone)

from __future__ import annotations

from typing import Any

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper

SESSIONS, CYCLES = "sessions", "sessions_app_cycle"
TEXTS, WORDS = "sessions_app_searchtext", "session_words"
SESSION_FIELDS = ("session_id", "workdir", "error", "escalation_reason", "request")
CYCLE_FIELDS = ("outcome_reason", "watch_name", "drill", "prompt")
LONGEST = 10_000
"""Of each field."""

PIECES = [
    *(f"substr(s.{field}, 1, {LONGEST})" for field in SESSION_FIELDS),
    *(f"substr(c.{field}, 1, {LONGEST})" for field in CYCLE_FIELDS),
]
FROM = f"FROM {SESSIONS} s JOIN {CYCLES} c ON c.id = s.cycle_id"
EXPRESSION = {
    "sqlite": " || char(10) || ".join(PIECES),
    "postgresql": f"concat_ws(chr(10), {', '.join(PIECES)})",
}
CHANGED_SESSION, CHANGED_CYCLE = "s.id = NEW.id", "s.cycle_id = NEW.id"


def text_of(vendor: str) -> str:
    """A query for the number and the words of sessions."""
    return f"SELECT s.id, {EXPRESSION[vendor]} {FROM}"


def forget(vendor: str) -> list[str]:
    if vendor == "sqlite":
        names = ("new_session", "session", "cycle", "text_insert", "text_update", "text_delete")
        return [f"DROP TRIGGER IF EXISTS search_{name}" for name in names]
    return [
        "DROP FUNCTION IF EXISTS search_new_session() CASCADE",
        "DROP FUNCTION IF EXISTS search_session() CASCADE",
        "DROP FUNCTION IF EXISTS search_cycle() CASCADE",
    ]


def forget_all(apps: Any, schema_editor: Any) -> None:
    """For the way back of the migration, after which there is nothing to be in step with."""
    kind = "TABLE" if schema_editor.connection.vendor == "sqlite" else "INDEX"
    for statement in [*forget(schema_editor.connection.vendor), f"DROP {kind} IF EXISTS {WORDS}"]:
        schema_editor.execute(statement)


def follow(vendor: str) -> list[str]:
    return _sqlite_triggers() if vendor == "sqlite" else _postgresql_triggers()


def _written(vendor: str) -> dict[str, tuple[str, str]]:
    """By name of the trigger: after what, and what is written then."""
    text = EXPRESSION[vendor]
    insert = f"INSERT INTO {TEXTS} (session_id, text) {text_of(vendor)} WHERE {CHANGED_SESSION}"
    update = f"UPDATE {TEXTS} SET text = (SELECT {text} {FROM} WHERE s.id = {TEXTS}.session_id)"
    return {
        "search_new_session": (f"AFTER INSERT ON {SESSIONS}", insert),
        "search_session": (
            f"AFTER UPDATE OF {', '.join(SESSION_FIELDS)} ON {SESSIONS}",
            f"{update} WHERE session_id = NEW.id",
        ),
        "search_cycle": (
            f"AFTER UPDATE OF {', '.join(CYCLE_FIELDS)} ON {CYCLES}",
            f"{update} WHERE session_id IN (SELECT s.id FROM {SESSIONS} s WHERE {CHANGED_CYCLE})",
        ),
    }


def _sqlite_triggers() -> list[str]:
    """The index keeps no text of its own: what it holds of a row is taken out by the old words."""
    forgotten = (
        f"INSERT INTO {WORDS} ({WORDS}, rowid, text) VALUES ('delete', OLD.session_id, OLD.text)"
    )
    learned = f"INSERT INTO {WORDS} (rowid, text) VALUES (NEW.session_id, NEW.text)"
    acts = {
        **_written("sqlite"),
        "search_text_insert": (f"AFTER INSERT ON {TEXTS}", learned),
        "search_text_delete": (f"AFTER DELETE ON {TEXTS}", forgotten),
        "search_text_update": (
            f"AFTER UPDATE ON {TEXTS} WHEN OLD.text <> NEW.text",
            f"{forgotten}; {learned}",
        ),
    }
    return [f"CREATE TRIGGER {name} {when} BEGIN {act}; END" for name, (when, act) in acts.items()]


def _postgresql_triggers() -> list[str]:
    statements = []
    for name, (when, act) in _written("postgresql").items():
        statements += [
            f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN {act}; RETURN NULL; END $$",
            f"CREATE TRIGGER {name} {when} FOR EACH ROW EXECUTE FUNCTION {name}()",
        ]
    return statements


def index(vendor: str) -> list[str]:
    if vendor == "postgresql":
        return [
            "CREATE EXTENSION IF NOT EXISTS pg_trgm",
            f"CREATE INDEX {WORDS} ON {TEXTS} USING gin (upper(text) gin_trgm_ops)",
        ]
    return [
        f"CREATE VIRTUAL TABLE {WORDS} USING fts5(text, content='{TEXTS}', "
        "content_rowid='session_id', tokenize='trigram')"
    ]


def has_index(connection: BaseDatabaseWrapper) -> bool:
    where = {
        "sqlite": "FROM sqlite_master WHERE name = %s",
        "postgresql": "FROM pg_indexes WHERE schemaname = current_schema() AND indexname = %s",
    }
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 {where[connection.vendor]}", [WORDS])
        return cursor.fetchone() is not None


def before_migrate(using: str, **_signal: Any) -> None:
    _execute(using, forget(connections[using].vendor))


def after_migrate(using: str, **_signal: Any) -> None:
    connection = connections[using]
    if TEXTS not in connection.introspection.table_names():
        return
    if has_index(connection):
        _execute(using, [*forget(connection.vendor), *follow(connection.vendor)])
        return
    _execute(using, index(connection.vendor))
    write_anew(using)


def write_anew(using: str = "default") -> None:
    """All words of all sessions, from nothing."""
    vendor = connections[using].vendor
    rebuilt = [f"INSERT INTO {WORDS} ({WORDS}) VALUES ('rebuild')"] if vendor == "sqlite" else []
    fill = [
        *forget(vendor),
        f"DELETE FROM {TEXTS}",
        f"INSERT INTO {TEXTS} (session_id, text) {text_of(vendor)}",
    ]
    with transaction.atomic(using=using):
        _execute(using, [*fill, *rebuilt, *follow(vendor)])


def _execute(using: str, statements: list[str]) -> None:
    with connections[using].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
