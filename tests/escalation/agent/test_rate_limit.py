"""Every form in which the CLI or the API reports a rate limit and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from escalation.agent.rate_limit import (
    AFTER_RESET,
    FIRST_BACK_OFF,
    LONGEST_BACK_OFF,
    LONGEST_WAIT,
    LimitSigns,
    RateLimitReached,
    Window,
    back_off,
    limit_in,
    windows_in,
)
from tests.tables import each_row

NOW = datetime(2026, 11, 16, 6, 0, tzinfo=UTC)
RESET = int(NOW.timestamp()) + 3600
CLOCK_JUST_PASSED = "You've hit your session limit · resets 5:55am (UTC)"


def failed(text: str, status: int | None = 429) -> dict[str, Any]:
    return {"subtype": "success", "is_error": True, "result": text, "api_error_status": status}


def said(text: str, now: datetime = NOW, in_a_row: int = 0) -> RateLimitReached:
    limit = limit_in(LimitSigns(result=failed(text, None)), now, in_a_row)
    assert limit is not None
    return limit


def from_api_proxy(in_a_row: int = 0, **facts: Any) -> RateLimitReached:
    text = "API Error: Request rejected (429) · slow down"
    limit = limit_in(LimitSigns(result=failed(text), **facts), NOW, in_a_row)
    assert limit is not None
    return limit


def rejected(in_a_row: int = 0, **facts: Any) -> RateLimitReached:
    event = {"status": "rejected", "rateLimitType": "five_hour", **facts}
    limit = limit_in(LimitSigns(result=failed("Something new."), event=event), NOW, in_a_row)
    assert limit is not None
    return limit


def test_an_event_of_the_stream_has_the_window_and_its_reset():
    limit = rejected(resetsAt=RESET)

    assert (limit.kind, limit.until) == ("five_hour", NOW + timedelta(hours=1))
    assert limit.words == "Something new."


@each_row(
    ("text", "kind", "until"),
    [
        (f"Claude AI usage limit reached|{RESET}", "usage", (16, 7, 0)),
        (f"Claude AI usage limit reached|{RESET}000", "usage", (16, 7, 0)),
        ("You've hit your session limit · resets 7:58am (UTC)", "five_hour", (16, 7, 58)),
        ("You’ve hit your session limit · resets 8am (UTC)", "five_hour", (16, 8, 0)),
        ("You've hit your limit · resets 8pm (America/New_York)", "five_hour", (17, 1, 0)),
        ("You've hit your session limit · resets 5am (UTC)", "five_hour", (17, 5, 0)),
        ("You've hit your session limit · resets 12am (UTC)", "five_hour", (17, 0, 0)),
        ("You've hit your session limit · resets 12pm (UTC)", "five_hour", (16, 12, 0)),
        ("You've hit your session limit · resets 2am (Asia/Tokyo)", "five_hour", (16, 17, 0)),
        ("You've hit your weekly limit · resets Nov 19, 5pm (UTC)", "seven_day", (19, 17, 0)),
        ("You've hit your weekly limit · resets Nov 19 at 5pm (UTC)", "seven_day", (19, 17, 0)),
        ("You're out of extra usage · resets 5pm (Europe/Berlin)", "extra_usage", (16, 16, 0)),
    ],
)
def test_the_reset_is_read_from_a_message(text, kind, until):
    limit = said(text)

    assert (limit.kind, limit.until) == (kind, datetime(2026, 11, *until, tzinfo=UTC))
    assert limit.words == text


@each_row(
    ("now", "text", "until"),
    [
        # On 29 March 2026 the clocks of Berlin skip from 2 to 3, on 25 October they repeat 2 to 3.
        ("2026-03-28T22:00", "5am (Europe/Berlin)", "2026-03-29T03:00"),
        ("2026-03-29T00:30", "2:30am (Europe/Berlin)", "2026-03-29T01:30"),
        ("2026-10-24T23:30", "2:30am (Europe/Berlin)", "2026-10-25T00:30"),
        ("2026-10-25T00:45", "2:30am (Europe/Berlin)", "2026-10-25T01:30"),
        ("2026-10-24T22:00", "5am (Europe/Berlin)", "2026-10-25T04:00"),
        ("2026-12-31T22:00", "Jan 2, 5pm (UTC)", "2027-01-02T17:00"),
        ("2026-11-16T06:00", "11:30am (Asia/Kathmandu)", "2026-11-17T05:45"),
    ],
)
def test_the_reset_is_right_across_a_change_of_daylight_saving_time(now, text, until):
    limit = said(
        f"You've hit your session limit · resets {text}",
        datetime.fromisoformat(now).replace(tzinfo=UTC),
    )

    assert limit.until == datetime.fromisoformat(until).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("retry_after", "until"),
    [
        ("90", NOW + timedelta(seconds=90)),
        ("0.5", NOW + timedelta(seconds=0.5)),
        ("Mon, 16 Nov 2026 06:10:00 GMT", NOW + timedelta(minutes=10)),
        ("99999999999", NOW + LONGEST_WAIT),
    ],
)
def test_the_reset_of_a_key_is_read_from_retry_after(retry_after, until):
    limit = from_api_proxy(status=429, retry_after=retry_after)

    assert (limit.kind, limit.until) == ("requests", until)


def test_the_reset_is_read_from_the_headers_of_a_subscription():
    prefix = "anthropic-ratelimit-unified-"
    headers = {f"{prefix}reset": str(RESET), f"{prefix}representative-claim": "seven_day"}

    limit = from_api_proxy(status=429, headers=headers)

    assert (limit.kind, limit.until) == ("seven_day", NOW + timedelta(hours=1))


@each_row(
    "limit",
    [
        pytest.param(lambda: from_api_proxy(), id="nothing else is known"),
        pytest.param(lambda: from_api_proxy(status=200, retry_after="90"), id="of another answer"),
        pytest.param(lambda: from_api_proxy(status=429, retry_after="soon"), id="garbage"),
        pytest.param(lambda: from_api_proxy(status=429, retry_after="nan"), id="not a number"),
        pytest.param(lambda: rejected(resetsAt=RESET - 7200), id="an event of the past"),
        pytest.param(lambda: rejected(resetsAt="tomorrow"), id="an event with garbage"),
        pytest.param(lambda: rejected(resetsAt=True), id="an event with a truth"),
        pytest.param(lambda: rejected(resetsAt=[1]), id="an event with a list"),
        pytest.param(lambda: rejected(resetsAt=1e300), id="an event beyond all time"),
        pytest.param(lambda: rejected(), id="an event without a time"),
        pytest.param(lambda: said("You've hit your session limit"), id="no time"),
        pytest.param(lambda: said("You've hit your limit · resets 25pm (UTC)"), id="no hour"),
        pytest.param(lambda: said("You've hit your limit · resets 8:61pm (UTC)"), id="no minute"),
        pytest.param(lambda: said("You've hit your limit · resets 8pm (Nowhere/X)"), id="no zone"),
        pytest.param(lambda: said("You've hit your limit · resets 8pm (../etc)"), id="a path"),
        pytest.param(lambda: said("You've hit your limit · resets 8pm"), id="zone not named"),
        pytest.param(
            lambda: said("You've hit your weekly limit · resets Feb 30, 8pm (UTC)"), id="no day"
        ),
        pytest.param(
            lambda: said("You've hit your weekly limit · resets Foo 3, 8pm (UTC)"), id="no month"
        ),
        pytest.param(lambda: said("Claude AI usage limit reached|1"), id="long ago"),
        pytest.param(lambda: said("Claude AI usage limit reached|" + "9" * 400), id="huge"),
    ],
)
def test_a_limit_without_a_future_time_waits_with_back_off(limit):
    assert limit().until == NOW + FIRST_BACK_OFF
    assert limit().kind == "unknown"


@each_row(
    "limit",
    [
        pytest.param(lambda **more: rejected(resetsAt=RESET - 3660, **more), id="an event"),
        pytest.param(lambda **more: said(CLOCK_JUST_PASSED, **more), id="a clock"),
        pytest.param(
            lambda **more: from_api_proxy(status=429, retry_after="0", **more), id="a key"
        ),
    ],
)
def test_a_limit_whose_reset_has_just_passed_is_over_at_once(limit):
    assert limit().until == NOW + AFTER_RESET
    assert limit(in_a_row=1).until == NOW + FIRST_BACK_OFF * 2


def test_a_reset_in_the_far_future_is_ignored():
    assert rejected(resetsAt=RESET + 10**9).until == NOW + LONGEST_WAIT


def test_the_back_off_grows_up_to_a_limit():
    waits = [back_off(number) for number in (-1, 0, 1, 2, 10, 10**6)]

    assert waits[:4] == [FIRST_BACK_OFF, FIRST_BACK_OFF, FIRST_BACK_OFF * 2, FIRST_BACK_OFF * 4]
    assert waits[4:] == [LONGEST_BACK_OFF, LONGEST_BACK_OFF]


def test_a_limit_without_a_time_waits_longer_each_time():
    signs = LimitSigns(result=failed("Slow down."))

    limits = [limit_in(signs, NOW, in_a_row) for in_a_row in (0, 1)]

    assert [limit.until - NOW for limit in limits if limit] == [FIRST_BACK_OFF, FIRST_BACK_OFF * 2]


@each_row(
    "result",
    [
        {},
        {"subtype": "success", "is_error": False, "result": "Claude AI usage limit reached|1"},
        {"subtype": "error_max_turns", "is_error": True, "api_error_status": 429},
        failed("API Error: 500 it is broken", 500),
        failed("The log says: You've hit your session limit", None),
        failed("", None),
        {"subtype": "success", "is_error": True, "result": 5},
    ],
)
def test_any_other_end_is_no_rate_limit(result):
    event = {"status": "rejected", "resetsAt": RESET}

    assert limit_in(LimitSigns(result=result, event=event), NOW) is None


def test_the_message_is_shortened_to_one_line():
    assert said("You've hit your session limit\n" + "x" * 999).words.startswith(
        "You've hit your session limit xxx"
    )
    assert len(said("You've hit your session limit\n" + "x" * 999).words) == 300


def test_the_use_of_each_window_is_read_from_the_stream():
    event = {"unifiedWindows": {"five_hour": {"utilization": 0.93, "resetsAt": RESET}}}

    assert windows_in(event, {}) == (
        Window(name="five_hour", share=0.93, resets_at=NOW + timedelta(hours=1)),
    )


def test_the_use_of_each_window_is_read_from_the_headers():
    prefix = "anthropic-ratelimit-unified-7d"
    headers = {f"{prefix}-utilization": "0.5", f"{prefix}-reset": str(RESET)}

    assert windows_in({}, headers) == (
        Window(name="seven_day", share=0.5, resets_at=NOW + timedelta(hours=1)),
    )


@each_row(
    "windows",
    [
        None,
        [],
        {"five_hour": None},
        {"five_hour": {}},
        {"five_hour": {"utilization": 0.5}},
        {"five_hour": {"utilization": "much", "resetsAt": RESET}},
        {"five_hour": {"utilization": -1, "resetsAt": RESET}},
        {"five_hour": {"utilization": float("nan"), "resetsAt": RESET}},
    ],
)
def test_a_malformed_window_is_ignored(windows):
    assert windows_in({"unifiedWindows": windows}, {}) == ()
