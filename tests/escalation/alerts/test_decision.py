"""Decisions about alerts: verdicts, replays, storms and routes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from escalation.alerts.decision import (
    OVERTAKEN_WINDOW,
    REPLAY_WINDOW,
    SETTLING_TIME,
    STORM_SIZE,
    KnownAlert,
    Verdict,
    is_replay,
    is_storm,
    judge,
    read_routes,
    routed,
    starts_cycle,
)
from escalation.alerts.parsers import ParsedAlert
from tests.tables import each_row

NOW = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)
LONG_AGO = NOW - timedelta(days=3)
SECOND = timedelta(seconds=1)


def alert(*, is_firing: bool = True, severity: int = 2) -> ParsedAlert:
    return ParsedAlert(
        fingerprint="f",
        is_firing=is_firing,
        service="web",
        summary="down",
        severity=severity,
        starts_at=LONG_AGO,
    )


FIRING, RESOLVED, WORSE = alert(), alert(is_firing=False), alert(severity=3)
OPEN = KnownAlert(is_firing=True, severity=2, starts_at=LONG_AGO, has_incident=True)


def ended(ago: timedelta) -> KnownAlert:
    return KnownAlert(is_firing=True, severity=2, has_incident=True, incident_ended_at=NOW - ago)


def resolved(ago: timedelta, starts_at: datetime = LONG_AGO) -> KnownAlert:
    return KnownAlert(is_firing=False, severity=2, starts_at=starts_at, resolved_at=NOW - ago)


VERDICTS = [
    (FIRING, None, False, Verdict.NEW),
    (FIRING, None, True, Verdict.MEMBER),
    (FIRING, OPEN, True, Verdict.REPEAT),
    (WORSE, OPEN, True, Verdict.WORSE),
    (RESOLVED, OPEN, True, Verdict.RESOLVED),
    (RESOLVED, None, False, Verdict.NOT_KNOWN),
    (RESOLVED, resolved(SECOND), False, Verdict.NOT_KNOWN),
    (FIRING, resolved(OVERTAKEN_WINDOW), False, Verdict.STALE),
    (FIRING, resolved(OVERTAKEN_WINDOW + SECOND), False, Verdict.NEW),
    (FIRING, resolved(SECOND, NOW - timedelta(days=4)), False, Verdict.NEW),
    (FIRING, ended(SETTLING_TIME), False, Verdict.REPEAT),
    (WORSE, ended(SETTLING_TIME), False, Verdict.REPEAT),
    (FIRING, ended(SETTLING_TIME + SECOND), False, Verdict.STILL_FIRING),
    # The old start of a repeated alert does not make it old.
    (
        FIRING,
        KnownAlert(is_firing=True, severity=3, starts_at=LONG_AGO, has_incident=True),
        False,
        Verdict.REPEAT,
    ),
    # The incident was removed, or there was no watch for it.
    (FIRING, KnownAlert(is_firing=True, severity=2), False, Verdict.NEW),
]


@each_row("sent, known, cause_is_open, verdict", VERDICTS)
def test_verdict(sent, known, cause_is_open, verdict):
    assert judge(sent, known, NOW, cause_is_open=cause_is_open) == verdict


@each_row(
    "verdict, again, first",
    [
        (Verdict.NEW, True, True),
        (Verdict.STILL_FIRING, True, True),
        (Verdict.MEMBER, True, False),
        (Verdict.WORSE, True, False),
        (Verdict.REPEAT, False, False),
        (Verdict.RESOLVED, False, False),
        (Verdict.NOT_KNOWN, False, False),
        (Verdict.STALE, False, False),
    ],
)
def test_verdicts_that_start_a_cycle(verdict, again, first):
    assert starts_cycle(verdict, runs_again=True) == again
    assert starts_cycle(verdict, runs_again=False) == first


@each_row(
    "before, expected",
    [
        (None, False),
        (("a", NOW), True),
        (("a", NOW - REPLAY_WINDOW), True),
        (("a", NOW - REPLAY_WINDOW - SECOND), False),
        (("b", NOW), False),
    ],
)
def test_replay_is_the_same_body_with_nothing_in_between(before, expected):
    assert is_replay("a", NOW, before) == expected


@each_row(
    "new, lately, expected",
    [
        (1, 0, False),
        (STORM_SIZE, 0, False),
        (STORM_SIZE + 1, 0, True),
        (2, STORM_SIZE - 1, True),
        (1, STORM_SIZE, True),
        (1, STORM_SIZE - 1, False),
        (0, 99, False),
    ],
)
def test_storm(new, lately, expected):
    assert is_storm(new, lately) == expected


ROUTES = read_routes("team=web shop\n\n team=* other watch \n")


@each_row(
    "labels, watch",
    [
        ({"team": "web"}, "shop"),
        ({"team": "db"}, "other watch"),
        ({"service": "web"}, ""),
        ({}, ""),
    ],
)
def test_first_route_that_matches_names_the_watch(labels, watch):
    assert routed(labels, ROUTES) == watch


@each_row("line", ["team", "team=web", "=web shop", "team= shop", "team web shop"])
def test_line_that_is_no_route(line):
    with pytest.raises(ValueError, match="is no route"):
        read_routes(line)
