"""Full-text search for sessions: the indexed texts, their database triggers, and the queries.

Triggers keep `SearchText` equal to the columns that it copies. They are removed before a migration
and created after it: SQLite drops the triggers of a table that a migration rebuilds, and PostgreSQL
does not change a column that a trigger names. Rows written without triggers are indexed when the
triggers are created. SQLite needs FTS5 with trigrams (3.34 or newer), PostgreSQL needs pg_trgm.

`RunText` holds what the engine reads from reports and events at the end of a session; triggers keep
only its index. `escalation/run/searchable.py` writes it.
"""

# ruff: noqa: S608  (statements are built from names in this file)

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import reduce
from operator import or_
from typing import Any

from django.db import connection, connections, models, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Exists, Model, OuterRef, Q

from sessions_app.models.costs import PeriodCost
from sessions_app.models.fields import OutsideTextField
from sessions_app.models.session import Session, SessionQuerySet
from sessions_app.models.watch import Watch


class SearchText(models.Model):
    """Searchable text of a session and its cycle, written by database triggers only.

    A trigram index finds any part of a word without reading every row.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="search_text"
    )
    text = models.TextField()

    def __str__(self) -> str:
        return f"Search text of session {self.session_id}"


class RunText(models.Model):
    """Searchable text of what a session said and what its tools printed, redacted.

    Everyone may read what it said; its output takes the right to see output.
    """

    session = models.OneToOneField(
        Session, on_delete=models.CASCADE, primary_key=True, related_name="run_text"
    )
    said = OutsideTextField(blank=True, help_text="Its report and its answer.")
    output = OutsideTextField(
        blank=True, help_text="Its commands and their output; removed with its events."
    )

    class Meta:
        indexes = [
            # Housekeeping: output that is removed with the events.
            models.Index(
                fields=["session"], name="run_text_output", condition=~models.Q(output="")
            ),
        ]

    def __str__(self) -> str:
        return f"Text of session {self.session_id}"


class SearchProgress(models.Model):
    """Progress of housekeeping with the texts of sessions of older versions; one row."""

    THE_ONE = 1

    below = models.BigIntegerField(help_text="Sessions with a lower id are not indexed yet.")

    def __str__(self) -> str:
        return f"Indexed down to session {self.below}"


SESSIONS, CYCLES = "sessions", "sessions_app_cycle"
TEXTS, WORDS = "sessions_app_searchtext", "session_words"
SESSION_FIELDS = ("session_id", "workdir", "error", "escalation_reason", "request")
CYCLE_FIELDS = ("outcome_reason", "watch_name", "drill", "prompt")
LONGEST = 10_000
"""Characters of each field."""

RUN_TEXTS, RUN_WORDS = "sessions_app_runtext", "run_words"
SAID, OUTPUT = "said", "output"
RUN_INDEXES = {
    "sqlite": (RUN_WORDS,),
    "postgresql": (f"{RUN_WORDS}_{SAID}", f"{RUN_WORDS}_{OUTPUT}"),
}

PIECES = [
    *(f"substr(s.{field}, 1, {LONGEST})" for field in SESSION_FIELDS),
    *(f"substr(c.{field}, 1, {LONGEST})" for field in CYCLE_FIELDS),
]
FROM = f"FROM {SESSIONS} s JOIN {CYCLES} c ON c.id = s.cycle_id"
EXPRESSION = {
    "sqlite": " || char(10) || ".join(PIECES),
    "postgresql": f"concat_ws(chr(10), {', '.join(PIECES)})",
}
_OF_RECORD = ("search_new_session", "search_session", "search_cycle")
TRIGGERS = {
    "sqlite": (*_OF_RECORD, "search_text_insert", "search_text_update", "search_text_delete"),
    "postgresql": _OF_RECORD,
}
CHANGED_SESSION, CHANGED_CYCLE = "s.id = NEW.id", "s.cycle_id = NEW.id"


def text_of(vendor: str) -> str:
    """Return a query for the id and the text of sessions."""
    return f"SELECT s.id, {EXPRESSION[vendor]} {FROM}"


def drop_triggers(vendor: str) -> list[str]:
    if vendor == "sqlite":
        return [f"DROP TRIGGER IF EXISTS {name}" for name in TRIGGERS[vendor]]
    return [f"DROP FUNCTION IF EXISTS {name}() CASCADE" for name in TRIGGERS[vendor]]


def forget_all(apps: Any, schema_editor: Any) -> None:
    """Drop triggers and index when the migration is reversed."""
    kind = "TABLE" if schema_editor.connection.vendor == "sqlite" else "INDEX"
    for statement in [
        *drop_triggers(schema_editor.connection.vendor),
        f"DROP {kind} IF EXISTS {WORDS}",
    ]:
        schema_editor.execute(statement)


def create_triggers(vendor: str) -> list[str]:
    return _sqlite_triggers() if vendor == "sqlite" else _postgresql_triggers()


def _written(vendor: str) -> dict[str, tuple[str, str]]:
    """Return the event and the statement of each trigger, by its name."""
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
    """FTS5 stores no text of its own here, so rows are removed by their old text."""
    removed = (
        f"INSERT INTO {WORDS} ({WORDS}, rowid, text) VALUES ('delete', OLD.session_id, OLD.text)"
    )
    added = f"INSERT INTO {WORDS} (rowid, text) VALUES (NEW.session_id, NEW.text)"
    acts = {
        **_written("sqlite"),
        "search_text_insert": (f"AFTER INSERT ON {TEXTS}", added),
        "search_text_delete": (f"AFTER DELETE ON {TEXTS}", removed),
        "search_text_update": (
            f"AFTER UPDATE ON {TEXTS} WHEN OLD.text <> NEW.text",
            f"{removed}; {added}",
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


def create_index(vendor: str) -> list[str]:
    if vendor == "postgresql":
        return [
            "CREATE EXTENSION IF NOT EXISTS pg_trgm",
            f"CREATE INDEX {WORDS} ON {TEXTS} USING gin (upper(text) gin_trgm_ops)",
        ]
    return [
        f"CREATE VIRTUAL TABLE {WORDS} USING fts5(text, content='{TEXTS}', "
        "content_rowid='session_id', tokenize='trigram')"
    ]


def has_index(connection: BaseDatabaseWrapper, name: str = WORDS) -> bool:
    where = {
        "sqlite": "FROM sqlite_master WHERE name = %s",
        "postgresql": "FROM pg_indexes WHERE schemaname = current_schema() AND indexname = %s",
    }
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT 1 {where[connection.vendor]}", [name])
        return cursor.fetchone() is not None


def create_run_index(vendor: str) -> list[str]:
    """Return statements that index `RunText`, and on SQLite the triggers that keep the index.

    The triggers name no other table, so no migration needs them removed.
    """
    if vendor == "postgresql":
        return [
            "CREATE EXTENSION IF NOT EXISTS pg_trgm",
            *(
                f"CREATE INDEX IF NOT EXISTS {RUN_WORDS}_{column} ON {RUN_TEXTS} "
                f"USING gin (upper({column}) gin_trgm_ops)"
                for column in (SAID, OUTPUT)
            ),
        ]
    columns = f"{SAID}, {OUTPUT}"
    removed = (
        f"INSERT INTO {RUN_WORDS} ({RUN_WORDS}, rowid, {columns}) "
        f"VALUES ('delete', OLD.session_id, OLD.{SAID}, OLD.{OUTPUT})"
    )
    added = (
        f"INSERT INTO {RUN_WORDS} (rowid, {columns}) "
        f"VALUES (NEW.session_id, NEW.{SAID}, NEW.{OUTPUT})"
    )
    acts = {
        "insert": ("", added),
        "delete": ("", removed),
        "update": (
            f" WHEN OLD.{SAID} <> NEW.{SAID} OR OLD.{OUTPUT} <> NEW.{OUTPUT}",
            f"{removed}; {added}",
        ),
    }
    return [
        f"DROP TABLE IF EXISTS {RUN_WORDS}",
        f"CREATE VIRTUAL TABLE {RUN_WORDS} USING fts5({columns}, content='{RUN_TEXTS}', "
        "content_rowid='session_id', tokenize='trigram')",
        *(f"DROP TRIGGER IF EXISTS run_text_{what}" for what in acts),
        *(
            f"CREATE TRIGGER run_text_{what} AFTER {what.upper()} ON {RUN_TEXTS}{when} "
            f"BEGIN {act}; END"
            for what, (when, act) in acts.items()
        ),
        f"INSERT INTO {RUN_WORDS} ({RUN_WORDS}) VALUES ('rebuild')",
    ]


def forget_run_index(apps: Any, schema_editor: Any) -> None:
    """Drop the index of `RunText` when its migration is reversed."""
    vendor = schema_editor.connection.vendor
    kind = "TABLE" if vendor == "sqlite" else "INDEX"
    for name in RUN_INDEXES[vendor]:
        schema_editor.execute(f"DROP {kind} IF EXISTS {name}")


def has_triggers(connection: BaseDatabaseWrapper) -> bool:
    names = TRIGGERS[connection.vendor]
    where = {
        "sqlite": "sqlite_master WHERE type = 'trigger' AND name",
        "postgresql": "pg_trigger WHERE pg_table_is_visible(tgrelid) AND tgname",
    }
    marks = ", ".join(["%s"] * len(names))
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {where[connection.vendor]} IN ({marks})", names)
        [count] = cursor.fetchone()
    return bool(count == len(names))


def before_migrate(using: str, plan: list[Any] | None = None, **_signal: Any) -> None:
    """Drop the triggers, unless `migrate` has nothing to do."""
    if plan != []:
        _execute(using, drop_triggers(connections[using].vendor))


def after_migrate(using: str, **_signal: Any) -> None:
    """Create the triggers, and index the rows that were written without them."""
    connection = connections[using]
    tables = connection.introspection.table_names()
    if TEXTS not in tables:
        return
    made = all(has_index(connection, name) for name in RUN_INDEXES[connection.vendor])
    if RUN_TEXTS in tables and not made:
        _execute(using, create_run_index(connection.vendor))
    if not has_index(connection):
        _execute(using, create_index(connection.vendor))
        rebuild_search_text(using)
        return
    missed = [] if has_triggers(connection) else catch_up(connection.vendor)
    # PostgreSQL blocks writers from the creation of the triggers to the commit.
    with transaction.atomic(using=using):
        vendor = connection.vendor
        _execute(using, [*drop_triggers(vendor), *create_triggers(vendor), *missed])


def catch_up(vendor: str) -> list[str]:
    """Return statements that index sessions that were changed without triggers."""
    current = f"SELECT s.id AS id, {EXPRESSION[vendor]} AS text {FROM}"
    known = f"SELECT 1 FROM {TEXTS} t WHERE t.session_id = s.id"
    return [
        f"INSERT INTO {TEXTS} (session_id, text) {text_of(vendor)} WHERE NOT EXISTS ({known})",
        f"UPDATE {TEXTS} SET text = now.text FROM ({current}) AS now "
        f"WHERE now.id = {TEXTS}.session_id AND now.text <> {TEXTS}.text",
        *_rebuild_index(vendor),
    ]


def _rebuild_index(vendor: str) -> list[str]:
    """Return the statement that rebuilds FTS5's index; PostgreSQL updates its own."""
    return [f"INSERT INTO {WORDS} ({WORDS}) VALUES ('rebuild')"] if vendor == "sqlite" else []


