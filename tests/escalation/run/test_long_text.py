"""Texts of any length from a model, a tool or the CLI: the session ends and is recorded.

`test_text_columns_on_postgres` runs this file on PostgreSQL, which refuses what SQLite takes.
"""

from __future__ import annotations

import json

import pytest
from django.apps import apps
from django.db import models

from escalation.incidents import recorder
from escalation.notifications.outbox import pass_on
from escalation.supervisor.approvals import CommandAsked, ask_for_command
from escalation.supervisor.cooldowns import Reached, tell_reached
from escalation.supervisor.manual import stop_cycle
from escalation.worker import schedules
from sessions_app.models import (
    Change,
    Cycle,
    Incident,
    Message,
    Notification,
    PauseSwitch,
    RateLimit,
    ServiceState,
    Session,
)
from tests.escalation.rows import queued_session
from tests.escalation.runs import run
from tests.factories import ChangeFactory, ChannelFactory, SessionFactory

pytestmark = pytest.mark.django_db

LONG = "shop\x00\ud83c " + "x y" * 1_700
SAID = json.dumps(LONG)


def check_stored_text() -> None:
    """Every text in every column of ours fits and can be stored by any database."""
    for model in apps.get_app_config("sessions_app").get_models():
        for field in model._meta.concrete_fields:
            if isinstance(field, models.CharField | models.TextField):
                for text in model._default_manager.values_list(field.name, flat=True):
                    assert len(text) <= (field.max_length or len(text)), field
                    assert "\x00" not in text, field


def report(**said: object) -> str:
    """The program of a run that reports a service with a long name."""
    whole = {
        "summary": LONG,
        "services": [{"name": LONG, "status": "healthy", "detail": LONG}],
        "events": [{"level": "warning", "message": LONG, "service": LONG}],
        "actions_taken": [],
        "escalation": {"needed": False, "reason": "", "services": []},
        **said,
    }
    return f"init(); say({SAID}); result(json.loads({json.dumps(whole)!r}))"


def test_a_service_with_a_long_name_that_is_fixed_has_an_incident(fake_cli, workdir):
    done = {"action": f"restarted {LONG}", "result": "succeeded", "service": LONG}
    fake_cli.then(report(actions_taken=[done]))
    session = queued_session(workdir, tier=2)
    ChangeFactory(session=session, service="*")

    ended = run(session)

    assert ended.cycle.outcome == Cycle.Outcome.FIXED
    assert len(Incident.objects.get().title) == 200
    assert Notification.objects.exists()
    assert len(ServiceState.objects.get().name) == 200
    check_stored_text()


def test_a_long_service_name_is_kept_through_an_escalation(fake_cli, session):
    down = [{"name": LONG, "status": "down", "detail": LONG}]
    asks = {"needed": True, "reason": LONG, "services": [LONG]}
    fake_cli.then(report(services=down, escalation=asks))

    ended = run(session)

    assert ended.status == Session.Status.ESCALATED
    assert len(Incident.objects.get().title) == 200
    check_stored_text()


def test_long_error_of_the_cli_is_cut(fake_cli, session):
    fake_cli.then(
        f"emit(type={SAID}, subtype={SAID}); init(model={SAID}); say();"
        f"sys.stdout.buffer.write(b'no JSON \\0\\n');"
        f"result(HEALTHY, stop_reason={SAID}, terminal_reason={SAID}, result={SAID})"
    )

    ended = run(session)

    assert ended.cycle.outcome == Cycle.Outcome.HEALTHY
    assert len(ended.stop_reason) == len(ended.terminal_reason) == 100
    check_stored_text()


def test_a_long_error_of_the_cli_is_kept(fake_cli, session):
    fake_cli.then(f"init(); sys.stderr.write({SAID}); result(is_error=True, result={SAID})")

    ended = run(session)

    assert ended.status == Session.Status.FAILED
    check_stored_text()


def test_an_edit_of_a_file_with_a_long_path_is_recorded(fake_cli, workdir):
    call = {
        "type": "tool_use",
        "id": LONG,
        "name": "Edit",
        "input": {"file_path": f"/srv/{LONG}", "old_string": LONG, "new_string": "b"},
    }
    done = {"type": "tool_result", "tool_use_id": LONG, "content": LONG}
    fake_cli.then(
        f"init(); emit(type='assistant', message={{'id': 'm', 'content': [{call!r}]}});"
        f"emit(type='user', message={{'content': [{done!r}]}}); result(HEALTHY)"
    )

    run(queued_session(workdir, tier=2))

    change = Change.objects.get()
    assert (len(change.call), len(change.path), len(change.action)) == (100, 1000, 300)
    check_stored_text()


def test_rate_limit_with_a_long_message_is_stored(fake_cli, session):
    fake_cli.then(
        "init(); say(); emit(type='rate_limit_event', rate_limit_info={'status': 'rejected', "
        f"'rateLimitType': {SAID}, 'resetsAt': int(time.time()) + 3600}});"
        f"result(is_error=True, api_error_status=429, result={SAID}); sys.exit(1)"
    )

    ended = run(session)

    assert ended.stop_cause == Session.StopCause.RATE_LIMIT
    assert RateLimit.objects.get().kind
    check_stored_text()


def test_a_command_that_waits_for_approval_may_be_long():
    long = "x" * 5_000  # a command with a NUL is denied before
    asked = CommandAsked(
        command=long, cwd=f"/srv/{long}", why=LONG, plan=LONG, grants=(), actions=(long,)
    )
    approval = ask_for_command(SessionFactory(running=True), asked)

    assert (len(approval.why), len(approval.cwd)) == (300, 1000)
    check_stored_text()


def test_long_notices_are_stored_and_sent():
    session = SessionFactory(running=True)
    channel = ChannelFactory()
    recorder.note_cooldown(session, LONG, LONG)
    for _ in range(2):
        tell_reached(session, Reached(service=LONG, reason=LONG))

    assert Notification.objects.filter(kind=Notification.Kind.COOLDOWN).count() == 1
    assert pass_on() > 0
    assert Message.objects.filter(channel=channel).exists()
    check_stored_text()


def test_long_names_and_reasons_of_persons_are_stored():
    cycle = SessionFactory(running=True, status="queued", started_at=None).cycle
    stop_cycle(cycle, by=LONG)
    schedules.pause(LONG)

    assert Cycle.objects.get(pk=cycle.pk).state == Cycle.State.FINISHED
    assert len(PauseSwitch.objects.get().reason) == 300
    check_stored_text()
