"""A database made by an earlier version keeps every row and every value when it is migrated.

The databases are stored in `tests/upgrade`. The names of tables and columns are those of the old
version's migrations, followed through every later rename.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.conf import global_settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connections, transaction
from django.db.backends.sqlite3.base import DatabaseWrapper
from django.db.migrations import operations
from django.db.migrations.loader import MigrationLoader
from django.test import Client
from django.utils.module_loading import import_string
from django_q.conf import Conf
from django_q.models import OrmQ, Schedule

from claudeops.env import sqlite_database
from escalation.errors import WhyNot
from escalation.run.manifest import manifest_of_cycle
from escalation.supervisor import cycles
from sessions_app.archive.messages import messages_of
from sessions_app.models import (
    Approval,
    Change,
    Channel,
    Conversation,
    Cycle,
    DailyVerdict,
    Incident,
    Manifest,
    Notification,
    PauseSwitch,
    PeriodCost,
    RateLimit,
    SandboxProof,
    Session,
    SessionEvent,
    Watch,
    WorkerHeartbeat,
)
from sessions_app.models.session import EventKind, Verdict
from sessions_app.redaction.encryption import address_of
from tests.factories import PASSWORD

ROOT = Path(__file__).resolve().parent.parent
DUMPS = ROOT / "tests" / "upgrade"
# The keys of the installations that made the stored databases, and of nothing else.
SECRET_KEY = "only-for-the-test-of-upgrades-0123456789abcdefghijklmnop"
ENCRYPTION_KEY = "b25seS1mb3ItdGhlLXRlc3Qtb2YtdXBncmFkZXMtMDA="

# Values that were renamed later and that the dumps, which are never edited, do not contain.
ADDED_ROWS = {
    "0_1": "",
    "0_2": """
        CREATE TEMP TABLE copied AS SELECT * FROM sessions_app_incident WHERE id = 2;
        UPDATE copied SET id = 4, kind = 'could_not_run', scope = 'installation', cause = 'walls';
        INSERT INTO sessions_app_incident SELECT * FROM copied;
        DROP TABLE copied;
        CREATE TEMP TABLE copied AS SELECT * FROM sessions_app_happening WHERE id = 1;
        UPDATE copied SET id = 3, kind = 'walls_worse', incident_id = 4;
        INSERT INTO sessions_app_happening SELECT * FROM copied;
    """,
}

LAST_MIGRATION = {"0_1": "0004_named_rooms", "0_2": "0018_list_indexes"}
APP = "sessions_app"
ROLES = {
    # Roles came with 0.2: accounts without permissions became viewers.
    "0_1": {"operator": [], "helper": ["viewer"], "looker": ["viewer"]},
    "0_2": {
        "operator": [],
        "the-viewer": ["viewer"],
        "the-operator": ["operator"],
        "the-approver": ["approver"],
        "the-admin": ["admin"],
    },
}

Field = tuple[str, str]
"""A model and one of its fields, in lower case."""
Rows = set[tuple[Any, ...]]


@dataclass(frozen=True)
class Upgraded:
    """A database of an earlier version before and after `claudeops upgrade`."""

    version: str
    before: Path
    after: Path
    environment: dict[str, str]

    def run(self, *words: str) -> str:
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module", params=LAST_MIGRATION)
def upgraded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Upgraded:
    state = tmp_path_factory.mktemp(f"from-{request.param}")
    before, after = state / "before.sqlite3", state / "after.sqlite3"
    for file in (before, after):
        load(DUMPS / f"version_{request.param}.sql", file, ADDED_ROWS[request.param])
    environment = {
        "PATH": os.environ["PATH"],
        "CLAUDEOPS_STATE_DIR": str(state / "state"),
        "CLAUDEOPS_SECRET_KEY": SECRET_KEY,
        "CLAUDEOPS_ENCRYPTION_KEY": ENCRYPTION_KEY,
        "DATABASE_URL": f"sqlite:///{after}",
    }
    made = Upgraded(request.param, before, after, environment)
    made.run("manage.py", "upgrade")
    return made


def load(dump: Path, file: Path, added_rows: str) -> None:
    connection = sqlite3.connect(file)
    connection.executescript(dump.read_text() + added_rows)
    connection.close()


@pytest.fixture
def database(upgraded: Upgraded, settings: Any, django_db_blocker: Any) -> Iterator[None]:
    """Django on the migrated database. What a test writes is rolled back."""
    settings.CLAUDEOPS_ENCRYPTION_KEYS = (ENCRYPTION_KEY,)
    usual = connections["default"]
    opened = DatabaseWrapper(
        {**usual.settings_dict, **sqlite_database(upgraded.after)}, alias="default"
    )
    connections["default"] = opened
    try:
        with django_db_blocker.unblock(), transaction.atomic():
            yield
            transaction.set_rollback(True)
    finally:
        opened.close()
        connections["default"] = usual


@dataclass(frozen=True)
class Columns:
    """A table and some of its columns."""

    table: str
    columns: tuple[str, ...]

    def rows(self, file: Path) -> Rows:
        """Raw SQL: what is compared is not read by the code that is tested."""
        columns = ", ".join(f'"{column}"' for column in self.columns)
        with closing(sqlite3.connect(file)) as connection:
            return set(connection.execute(f'SELECT {columns} FROM "{self.table}"'))  # noqa: S608


def tables_then_and_now(last_migration: str) -> Iterator[tuple[Columns, Columns]]:
    """Each table of our models as an earlier version had it, with what it is called today.

    A column that was removed since is left out.
    """
    loader = MigrationLoader(None)
    then = loader.project_state([(APP, last_migration)]).apps
    names = names_today(loader, last_migration, then.get_app_config(APP).get_models())
    for model in then.get_app_config(APP).get_models():
        found = [(old, names[name_of(model), old.name]) for old in every_field(model)]
        kept = [(old, place) for old, place in found if place]
        if not kept:
            continue
        today = apps.get_model(APP, kept[0][1][0])
        fields = [(old, today._meta.get_field(name)) for old, (_model, name) in kept]
        plain = [(old, new) for old, new in fields if not old.many_to_many]
        yield (
            Columns(model._meta.db_table, tuple(old.column for old, _new in plain)),
            Columns(today._meta.db_table, tuple(new.column for _old, new in plain)),
        )
        for old, new in fields:
            if old.many_to_many:
                yield links(old), links(new)


def name_of(model: Any) -> str:
    return str(model._meta.model_name)


def every_field(model: Any) -> list[Any]:
    return [*model._meta.local_concrete_fields, *model._meta.local_many_to_many]


def links(field: Any) -> Columns:
    columns = ("id", field.m2m_column_name(), field.m2m_reverse_name())
    return Columns(field.m2m_db_table(), columns)


def names_today(
    loader: MigrationLoader, last_migration: str, models: Iterable[Any]
) -> dict[Field, Field | None]:
    """What each field is called after all later migrations; None where it was removed."""
    today: dict[Field, Field | None] = {
        (field := (name_of(model), one.name)): field
        for model in models
        for one in every_field(model)
    }
    known = set(loader.graph.forwards_plan((APP, last_migration)))
    [newest] = loader.graph.leaf_nodes(APP)
    for node in loader.graph.forwards_plan(newest):
        if node[0] == APP and node not in known:
            for operation in flat(loader.graph.nodes[node].operations):
                today = {then: renamed(now, operation) for then, now in today.items()}
    return today


def flat(steps: Iterable[Any]) -> Iterator[Any]:
    for step in steps:
        if isinstance(step, operations.SeparateDatabaseAndState):
            yield from flat(step.state_operations)
        else:
            yield step


def renamed(field: Field | None, step: Any) -> Field | None:
    if field is None:
        return None
    model, name = field
    match step:
        case operations.RenameModel() if step.old_name_lower == model:
            return step.new_name_lower, name
        case operations.DeleteModel() if step.name_lower == model:
            return None
        case operations.RemoveField() if (step.model_name_lower, step.name) == field:
            return None
        case operations.RenameField() if (step.model_name_lower, step.old_name) == field:
            return model, step.new_name
    return field


# Stored values that have another name today, in columns and in JSON on SQLite.
RENAMED_VALUES = {
    "sessions_app_dailyverdict": {"contain": "isolate"},
    "sessions_app_happening": {"walls_worse": "sandbox_worse"},
    "sessions_app_incident": {"walls": "sandbox"},
    "sessions_app_sessionevent": {"gate": "command", "gate_end": "command_end"},
}
RENAMED_IN_EVENTS = {'"verdict": "contain"': '"verdict": "isolate"', '"doors": [': '"grants": ['}


def with_values_of_today(table: str, rows: Rows) -> Rows:
    names = RENAMED_VALUES.get(table, {})
    return {tuple(value_of_today(value, names, table) for value in row) for row in rows}


def value_of_today(value: Any, names: dict[str, str], table: str) -> Any:
    if table == "sessions_app_sessionevent" and isinstance(value, str):
        for old, new in RENAMED_IN_EVENTS.items():
            value = value.replace(old, new)
    return names.get(value, value)


# Costs of killed sessions are computed anew, and with them the sums; other tests hold them.
COMPUTED_ANEW = {"sessions": ("cost",), "sessions_app_periodcost": ("",)}


def kept(then: Columns, rows: Rows) -> Rows:
    """Rows without the columns that are computed anew."""
    words = COMPUTED_ANEW.get(then.table, ())
    places = [
        place
        for place, column in enumerate(then.columns)
        if not any(word in column for word in words)
    ]
    return {tuple(row[place] for place in places) for row in rows}


def test_every_row_keeps_its_values(upgraded: Upgraded) -> None:
    missing = {
        then.table: kept(then, with_values_of_today(then.table, then.rows(upgraded.before)))
        - kept(then, now.rows(upgraded.after))
        for then, now in tables_then_and_now(LAST_MIGRATION[upgraded.version])
    }

    assert {table: rows for table, rows in missing.items() if rows} == {}


def test_the_stored_databases_have_rows_in_every_table_of_ours(upgraded: Upgraded) -> None:
    empty = {
        then.table
        for then, _now in tables_then_and_now(LAST_MIGRATION[upgraded.version])
        if not then.rows(upgraded.before)
    }

    assert empty == set()


@pytest.mark.parametrize(
    "table", ["auth_user", "auth_group", "auth_user_groups", "django_q_schedule", "django_q_ormq"]
)
def test_accounts_schedules_and_the_queue_keep_their_rows(upgraded: Upgraded, table: str) -> None:
    numbers = Columns(table, ("id",))

    assert numbers.rows(upgraded.before) <= numbers.rows(upgraded.after)


def test_the_upgraded_database_passes_the_checks(upgraded: Upgraded) -> None:
    upgraded.run("manage.py", "check", "--database", "default")
    upgraded.run("manage.py", "migrate", "--check")


COMMANDS = [
    ("status", "Moving the rack"),
    ("watch list", "shop"),
    ("watch show shop", "Look at web and db."),
    ("incident list", ""),
    ("approval list", ""),
    ("session show 1", "three-tiers"),
    ("cycles", "mail"),
    ("rollups --check", ""),
]


@pytest.mark.usefixtures("database")
def test_commands_read_the_upgraded_database() -> None:
    for words, shown in COMMANDS:
        output = StringIO()
        with suppress(SystemExit):  # `status` says by its code that something needs a person
            call_command(*words.split(), stdout=output)
        assert shown in output.getvalue(), words


@pytest.mark.usefixtures("database")
def test_pages_show_the_upgraded_database() -> None:
    client = Client()
    client.force_login(User.objects.get(username="operator"))

    pages = ["/", "/watches/", "/cycles/", "/cycles/1/", "/sessions/1/", "/costs/", "/incidents/"]

    assert {page: client.get(page, follow=True).status_code for page in pages} == dict.fromkeys(
        pages, 200
    )
    assert "shop" in client.get("/").content.decode()


@pytest.mark.usefixtures("database")
def test_watches_and_the_pause_are_kept() -> None:
    shop, mail = Watch.objects.get(name="shop"), Watch.objects.get(name="mail")

    assert (shop.workdir, shop.interval_minutes, shop.max_tier) == ("/srv/shop", 30, 3)
    assert (shop.enabled, shop.dry_run) == (True, False)
    assert (mail.cron, mail.max_tier, mail.dry_run) == ("0 3 * * *", 2, True)
    assert mail.failures_in_a_row == 2
    assert PauseSwitch.current().paused
    assert PauseSwitch.current().reason == "Moving the rack"
    assert WorkerHeartbeat.objects.get().host == "web1"


@pytest.mark.usefixtures("database")
def test_the_manifest_of_a_watch_is_accepted_at_the_next_read(tmp_path: Path) -> None:
    mail = Watch.objects.get(name="mail")
    mail.workdir = str(tmp_path)
    (tmp_path / "CLAUDE-OPS.md").write_text("Never touch the queue.")

    found = manifest_of_cycle(Cycle(watch=mail, workdir=mail.workdir))

    assert (found.accepted, found.accepted_by) == ("Never touch the queue.", "the upgrade")
    assert Manifest.objects.filter(accepted_at=None).count() == Watch.objects.count() - 1


@pytest.mark.usefixtures("database")
def test_sessions_and_their_costs_are_kept() -> None:
    chain = Session.objects.filter(cycle__prompt="Look at web first.").order_by("tier")

    assert [session.cost_usd for session in chain] == [Decimal("0.03"), Decimal("0.47"), Decimal(2)]
    assert [session.status for session in chain] == ["escalated", "escalated", "completed"]
    assert [session.parent_session for session in chain] == [None, chain[0], chain[1]]
    assert Conversation.objects.get(session_id=chain[0].session_id).state == "retired"
    assert SessionEvent.objects.filter(session=chain[0]).count() == 1
    assert Cycle.objects.get(watch_name="old-blog").watch is None
    shop = PeriodCost.objects.real().months().filter(watch_name="shop")
    assert sum(row.cost_usd for row in shop) == Decimal("2.50")


@pytest.mark.usefixtures("database")
def test_an_archived_transcript_can_still_be_read() -> None:
    messages = messages_of(Session.objects.get(pk=1))

    assert {message.source for message in messages} == {"transcript"}
    assert len(messages) > 3


@pytest.mark.usefixtures("database")
def test_accounts_keep_their_passwords_and_have_roles(upgraded: Upgraded, settings: Any) -> None:
    settings.PASSWORD_HASHERS = global_settings.PASSWORD_HASHERS
    roles = {
        user.username: [group.name for group in user.groups.order_by("name")]
        for user in User.objects.all()
    }

    assert User.objects.get(username="operator").check_password(PASSWORD)
    assert roles == ROLES[upgraded.version]


@pytest.mark.usefixtures("database")
def test_schedules_and_queued_tasks_name_functions_that_exist(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Conf, "SECRET_KEY", SECRET_KEY)
    called = [schedule.func for schedule in Schedule.objects.all()]
    called += [task.func() for task in OrmQ.objects.all()]

    assert len(called) == 4
    assert all(callable(import_string(name)) for name in called)


@pytest.mark.usefixtures("database")
def test_a_new_cycle_starts_in_the_upgraded_database() -> None:
    mail = Watch.objects.get(name="mail")
    waiting = OrmQ.objects.count()

    cycle = cycles.start(mail, trigger=Cycle.Trigger.MANUAL)

    assert cycle.sessions.get().status == Session.Status.QUEUED
    assert OrmQ.objects.count() == waiting + 1


@pytest.mark.parametrize("upgraded", ["0_2"], indirect=True)
@pytest.mark.usefixtures("database")
def test_rows_of_models_added_in_0_2_are_kept() -> None:
    shop = Watch.objects.get(name="shop")
    web = Incident.objects.get(cause="web", drill="")
    pager = Channel.objects.get()
    tier, command = Approval.objects.order_by("pk")

    assert (shop.approval, shop.ask, shop.hosts) == ("2,3", "Bash(docker restart:*)", "nas web1")
    assert shop.grants == "write:/srv/shop -ssh"
    assert shop.budget_day_usd == Decimal("12.50")
    assert (shop.restarts_allowed, shop.restart_hours) == (3, 6)
    assert (shop.redeployments_allowed, shop.redeployment_hours) == (2, 48)
    assert (web.state, web.severity, web.times_seen) == ("acknowledged", 3, 3)
    assert web.owner == User.objects.get(username="the-operator")
    assert web.events.filter(text="The disk was changed last week.").count() == 1
    assert [cycle.watch_name for cycle in web.cycles.all()] == ["shop"]
    assert address_of(pager) == "json://someone:a-password-of-a-test@127.0.0.1:9/"
    assert (pager.quiet_from, pager.quiet_until, pager.digest_at) == (time(22), time(7), time(8))
    assert [watch.name for watch in pager.watches.all()] == ["shop"]
    assert (tier.state, tier.plan) == ("waiting", "Redeploy web.")
    assert (command.state, command.note, command.grants) == ("approved", "Go on.", ["docker"])
    assert Change.objects.filter(path="/srv/shop/compose.yml", diff__contains="+new").exists()
    assert RateLimit.objects.get().kind == "five_hour"


@pytest.mark.parametrize("upgraded", ["0_2"], indirect=True)
@pytest.mark.usefixtures("database")
def test_names_of_the_sandbox_are_those_of_today() -> None:
    incident = Incident.objects.get(kind=Incident.Kind.COULD_NOT_RUN)

    assert WhyNot(incident.cause) == WhyNot.SANDBOX
    assert incident.notification_set.get().kind == Notification.Kind.SANDBOX_WORSE
    assert SandboxProof.objects.get().sandbox == "bubblewrap 0.8.0"


@pytest.mark.parametrize("upgraded", ["0_2"], indirect=True)
@pytest.mark.usefixtures("database")
def test_decisions_on_commands_have_the_names_of_today() -> None:
    decided = SessionEvent.objects.filter(source="supervisor", kind=EventKind.COMMAND)
    isolated = decided.filter(payload__verdict=Verdict.ISOLATE)

    assert (decided.count(), isolated.count()) == (9, 3)
    assert SessionEvent.objects.filter(kind=EventKind.COMMAND_END).count() == 7
    assert not SessionEvent.objects.filter(payload__has_key="doors").exists()
    assert DailyVerdict.objects.get(verdict=Verdict.ISOLATE).count == 3
