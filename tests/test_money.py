"""Dollars are formatted by one function: no other module puts the sign before a figure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from sessions_app.text import money, rounded
from tests.tables import each_row

ROOT = Path(__file__).resolve().parent.parent
THE_ONE = ROOT / "sessions_app" / "text.py"
SOURCES = [
    path
    for package in ("claudeops", "escalation", "sessions_app")
    for path in sorted((ROOT / package).rglob("*.py"))
    if path != THE_ONE and "migrations" not in path.parts
]


def money_in(path: Path) -> Iterator[str]:
    """F-strings with a dollar sign before a figure, or the word for dollars behind one."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.JoinedStr):
            continue
        for before, after in zip(node.values, node.values[1:], strict=False):
            signed = isinstance(after, ast.FormattedValue) and ends_in_dollar(before)
            named = isinstance(before, ast.FormattedValue) and begins_with_dollars(after)
            if signed or named:
                yield f"{path}:{node.lineno}"


def ends_in_dollar(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(re.search(r"(^|\s|[(<≈])\$$", str(node.value)))


def begins_with_dollars(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and bool(re.match(r" (dollars?|USD)\b", str(node.value)))


def test_no_other_place_formats_dollars():
    assert [found for path in SOURCES for found in money_in(path)] == []


def test_no_template_writes_a_dollar_sign_or_rounds_a_cost():
    wrong = re.compile(r"\$\s*\{\{|(cost|usd|price|budget)\w*\s*\|\s*(floatformat|stringformat)")

    assert [
        path.name
        for path in sorted((ROOT / "templates").rglob("*.html"))
        if wrong.search(path.read_text())
    ] == []


def test_the_check_finds_a_second_format(tmp_path):
    wrong = tmp_path / "wrong.py"
    wrong.write_text('f"it cost ${cost:.2f}"\nf"{cost:.2f} dollars"\nf"{command} $HOME"\n')

    assert [found.rpartition(":")[2] for found in money_in(wrong)] == ["1", "2"]


@each_row(
    ("amount", "text"),
    [
        ("0", "$0.00"),
        ("0.1966", "$0.20"),
        ("0.01", "$0.01"),
        ("0.00996", "$0.01"),
        ("0.0025", "$0.0025"),
        ("0.00004", "<$0.0001"),
        ("1", "$1.00"),
        ("1234.567", "$1,234.57"),
    ],
)
def test_amounts_are_rounded_by_their_size(amount, text):
    assert money(Decimal(amount)) == text


@pytest.mark.parametrize("odd", [None, float("nan"), float("inf")])
def test_an_invalid_amount_is_none(odd):
    assert rounded(odd) is None
