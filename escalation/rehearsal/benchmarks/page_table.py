"""`bench pages` as people and machines read it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from escalation.rehearsal.benchmarks.pages import (
    PAGE_AIM_MS,
    QUERIES_AIM,
    RATIO_AIM,
    SEARCH_AIM_MS,
    Compared,
)

HEAD = f"{'median':>8} {'p95':>8} {'cpu':>8} {'queries':>8} {'ratio':>7}  page"


def as_table(found: Sequence[Compared], sessions: int, smaller: int) -> str:
    missed = sum(bool(one.misses) for one in found)
    judged = "processor" if found and found[0].large.by_cpu else "clock"
    return "\n".join(
        [
            f"{sessions:,} sessions, in milliseconds; ratio to the same at {smaller:,}; "
            f"judged by the {judged}",
            HEAD,
            *(_line(one) for one in found),
            f"{len(found)} pages; {missed or 'none'} missed an aim (at most {RATIO_AIM} ×, "
            f"{QUERIES_AIM} queries, {PAGE_AIM_MS} ms; a search {SEARCH_AIM_MS} ms)",
            "+ after a ratio: the smaller record had fewer rows to show.",
        ]
    )


def _line(one: Compared) -> str:
    large = one.large
    more = "+" if one.shows_more else " "
    missed = f"  MISSED: {', '.join(one.misses)}" if one.misses else ""
    return (
        f"{large.median_ms:8.1f} {large.p95_ms:8.1f} {large.cpu_ms:8.1f} {large.queries:8d} "
        f"{one.ratio:6.2f}{more}  {large.title}{missed}"
    )


def as_data(found: Sequence[Compared], sessions: int, smaller: int) -> dict[str, Any]:
    return {
        "sessions": sessions,
        "smaller": smaller,
        "pages": [
            {
                **asdict(one.large),
                "ratio": one.ratio,
                "shows_more": one.shows_more,
                "missed": list(one.misses),
            }
            for one in found
        ],
    }
