"""The costs of a period as a file for a spreadsheet: by day, watch, tier and model."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from sessions_app.models import PeriodCost
from sessions_app.pages.costs_page import first_day_of, kept_costs
from sessions_app.reading.plain_text import one_line

HEADINGS = (
    *("day", "watch", "drill", "tier", "model", "runs", "cost_usd"),
    *("estimated_runs", "estimated_usd", "runs_without_figure", "tokens"),
)
# A spreadsheet takes what begins so for a formula, and runs it.
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
LONGEST_NAME = 200


def costs_as_csv(period: str, *, drills: bool) -> str:
    """Months for all time, days otherwise; money with every digit."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADINGS)
    writer.writerows(_rows(period, drills=drills))
    return text.getvalue()


def harmless(value: str) -> str:
    """As text, also for a spreadsheet."""
    line = one_line(value, LONGEST_NAME)
    return f"'{line}" if value.startswith(FORMULA_SIGNS) or line.startswith(FORMULA_SIGNS) else line


def _rows(period: str, *, drills: bool) -> Iterator[tuple[str | int, ...]]:
    kept = kept_costs(period, drills=drills).filter(runs__gt=0)
    for row in kept.order_by("first_day", "watch_name", "drill", "tier", "model").iterator():
        yield _row(row, by_month=first_day_of(period) is None)


def _row(row: PeriodCost, *, by_month: bool) -> tuple[str | int, ...]:
    return (
        f"{row.first_day:%Y-%m}" if by_month else f"{row.first_day:%Y-%m-%d}",
        harmless(row.watch_name),
        harmless(row.drill),
        row.tier,
        harmless(row.model),
        row.runs,
        f"{row.cost_usd.normalize():f}",
        row.estimated,
        f"{row.estimated_usd.normalize():f}",
        row.unknown,
        row.tokens,
    )
