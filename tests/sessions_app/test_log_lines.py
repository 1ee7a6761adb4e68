"""A log entry cannot imitate a second one, and contains no control sequence."""

from __future__ import annotations

import logging
import logging.config
from typing import Any

import pytest

from claudeops.settings import LOGGING

FORGED = "all is well\n2026-01-01 00:00:00 ERROR escalation: forged \x1b]0;owned\x07\x1b[2J\u202e"


@pytest.fixture
def logged(capsys):
    """What our own configuration writes for a record."""
    formatters: Any = LOGGING["formatters"]
    formatter = logging.config.DictConfigurator({}).configure_formatter(dict(formatters["plain"]))

    def write(*arguments, **options) -> list[str]:
        record = logging.getLogger("escalation").makeRecord(
            "escalation", logging.WARNING, __file__, 1, *arguments, **options
        )
        return formatter.format(record).split("\n")

    return write


def test_a_message_stays_on_its_line(logged):
    (line,) = logged("A tool said: %s", (FORGED,), None)

    assert "WARNING escalation: A tool said: all is well⏎ 2026" in line
    assert line.isprintable()


def test_lines_of_an_exception_are_indented(logged):
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        first, *rest = logged("It failed", (), (type(error), error, error.__traceback__))

    assert first.endswith("It failed")
    assert any("ValueError: all is well" in line for line in rest)
    assert all(line.startswith("  ") and line.isprintable() for line in rest)


def test_no_secret_is_in_a_line(logged):
    (line,) = logged("It ran %s", ("PGPASSWORD=hunter22 psql",), None)

    assert line.endswith("It ran PGPASSWORD=[redacted: password] psql")


def test_no_secret_is_in_an_exception(logged):
    try:
        raise ValueError("postgres://app:hunter22@db/shop")
    except ValueError as error:
        lines = logged("It failed", (), (type(error), error, error.__traceback__))

    assert any("app:[redacted: url password]@db" in line for line in lines)
    assert "hunter22" not in "".join(lines)