def rebuild_search_text(using: str = "default") -> None:
    """Write the search text of all sessions again."""
    vendor = connections[using].vendor
    fill = [
        *drop_triggers(vendor),
        f"DELETE FROM {TEXTS}",
        f"INSERT INTO {TEXTS} (session_id, text) {text_of(vendor)}",
    ]
    with transaction.atomic(using=using):
        _execute(using, [*fill, *_rebuild_index(vendor), *create_triggers(vendor)])


def _execute(using: str, statements: list[str]) -> None:
    with connections[using].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


LARGEST_NUMBER = 2**63 - 1


def first_number_from(model: type[Model], field: str, moment: datetime) -> int:
    """Return the first id at or after a time, or `LARGEST_NUMBER`. Ids are in order of time."""
    later = model._default_manager.filter(**{f"{field}__gte": moment}).order_by(field, "pk")
    found = later.values_list("pk", flat=True).first()
    return LARGEST_NUMBER if found is None else int(found)


SHORTEST_WORDS = 3
"""Length of a trigram."""
LOOKED_AT = 500
"""Number of matches that are filtered at once."""


def is_too_short(words: str) -> bool:
    return len(words.strip()) < SHORTEST_WORDS and number_in(words) is None


def number_in(words: str) -> int | None:
    """Return the session id in a search like `17` or `#17`, or None."""
    digits = words.strip().removeprefix("#")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 19
    return int(digits) if is_number else None


