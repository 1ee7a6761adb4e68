"""Formats of the pages: money, tokens, times, and whether they are estimated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from escalation.templatetags import ops_format
from escalation.web.resume_comparison import NOT_MEASURED, ContinuedSession, RepeatedWork
from sessions_app.history.chain import Chain, session_cost
from sessions_app.models import Cycle, Session
from sessions_app.text import ago, duration, exact_money, money, tokens
from tests.tables import each_row

NOON = datetime(2026, 1, 5, 12, 0, tzinfo=UTC)


@each_row(
    ("amount", "text"),
    [
        (None, "unknown"),
        (Decimal("0"), "$0.00"),
        (Decimal("0.03"), "$0.03"),
        (Decimal("0.0328"), "$0.03"),
        (Decimal("0.4700000000"), "$0.47"),
        (Decimal("0.00001"), "<$0.0001"),
        (Decimal("0.99999"), "$1.00"),
        (Decimal("2.5"), "$2.50"),
        (Decimal("1234.567"), "$1,234.57"),
        (0.018000000000000002, "$0.02"),
        (float("nan"), "unknown"),
    ],
)
def test_money_is_rounded_by_its_size(amount, text):
    assert money(amount) == text


@each_row(
    ("amount", "text"),
    [
        (None, "unknown"),
        (Decimal("0"), "$0.00"),
        (Decimal("0.5000000000"), "$0.50"),
        (Decimal("0.0312345678"), "$0.0312345678"),
        (Decimal("1234.5"), "$1,234.50"),
    ],
)
def test_exact_money_keeps_every_digit(amount, text):
    assert exact_money(amount) == text


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"cost_usd": Decimal("0.03")}, "$0.03"),
        ({}, "unknown"),
        ({"estimated_cost_usd": Decimal("0.012")}, "≈ $0.01 (estimate)"),
        ({"status": "running"}, "pending"),
    ],
)
def test_req5_a_cost_shows_whether_it_is_estimated(facts, text):
    assert session_cost(Session(**{"status": "failed", **facts})) == text


@pytest.mark.parametrize(
    ("runs", "text"),
    [
        (
            [{"cost_usd": Decimal("0.03")}, {"estimated_cost_usd": Decimal("0.01")}],
            "$0.03 + ≈ $0.01 (estimate)",
        ),
        (
            [{"cost_usd": Decimal("0.03")}, {"estimated_cost_usd": Decimal("0.01")}, {}],
            "$0.03 + ≈ $0.01 (estimate) + unknown",
        ),
        ([{"estimated_cost_usd": Decimal("0.01")}], "≈ $0.01 (estimate)"),
        ([{}], "unknown"),
    ],
)
def test_req5_an_estimate_is_never_added_unmarked(runs, text):
    chain = Chain(sessions=tuple(Session(status="failed", **facts) for facts in runs))

    assert chain.cost_text == text


def step(
    *, parent: Session | None = None, work: RepeatedWork = NOT_MEASURED, **facts
) -> ContinuedSession:
    return ContinuedSession(session=Session(**facts), parent=parent, work=work)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"continued_by": "resume"}, "resumed the conversation: 85.0k tokens of context"),
        (
            {"continued_by": "handoff", "continued_guard": "expired", "handoff": {"a": 1}},
            "by handoff (expired): 8 characters carried over",
        ),
        ({"continued_by": "handoff"}, "by handoff"),
        ({"continued_by": "fresh"}, "fresh conversation: nothing carried over"),
    ],
)
def test_a_step_shows_how_it_was_continued_and_its_context(facts, text):
    parent = Session(context_tokens=85_000)

    assert ops_format.continuity(step(parent=parent, **facts)).startswith(text)


def test_the_first_step_has_no_earlier_context():
    assert ops_format.continuity(step()) == "began the chain"


@pytest.mark.parametrize(
    ("calls", "repeated", "cost", "text"),
    [
        (8, 2, Decimal("0.012"), "2 of 8 tool calls repeated earlier work, about $0.01"),
        (1, 1, None, "1 of 1 tool call repeated earlier work, at unknown cost"),
        (8, 0, Decimal(0), "8 tool calls, none repeated"),
        (0, 0, Decimal(0), "no tool calls"),
    ],
)
def test_repeated_calls_are_shown_with_their_cost(calls, repeated, cost, text):
    work = RepeatedWork(calls=calls, repeated=repeated, cost_usd=cost)

    assert ops_format.repeated(step(parent=Session(), work=work)) == text


def test_unmeasured_work_is_not_shown_as_zero():
    assert "not measured" in ops_format.repeated(step())


@each_row(
    ("milliseconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (820, "0.8 s"),
        (42_000, "42 s"),
        (95_000, "1 min 35 s"),
        (3_725_000, "1 h 02 min"),
    ],
)
def test_a_duration_is_shown_in_common_units(milliseconds, text):
    assert duration(milliseconds) == text


@each_row(
    ("count", "text"),
    [(None, "–"), (950, "950"), (15_000, "15.0k"), (170_000, "170k"), (1_250_000, "1.25M")],
)
def test_tokens_are_abbreviated(count, text):
    assert tokens(count) == text


@each_row(
    ("seconds", "text"),
    [
        (0, "just now"),
        (59, "just now"),
        (185, "3 min ago"),
        (7_300, "2 h ago"),
        (90_000, "1 d ago"),
        (-7_300, "in 2 h"),
    ],
)
def test_a_past_time_is_shown_in_its_largest_unit(seconds, text):
    assert ago(NOON - timedelta(seconds=seconds), NOON) == text


def test_every_status_and_outcome_has_a_tone():
    states = [*Session.Status, *Cycle.Outcome]

    assert all(state in ops_format.TONES for state in states)


def test_a_badge_names_its_state():
    html = ops_format.session_badge(Session(status="timed_out"))

    assert "timed out" in html


def test_a_badge_escapes_its_label():
    assert "<b>" not in ops_format.badge("x", "<b>")


def test_a_cycle_without_an_outcome_shows_its_state():
    assert "queued" in ops_format.cycle_badge(Cycle(state="queued"))


def test_the_cost_of_an_open_run_is_pending():
    assert session_cost(Session(status="running")) == "pending"


def test_the_cost_of_an_ended_run_without_a_figure_is_unknown():
    assert session_cost(Session(status="failed")) == "unknown"


@each_row(
    ("sessions", "text"),
    [
        ([("completed", "0.03")], "$0.03"),
        ([("escalated", "0.03"), ("running", None)], "$0.03 so far"),
        ([("escalated", "0.03"), ("failed", None)], "$0.03 + unknown"),
        ([("failed", None)], "unknown"),
        ([("running", None)], "pending"),
    ],
)
def test_the_cost_of_a_chain_shows_whether_it_is_complete(sessions, text):
    chain = Chain(
        sessions=tuple(
            Session(status=status, cost_usd=cost and Decimal(cost)) for status, cost in sessions
        )
    )

    assert chain.cost_text == text


def test_the_cost_of_a_tier_is_that_of_its_own_sessions():
    first = Session(tier=1, status="escalated", cost_usd=Decimal("0.03"))
    chain = Chain(sessions=(first, Session(tier=2, status="running")))

    assert [tier.cost_text for tier in chain.costs_by_tier] == ["$0.03", "pending"]


def test_a_run_without_a_duration_shows_the_time_between_start_and_end():
    session = Session(started_at=NOON, finished_at=NOON + timedelta(seconds=75))

    assert ops_format.run_time(session) == "1 min 15 s"


def test_a_session_that_has_not_started_has_no_duration():
    assert ops_format.run_time(Session()) == "–"


def test_a_time_has_its_exact_value_as_attribute():
    html = ops_format.moment(NOON)

    assert 'title="2026-01-05 12:00:00 UTC"' in html


def test_a_command_can_be_pasted_into_a_shell():
    argv = ["claude", "--disallowedTools", "Bash(docker restart:*)", "it's"]

    assert ops_format.shell_quoted(argv) == (
        """claude --disallowedTools 'Bash(docker restart:*)' 'it'"'"'s'"""
    )


@each_row("odd", [None, {}, 3, "text", [1, None, {"a": 1}]])
def test_an_argv_of_unusual_shape_is_shown(odd):
    assert isinstance(ops_format.shell_quoted(odd), str)


@pytest.mark.parametrize(
    ("word", "tone"), [("Healthy", "good"), ("degraded", "warn"), ("down", "bad"), ("?", "quiet")]
)
def test_statuses_of_a_report_have_a_tone(word, tone):
    assert ops_format.report_tone(word) == tone


def test_a_model_is_shown_without_its_date():
    assert ops_format.short_model("claude-haiku-4-5-20251001") == "haiku-4-5"


def test_a_text_of_many_lines_is_long():
    assert ops_format.is_long("a\n" * 20)
    assert not ops_format.is_long("a\nb")


def test_the_first_line_of_a_long_text_is_its_preview():
    assert ops_format.first_line("\nfirst\nsecond") == "first"


def test_numbers_for_attributes_are_plain():
    assert (ops_format.number(Decimal("0.425")), ops_format.number(None)) == ("0.4250", "0.0000")


def test_a_share_is_a_percentage():
    assert (ops_format.percent(Decimal("0.188")), ops_format.percent(None)) == ("19%", "–")


def test_a_missing_time_is_a_dash():
    assert ops_format.moment(None) == "<span>–</span>"
