from __future__ import annotations

from decimal import Decimal

from escalation.web.chart import Chart, Column, chart_of, step_for
from sessions_app.text import money
from tests.tables import each_row


def drawn(*amounts: str) -> Chart:
    columns = [
        Column(label=f"day {number}", short=str(number), parts=(("tier-1", Decimal(amount)),))
        for number, amount in enumerate(amounts)
    ]
    return chart_of(columns, money)


@each_row(
    ("highest", "step"),
    [
        ("0", "1"),
        ("0.0003", "0.0001"),
        ("0.47", "0.1"),
        ("1", "0.2"),
        ("2.5", "0.5"),
        ("9", "2"),
        ("26", "10"),
        ("12345", "5000"),
    ],
)
def test_axis_steps_are_few_and_rounded(highest, step):
    assert step_for(Decimal(highest)) == Decimal(step)


def test_the_axis_ends_above_the_highest_column():
    labels = [tick.label for tick in drawn("0.47", "0.1").heights]

    assert labels == ["$0.00", "$0.10", "$0.20", "$0.30", "$0.40", "$0.50"]


def test_a_column_is_as_high_as_its_share_of_the_axis():
    (bar, _other) = drawn("2.5", "1").bars

    assert (bar.y, bar.height) == ("0.000%", "100.000%")


def test_parts_of_a_column_are_stacked():
    parts = (("tier-1", Decimal(1)), ("tier-2", Decimal(4)))
    low, high = chart_of([Column(label="d", short="d", parts=parts)], money).bars

    assert (low.name, low.y, low.height) == ("tier-1", "80.000%", "20.000%")
    assert (high.name, high.y, high.height) == ("tier-2", "0.000%", "80.000%")


def test_a_small_amount_has_a_visible_bar():
    assert drawn("100", "0.0001").bars[1].height == "1.000%"


def test_a_day_that_cost_nothing_has_no_bar():
    assert len(drawn("1", "0").bars) == 1


@each_row("count", [1, 2, 7, 30, 90])
def test_some_columns_and_the_last_one_have_labels(count):
    places = drawn(*["1"] * count).places

    assert 1 <= len(places) <= 7
    assert places[-1].label == str(count - 1)


def test_an_empty_chart_is_drawn():
    assert drawn().summary == "Nothing to show."
    assert drawn("0", "0").bars == ()