Columns = tuple[str, ...]
WHAT_ALL_SEE: Columns = (SAID,)
WITH_OUTPUT: Columns = (SAID, OUTPUT)


def matches(
    words: str, *, below: int = LARGEST_NUMBER, columns: Columns = WHAT_ALL_SEE
) -> Iterator[list[int]]:
    """Yield ids of matching sessions in batches, newest first.

    `columns` are those of `RunText` that are searched too.
    """
    renamed = _renamed_watches(words)
    while below:
        found = set(_by_words(words, below)) | _by_watch(renamed, below)
        found |= set(_by_run_text(words, below, columns))
        number = number_in(words)
        if number is not None and number < below:
            found.add(number)
        newest = sorted(found, reverse=True)[:LOOKED_AT]
        if newest:
            yield newest
        below = newest[-1] if len(newest) == LOOKED_AT else 0


def newest_matches(
    sessions: SessionQuerySet,
    words: str,
    *,
    below: int,
    wanted: int,
    looked_at: int,
    columns: Columns = WHAT_ALL_SEE,
) -> tuple[list[int], int]:
    """Return ids of the newest matches among these sessions, and the id where the search stopped.

    The second value is 0 if there are no more matches.
    """
    found: list[int] = []
    for seen, numbers in enumerate(matches(words, below=below, columns=columns), start=1):
        kept = sessions.filter(pk__in=numbers).order_by("-pk").values_list("pk", flat=True)
        found += kept[: wanted - len(found)]
        if len(found) == wanted:
            return found, found[-1]
        if seen * LOOKED_AT >= looked_at:
            return found, numbers[-1]
    return found, 0


