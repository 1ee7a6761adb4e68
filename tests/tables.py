"""Tables of cases that one test goes through.

A parametrized test is collected, set up, reported and torn down for every case by every process of
pytest-xdist. For a pure function that takes longer than the call itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from typing import Any

from _pytest._io.saferepr import saferepr

LONGEST_NAME = 300
Ids = Callable[[Any], Any] | Iterable[str] | None


def each_row(
    names: str | Sequence[str], rows: Iterable[Any], *, ids: Ids = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Calls a test with every row, as `pytest.mark.parametrize` does, but within one test.

    Every row is tried, and the failure names each row that failed. Fixtures are shared by all rows,
    so a row must not change what the next one reads.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    table = list(rows)
    assert table, "a test without a row would pass"

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)

        @wraps(test)
        def try_each_row(**fixtures: Any) -> None:
            failures: dict[int, Exception] = {}
            for number, row in enumerate(table):
                values = values_of(row, len(parameters))
                try:
                    test(**fixtures, **dict(zip(parameters, values, strict=True)))
                except Exception as error:
                    failures[number] = error
            if failures:
                message = [f"{len(failures)} of {len(table)} rows failed:"]
                for number, error in failures.items():
                    name = name_of(table[number], number, parameters, ids)
                    message += [f"row {number + 1}: {name}", f"    {describe(error)}"]
                raise AssertionError("\n".join(message)) from next(iter(failures.values()))

        others = [one for name, one in signature.parameters.items() if name not in parameters]
        try_each_row.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return try_each_row

    return decorate


def values_of(row: Any, width: int) -> tuple[Any, ...]:
    """The values of a row, which may be a `pytest.param`, or the single value itself."""
    if hasattr(row, "values") and hasattr(row, "marks"):
        return tuple(row.values)
    return (row,) if width == 1 else tuple(row)


def name_of(row: Any, number: int, parameters: Sequence[str], ids: Ids) -> str:
    """Made only for a row that failed: a row may be too deep to be shown."""
    if callable(ids):
        return "-".join(str(ids(value)) for value in values_of(row, len(parameters)))
    if ids is not None:
        return list(ids)[number]
    return getattr(row, "id", None) or saferepr(row, maxsize=LONGEST_NAME)


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".replace("\n", "\n    ")
