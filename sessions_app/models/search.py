"""Sessions by their words, newest first: read along an index, whatever the size of the record."""

from __future__ import annotations

from collections.abc import Iterator

from django.db import connection
from django.db.models import Exists, OuterRef

from sessions_app.models.numbers import LARGEST_NUMBER
from sessions_app.models.period_cost import PeriodCost
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.models.search_text import SearchText
from sessions_app.models.search_triggers import WORDS
from sessions_app.models.session import Session
from sessions_app.models.watch import Watch

SHORTEST_WORDS = 3
"""The index knows groups of three letters."""
LOOKED_AT = 500
"""Matches that are held against the other filters at once."""


def is_too_short(words: str) -> bool:
    return len(words.strip()) < SHORTEST_WORDS and number_in(words) is None


def number_in(words: str) -> int | None:
    """A session may be asked for by its number."""
    digits = words.strip().removeprefix("#")
    is_number = digits.isascii() and digits.isdecimal() and len(digits) < 19
    return int(digits) if is_number else None


def matches(words: str, *, below: int = LARGEST_NUMBER) -> Iterator[list[int]]:
    """The numbers of all sessions that hold the words, or have them for a number: some at a time,
    from the newest to the oldest."""
    renamed = _renamed_watches(words)
    while below:
        found = set(_by_words(words, below)) | _by_watch(renamed, below)
        number = number_in(words)
        if number is not None and number < below:
            found.add(number)
        newest = sorted(found, reverse=True)[:LOOKED_AT]
        if newest:
            yield newest
        below = newest[-1] if len(newest) == LOOKED_AT else 0


def newest_matches(
    sessions: SessionQuerySet, words: str, *, below: int, wanted: int, looked_at: int
) -> tuple[list[int], int]:
    """Numbers of the newest of these sessions that hold the words, and down to which number that
    was looked at: 0 when nothing is left."""
    found: list[int] = []
    for seen, numbers in enumerate(matches(words, below=below), start=1):
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
    quoted = words.replace('"', '""')
    with connection.cursor() as cursor:
        cursor.execute(
            f"SELECT rowid FROM {WORDS} WHERE {WORDS} MATCH %s AND rowid < %s "  # noqa: S608
            "ORDER BY rowid DESC LIMIT %s",
            [f'"{quoted}"', below, LOOKED_AT],
        )
        return [number for (number,) in cursor.fetchall()]


def _renamed_watches(words: str) -> list[int]:
    """The words of a session hold the name that its watch had then, not the one it has now."""
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