def _by_words(words: str, below: int) -> list[int]:
    words = words.strip()
    if len(words) < SHORTEST_WORDS:
        return []
    if connection.vendor != "sqlite":
        texts = SearchText.objects.filter(text__icontains=words, pk__lt=below).order_by("-pk")
        return list(texts.values_list("pk", flat=True)[:LOOKED_AT])
    return _in_fts(WORDS, _quoted(words), below)


def _by_run_text(words: str, below: int, columns: Columns) -> list[int]:
    words = words.strip()
    if len(words) < SHORTEST_WORDS or not columns:
        return []
    if connection.vendor != "sqlite":
        wanted = [Q(**{f"{column}__icontains": words}) for column in columns]
        texts = RunText.objects.filter(reduce(or_, wanted), pk__lt=below).order_by("-pk")
        return list(texts.values_list("pk", flat=True)[:LOOKED_AT])
    return _in_fts(RUN_WORDS, f"{{{' '.join(columns)}}} : {_quoted(words)}", below)


def _quoted(words: str) -> str:
    doubled = words.replace('"', '""')
    return f'"{doubled}"'


def _in_fts(table: str, query: str, below: int) -> list[int]:
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT rowid FROM {table} WHERE {table} MATCH %s AND rowid < %s "
            "ORDER BY rowid DESC LIMIT %s",
            [query, below, LOOKED_AT],
        )
        return [number for (number,) in cursor.fetchall()]


def _renamed_watches(words: str) -> list[int]:
    """Return matching watches that were renamed: search texts contain their old names."""
    if len(words.strip()) < SHORTEST_WORDS:
        return []
    otherwise = PeriodCost.objects.filter(watch_number=OuterRef("pk")).exclude(
        watch_name=OuterRef("name")
    )
    named = Watch.objects.filter(Exists(otherwise), name__icontains=words.strip())
    return list(named.values_list("pk", flat=True))


def _by_watch(watches: list[int], below: int) -> set[int]:
    return {
        number
        for watch in watches
        for number in Session.objects.filter(watch=watch, pk__lt=below)
        .order_by("-pk")
        .values_list("pk", flat=True)[:LOOKED_AT]
    }
