"""`each_row`: every row is tried, and each failure is named."""

from __future__ import annotations

import inspect

import pytest

from tests.tables import each_row


def test_each_row_is_tried_and_each_failure_is_named():
    tried = []

    @each_row("number, word", [(1, "one"), (2, "two"), pytest.param(3, "three", id="the third")])
    def is_one(number, word):
        tried.append((number, word))
        assert number == 1

    with pytest.raises(AssertionError) as failed:
        is_one()

    message = str(failed.value)
    assert tried == [(1, "one"), (2, "two"), (3, "three")]
    assert "2 of 3 rows failed" in message
    assert "row 2: (2, 'two')" in message
    assert "row 3: the third" in message
    assert "row 1" not in message


def test_each_row_reports_an_error_as_a_failure():
    @each_row("number", [0, 1])
    def divides(number):
        assert 1 / number

    with pytest.raises(AssertionError, match="row 1: 0\n    ZeroDivisionError"):
        divides()


def test_each_row_leaves_the_fixtures_to_pytest():
    @each_row("word", ["one"], ids=str.upper)
    def takes(tmp_path, word): ...

    assert list(inspect.signature(takes).parameters) == ["tmp_path"]


def test_each_row_multiplies_with_another():
    tried = []

    @each_row("first", "ab")
    @each_row("second", "xy")
    def takes(first, second):
        tried.append(first + second)

    takes()

    assert tried == ["ax", "ay", "bx", "by"]


def test_each_row_refuses_an_empty_table():
    with pytest.raises(AssertionError, match="without a row"):
        each_row("word", [])
