"""A report on the page of its session: each claim with the evidence of the record."""

from __future__ import annotations

import pytest

from tests.factories import ChangeFactory, SessionFactory

pytestmark = pytest.mark.django_db


def page_of(client, exit_code: int | None = None, action: str = "restarted web") -> str:
    claimed = {"action": action, "service": "web", "result": "succeeded"}
    session = SessionFactory(tier=2, report={"summary": "Mended.", "actions_taken": [claimed]})
    if exit_code is not None:
        ChangeFactory(session=session, exit_code=exit_code)
    return str(client.get(session.get_absolute_url()).content.decode())


def test_a_claim_with_a_matching_command_is_confirmed_by_the_record(operator_client):
    page = page_of(operator_client, exit_code=0)

    assert "seen in the record" in page
    assert "docker restart web (exit code 0)" in page


def test_a_claim_without_a_matching_command_is_only_claimed(operator_client):
    assert "only claimed" in page_of(operator_client)


def test_a_claim_of_success_is_contradicted_by_a_failed_command(operator_client):
    page = page_of(operator_client, exit_code=1)

    assert "succeeded" in page
    assert "the record says otherwise" in page
    assert "docker restart web (exit code 1)" in page


def test_hostile_text_in_a_claim_is_escaped(operator_client):
    page = page_of(operator_client, exit_code=0, action="<script>alert(1)</script> restarted web")

    assert "<script>alert" not in page
    assert "seen in the record" in page
