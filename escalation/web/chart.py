"""Column chart as positions in percent: a template draws it as SVG at any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import ceil

NOTHING = Decimal(0)
MOST_STEPS = 5
MOST_LABELS = 7
LEAST_HEIGHT = Decimal(1)
"""Least height in percent, so that a small value stays visible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Column:
    """One column: its parts are stacked, the first at the bottom."""

    label: str
    short: str
    parts: tuple[tuple[str, Decimal], ...]
    """Pairs of a colour name and a value."""

    @property
    def total(self) -> Decimal:
        return sum((amount for _name, amount in self.parts), NOTHING)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    name: str
    x: str
    y: str
    width: str
    height: str
    title: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tick:
    at: str
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Chart:
    bars: tuple[Bar, ...]
    heights: tuple[Tick, ...]
    """Horizontal lines, lowest first."""
    places: tuple[Tick, ...]
    """Labels under some of the columns."""
    summary: str
    """Text alternative of the chart."""


def chart_of(
    columns: Sequence[Column], say: Callable[[Decimal], str], *, least_step: Decimal = NOTHING
) -> Chart:
    highest = max((column.total for column in columns), default=NOTHING)
    step = max(least_step, step_for(highest))
    count = max(1, ceil(highest / step))
    top = step * count
    wide = Decimal(100) / max(1, len(columns))
    return Chart(
        bars=tuple(
            bar
            for number, column in enumerate(columns)
            for bar in _bars(column, wide * number, wide, top, say)
        ),
        heights=tuple(
            Tick(at=_place(100 - 100 * step * number / top), label=say(step * number))
            for number in range(count + 1)
        ),
        places=_places(columns, wide),
        summary=_summary(columns, say),
    )


def step_for(highest: Decimal) -> Decimal:
    """Returns 1, 2 or 5 times a power of ten, so that few lines reach above the top column."""
    if highest <= 0:
        return Decimal(1)
    power = Decimal(10) ** ((highest / MOST_STEPS).adjusted())
    return next(
        power * digit for digit in (1, 2, 5, 10) if power * digit * MOST_STEPS >= highest
    ).normalize()


def _bars(
    column: Column, left: Decimal, wide: Decimal, top: Decimal, say: Callable[[Decimal], str]
) -> list[Bar]:
    bars, reached = [], Decimal(100)
    for name, amount in column.parts:
        if amount <= 0:
            continue
        height = max(100 * amount / top, LEAST_HEIGHT)
        reached = max(NOTHING, reached - height)
        bars.append(
            Bar(
                name=name,
                x=_place(left + wide * Decimal("0.12")),
                width=_place(wide * Decimal("0.76")),
                y=_place(reached),
                height=_place(height),
                title=f"{column.label}: {say(column.total)}",
            )
        )
    return bars


def _places(columns: Sequence[Column], wide: Decimal) -> tuple[Tick, ...]:
    """Labels the last column and as many before it as fit."""
    every = max(1, -(-len(columns) // MOST_LABELS))
    last = len(columns) - 1
    return tuple(
        Tick(at=_place(wide * number + wide / 2), label=columns[number].short)
        for number in range(last % every if last >= 0 else 0, len(columns), every)
    )


def _summary(columns: Sequence[Column], say: Callable[[Decimal], str]) -> str:
    if not columns:
        return "Nothing to show."
    dearest = max(columns, key=lambda column: column.total)
    return (
        f"{len(columns)} columns from {columns[0].label} to {columns[-1].label}; the highest is "
        f"{dearest.label} with {say(dearest.total)}."
    )


def _place(percent: Decimal) -> str:
    return f"{percent:.3f}%"
