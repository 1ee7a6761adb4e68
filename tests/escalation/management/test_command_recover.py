"""`claudeops recover`: the recovery that the worker runs every minute, on demand."""

from __future__ import annotations

import json
from io import StringIO

import pytest
from django.core.management import call_command
from django_q.models import OrmQ

from sessions_app.models import Session
from tests.escalation.recovery_cases import heard, living_runner, orphan, tool_call

pytestmark = pytest.mark.django_db


def recover(*arguments: str) -> list[str]:
    said = StringIO()
    call_command("recover", *arguments, stdout=said)
    return said.getvalue().splitlines()


def test_without_orphans_it_reports_none():
    assert recover() == ["0 sessions needed recovery."]


def test_each_recovered_session_is_reported(tmp_path):
    session = orphan(tmp_path)

    first, last = recover()

    assert first.startswith(f"Session {session.pk} (Tier 1): The process that ran")
    assert last == "1 sessions needed recovery."


def test_the_successor_is_enqueued(tmp_path):
    session = orphan(tmp_path)

    recover()

    assert OrmQ.objects.get().task["args"] == (session.children.get().pk,)


def test_unfinished_work_is_reported(tmp_path):
    heard(orphan(tmp_path, tier=2), tool_call("a"))

    assert "half done" in recover()[0]
    assert not OrmQ.objects.exists()


def test_a_dry_run_changes_nothing(tmp_path):
    session = orphan(tmp_path)

    first, last = recover("--dry-run")

    session.refresh_from_db()
    assert "would be ended" in first
    assert last == "1 sessions needed recovery."
    assert session.status == Session.Status.RUNNING
    assert session.runner_started == 1
    assert not OrmQ.objects.exists()


def test_a_session_with_a_live_runner_is_left_alone(tmp_path):
    orphan(tmp_path, **living_runner())

    assert recover() == ["0 sessions needed recovery."]


def test_a_second_call_finds_nothing(tmp_path):
    orphan(tmp_path)
    recover()

    assert recover() == ["0 sessions needed recovery."]


def test_prints_the_result_as_json(tmp_path):
    session = orphan(tmp_path)

    (entry,) = json.loads("\n".join(recover("--json")))

    assert (entry["session"], entry["tier"]) == (session.pk, 1)
