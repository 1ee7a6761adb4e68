"""The record of a chain, read for the claims of its reports."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from sessions_app.history.claims import ClaimCheck, claims_in, marked_report, read_report
from tests.factories import ChangeFactory, CommandEventFactory, SessionFactory

pytestmark = pytest.mark.django_db
CHANGES = {"changes": ["docker restart web"], "call": "aa"}


def reported(action: str = "restarted web", result: str = "succeeded") -> dict[str, Any]:
    return {"actions_taken": [{"action": action, "service": "web", "result": result}]}


def finding(session: Any, **facts: str) -> ClaimCheck:
    (claim,) = claims_in(reported(**facts), session.cycle_id)
    return claim.finding


@pytest.fixture
def session():
    return SessionFactory(tier=2)


def test_a_change_of_an_earlier_session_of_the_chain_counts(session):
    ChangeFactory(session=SessionFactory(parent_session=session))

    assert finding(session) is ClaimCheck.SEEN


def test_a_change_of_another_chain_does_not_count(session):
    ChangeFactory()

    assert finding(session) is ClaimCheck.CLAIMED


def test_an_edit_counts(session):
    ChangeFactory(session=session, kind="edit", action="edit /a/web.yml", path="/a/web.yml")

    assert finding(session, action="corrected web.yml") is ClaimCheck.SEEN


def test_a_failed_command_contradicts_the_claim(session):
    ChangeFactory(session=session, exit_code=1)

    (claim,) = claims_in(reported(), session.cycle_id)

    assert claim.finding is ClaimCheck.OTHERWISE
    assert claim.evidence is not None
    assert claim.evidence.told == "exit code 1"


def test_a_denied_command_contradicts_the_claim(session):
    CommandEventFactory(session=session, sequence=1, verdict="deny", more=CHANGES)

    assert finding(session) is ClaimCheck.OTHERWISE


def test_a_command_without_approval_contradicts_the_claim(session):
    CommandEventFactory(session=session, sequence=1, verdict="ask", more=CHANGES)
    ended = {"call": "aa", "has_run": False, "exit_code": 126}
    CommandEventFactory(session=session, sequence=2, kind="command_end", verdict="", more=ended)

    assert finding(session) is ClaimCheck.OTHERWISE


@pytest.mark.parametrize(("code", "expected"), [(0, ClaimCheck.CLAIMED), (1, ClaimCheck.OTHERWISE)])
def test_only_a_later_successful_script_of_an_earlier_version_removes_the_contradiction(
    session, code, expected
):
    CommandEventFactory(session=session, sequence=1, verdict="deny", more=CHANGES)
    script = {"call": "bb", "rule": "not understood"}
    CommandEventFactory(session=session, sequence=2, verdict="isolate", more=script)
    ended = {"call": "bb", "exit_code": code}
    CommandEventFactory(session=session, sequence=3, kind="command_end", verdict="", more=ended)

    assert finding(session) is expected


def test_a_later_text_in_a_sandbox_keeps_the_contradiction(session):
    CommandEventFactory(session=session, sequence=1, verdict="deny", more=CHANGES)
    text = {"call": "bb", "rule": "in the sandbox"}
    CommandEventFactory(session=session, sequence=2, verdict="isolate", more=text)
    ended = {"call": "bb", "exit_code": 0}
    CommandEventFactory(session=session, sequence=3, kind="command_end", verdict="", more=ended)

    assert finding(session) is ClaimCheck.OTHERWISE


@pytest.mark.parametrize("report", [None, {}, [], "x", {"actions_taken": "x"}, {"actions": [3]}])
def test_a_malformed_claim_is_only_claimed(report, session):
    assert all(c.finding is ClaimCheck.CLAIMED for c in claims_in(report, session.cycle_id))


def test_a_report_without_actions_makes_no_query(session):
    with CaptureQueriesContext(connection) as queries:
        claims_in({"actions_taken": []}, session.cycle_id)

    assert len(queries) == 0


def test_the_shown_report_has_the_result_of_each_check(session):
    ChangeFactory(session=session)
    value = reported()

    shown = marked_report(read_report(value), value, session.cycle_id)

    assert shown is not None
    (item,) = shown.actions
    assert item.claim is not None
    assert item.claim.word == "seen in the record"
