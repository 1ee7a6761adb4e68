"""Text from outside is shortened to its column, however it is written.

`test_text_columns_on_postgres` runs this file on PostgreSQL, which refuses what SQLite takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.apps import apps
from django.db import models
from django.utils import timezone

from sessions_app.models import (
    Alert,
    Approval,
    Change,
    Channel,
    Conversation,
    Cycle,
    Delivery,
    HeartbeatPing,
    Incident,
    IncidentEvent,
    Manifest,
    Message,
    Notification,
    PauseSwitch,
    Probe,
    ProbeChange,
    ProbeProposal,
    RateLimit,
    Remedy,
    RemedyRun,
    RunText,
    SandboxProof,
    ServiceState,
    Session,
    SessionEvent,
    Source,
    TelegramBot,
    TraceExport,
    Watch,
)
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField, fitted
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    MessageFactory,
    NotificationFactory,
    ProbeFactory,
    RemedyFactory,
    RemedyRunFactory,
    SandboxProofFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    SourceFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db

LONG = "a\x00b\ud83c " + "x" * 5_000

VALIDATED = "chosen by an operator, and validated by a form, a command or a setting"
COPIED = "a copy of a validated column that is as long"
OWN = "made by Claude Ops, and shorter by construction"
SPELLED = "made by `one_spelling`, which is as long and tells two long names apart"
NOT_SHORTENED = {
    "Watch": dict.fromkeys(
        ("name", "workdir", "cron", "approval", "grants", "ask", "hosts"), VALIDATED
    ),
    "Cycle": {
        **dict.fromkeys(("watch_name", "workdir", "approval", "ask"), COPIED),
        "drill": VALIDATED,
    },
    "DailyVerdict": {"verdict": OWN},
    "MetricTotal": {"labels": OWN},
    "Manifest": {"accepted_by": COPIED},
    "PeriodCost": dict.fromkeys(("watch_name", "drill", "model"), COPIED),
    "Session": {
        "model": VALIDATED,
        "workdir": COPIED,
        **dict.fromkeys(
            (
                *("continued_guard", "session_id", "cli_fingerprint", "boot_id", "run_mark"),
                "workdir_identity",
            ),
            OWN,
        ),
        **dict.fromkeys(("host", "cli_path", "config_dir"), VALIDATED),
    },
    "Approval": {"fingerprint": OWN},
    "AppliedDeclaration": {
        **dict.fromkeys(("name", "file", "applied_by"), VALIDATED),
        "kind": OWN,
    },
    "BudgetNotice": {"budget": OWN},
    "Change": {"service": SPELLED, "left_digest": OWN, "host": OWN},
    "FileContent": {"digest": OWN},
    "Remedy": {
        **dict.fromkeys(("name", "service", "grants", "parameters", "probe", "undo"), VALIDATED),
        "accepted_by": COPIED,
    },
    "RemedyRun": {**dict.fromkeys(("name", "by_name"), COPIED), "service": SPELLED},
    "Conversation": {"session_id": COPIED},
    "Incident": {
        **dict.fromkeys(("watch_name", "drill"), COPIED),
        "scope": OWN,
        "cause": SPELLED,
    },
    "Notification": {"path": OWN},
    "LoginFailure": dict.fromkeys(("username", "address"), "cut where it is looked up, too"),
    "ServiceState": {"service": SPELLED},
    "WorkerHeartbeat": dict.fromkeys(("host", "labels"), VALIDATED),
    "Channel": {"name": VALIDATED},
    "Transcript": dict.fromkeys(("project_key", "session_id", "subpath"), OWN),
    "TranscriptChunk": {"stored_as": OWN},
    "SandboxProof": dict.fromkeys(("host", "cli_fingerprint"), OWN),
    "Source": {"token_hash": OWN, **dict.fromkeys(("name", "service_label"), VALIDATED)},
    "Delivery": {"identity": OWN},
    "Probe": {
        **dict.fromkeys(("service", "name", "target"), VALIDATED),
        **dict.fromkeys(("token", "recent"), OWN),
    },
    "ProbeChange": {"why_held": OWN},
    "ProbeProposal": {"key": OWN, "decided_by": COPIED},
    "ApiToken": {
        **dict.fromkeys(("name", "scopes"), VALIDATED),
        **dict.fromkeys(("prefix", "token_hash"), OWN),
    },
    "IdempotentRequest": {"key": "refused by the API where it is longer", "fingerprint": OWN},
    "ProbeLease": {"host": VALIDATED},
    "TelegramBot": {"holder": OWN},
    "Maintenance": dict.fromkeys(("service", "reason"), VALIDATED),
}
UNBOUNDED_WITHOUT_OUTSIDE_TEXT = {("SearchText", "text")}

MAKE: dict[type[models.Model], Callable[[], models.Model]] = {
    RunText: lambda: RunText.objects.create(session=SessionFactory()),
    TelegramBot: lambda: TelegramBot(number=1),
    RateLimit: lambda: RateLimit(pk=RateLimit.THE_ONE),
    TraceExport: lambda: TraceExport(cycle=CycleFactory()),
    Approval: ApprovalFactory,
    Change: ChangeFactory,
    Conversation: lambda: Conversation(session_id="one"),
    Cycle: CycleFactory,
    Notification: NotificationFactory,
    Incident: IncidentFactory,
    IncidentEvent: lambda: IncidentEvent(incident=IncidentFactory(), kind="opened"),
    Manifest: lambda: Manifest(watch=WatchFactory()),
    Message: MessageFactory,
    Remedy: RemedyFactory,
    RemedyRun: RemedyRunFactory,
    PauseSwitch: lambda: PauseSwitch(pk=PauseSwitch.THE_ONE, changed_at=timezone.now()),
    ServiceState: ServiceStateFactory,
    Session: SessionFactory,
    SessionEvent: SessionEventFactory,
    Channel: ChannelFactory,
    SandboxProof: SandboxProofFactory,
    Watch: WatchFactory,
    Source: SourceFactory,
    Delivery: lambda: Delivery(source=SourceFactory(), size=1),
    Alert: lambda: Alert(source=SourceFactory(), severity=2),
    Probe: ProbeFactory,
    ProbeChange: lambda: ProbeChange(
        probe=ProbeFactory(), kind="down", status=2, at=timezone.now()
    ),
    ProbeProposal: lambda: ProbeProposal(watch=WatchFactory(), key="one", kind="http"),
    HeartbeatPing: lambda: HeartbeatPing(probe=ProbeFactory(), at=timezone.now()),
}


def text_columns() -> list[models.Field[Any, Any]]:
    """Of all our models, those whose value is no choice of a list."""
    return [
        field
        for model in apps.get_app_config("sessions_app").get_models()
        for field in model._meta.concrete_fields
        if isinstance(field, models.CharField | models.TextField) and not field.choices
    ]


OUTSIDE = [
    field for field in text_columns() if isinstance(field, OutsideCharField | OutsideTextField)
]
every_outside_column = pytest.mark.parametrize("column", OUTSIDE, ids=str)


def test_each_text_column_takes_outside_text_or_says_why_none_reaches_it():
    bounded = {
        (field.model.__name__, field.name)
        for field in text_columns()
        if field.max_length and field not in OUTSIDE
    }
    unbounded = {
        (field.model.__name__, field.name)
        for field in text_columns()
        if not field.max_length and field not in OUTSIDE
    }

    assert bounded == {(model, name) for model, why in NOT_SHORTENED.items() for name in why}
    assert unbounded == UNBOUNDED_WITHOUT_OUTSIDE_TEXT


def test_each_json_column_takes_outside_text():
    fields = (
        field
        for model in apps.get_app_config("sessions_app").get_models()
        for field in model._meta.concrete_fields
    )
    columns = [field for field in fields if isinstance(field, models.JSONField)]

    assert columns
    assert all(isinstance(field, OutsideJSONField) for field in columns)


def test_texts_in_json_are_without_characters_that_a_database_refuses():
    event = SessionEventFactory(payload={"k\x00": ["a\x00b", {"c": "\ud83c"}, 1, None]})
    event.refresh_from_db()

    assert event.payload == {"k\ufffd": ["a\ufffdb", {"c": "\ufffd"}, 1, None]}


def stored_in(row: models.Model, column: models.Field[Any, Any]) -> str:
    text: str = type(row)._default_manager.values_list(column.name, flat=True).get(pk=row.pk)
    return text


def check(row: models.Model, column: models.Field[Any, Any]) -> None:
    text = stored_in(row, column)
    assert text == fitted(LONG, column.max_length)
    assert text.startswith("a\ufffdb\ufffd ")
    assert len(text) == (column.max_length or len(LONG))
    assert text.endswith("…" if column.max_length else "x")


@every_outside_column
def test_saved_text_fits_its_column(column):
    row = MAKE[column.model]()
    setattr(row, column.name, LONG)
    row.save()

    check(row, column)
    assert getattr(row, column.name) == stored_in(row, column)


@every_outside_column
def test_updated_text_fits_its_column_and_is_found_by_the_same_text(column):
    row = MAKE[column.model]()
    row.save()
    rows = column.model._default_manager.filter(pk=row.pk)
    rows.update(**{column.name: LONG})

    check(row, column)
    assert rows.filter(**{column.name: LONG}).exists()


@every_outside_column
def test_text_of_many_rows_fits_its_column(column):
    row = MAKE[column.model]()
    if row._state.adding:
        setattr(row, column.name, LONG)
        column.model._default_manager.bulk_create([row])
    else:
        setattr(row, column.name, LONG)
        column.model._default_manager.bulk_update([row], [column.name])

    check(row, column)
