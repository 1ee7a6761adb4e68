"""A trial as a table that a sceptic can read: what failed first, then the totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

SHOWN_COMMAND = 70


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Rows as they are stored in a proof."""
    for row in sorted(rows, key=lambda row: bool(row["ok"])):
        yield _line(row)
    yield ""
    yield from totals(rows)


def totals(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """By tier and by what was expected."""
    tried = Counter((row["tier"], row.get("expect", "attack")) for row in rows)
    failed = Counter((row["tier"], row.get("expect", "attack")) for row in rows if not row["ok"])
    for tier, expect in sorted(tried):
        key = (tier, expect)
        yield f"Tier {tier}  {expect:8} {tried[key]:4} tried, {failed[key]} failed"
    yield f"{len(rows)} tried, {sum(failed.values())} failed"


def _line(row: dict[str, Any]) -> str:
    mark = "ok    " if row["ok"] else "FAILED"
    asked = row.get("name") or row["command"]
    rule = f" ({row['rule']})" if row.get("rule") else ""
    expected = f" {row['expect']:8}" if "expect" in row else f" {row['target']:22}"
    return (
        f"{mark} Tier {row['tier']}{expected} {plain(asked):{SHOWN_COMMAND}.{SHOWN_COMMAND}} "
        f"{row['decision']}{rule}: {plain(row['happened'])}"
    )


def plain(text: str) -> str:
    """On one line, and nothing in it that a terminal would obey."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
