"""Every list of the admin: all models have one, and it makes a fixed number of queries."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule, Task
from django_q.signing import SignedPackage

from sessions_app.access.admin_site import ADMIN_GROUPS
from sessions_app.models import (
    AccountSeen,
    AppliedDeclaration,
    BudgetLimit,
    BudgetNotice,
    Conversation,
    DailyVerdict,
    FileContent,
    IdempotentRequest,
    LoginFailure,
    Manifest,
    MetricTotal,
    PauseSwitch,
    RateLimit,
    RunText,
    SearchProgress,
    SearchText,
    Session,
    TraceExport,
    Transcript,
    TranscriptChunk,
    Watch,
    WorkerHeartbeat,
)
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    IncidentFactory,
    MessageFactory,
    NotificationFactory,
    RemedyFactory,
    RemedyRunFactory,
    SandboxProofFactory,
    SessionEventFactory,
    UserFactory,
    WatchFactory,
    three_tier_chain,
    user_with,
)

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]

MOST_QUERIES = 12
# Rows without a list: the search index and encrypted bytes, answers kept for a repeated request of
# the API, and the budgets that the page Costs sets.
WITHOUT_A_LIST = {
    *(BudgetLimit, IdempotentRequest),
    *(AccountSeen, FileContent, Manifest, RunText, SearchProgress, SearchText, TranscriptChunk),
}
LISTED = sorted(model._meta.label_lower for model in admin.site._registry)


def add_rows(number: int) -> None:
    now = timezone.now()
    session = three_tier_chain()[1]
    SessionEventFactory(session=session, sequence=1)
    ChangeFactory(session=session)
    ApprovalFactory(of_a_command=True, decided_by=UserFactory())
    incident = IncidentFactory(owner=UserFactory())
    incident.events.create(kind="opened", by=UserFactory())
    NotificationFactory(watch=WatchFactory())
    MessageFactory()
    SandboxProofFactory()
    RemedyFactory()
    RemedyRunFactory()
    user_with("operator", username=f"person-of-{number}")
    Conversation.objects.create(session_id=f"a-{number}", in_use_by=session)
    Transcript.objects.create(session_id=f"a-{number}")
    DailyVerdict.objects.create(day=now.date(), verdict=f"v{number}", count=1)
    TraceExport.objects.create(cycle=session.cycle)
    MetricTotal.objects.create(name="alerts", labels=f'["am", "{number}"]')
    BudgetNotice.objects.create(budget=f"watch:{number}", period=now.date(), percent=80)
    PauseSwitch.objects.get_or_create(pk=number, defaults={"changed_by": UserFactory()})
    RateLimit.objects.get_or_create(pk=number, defaults={"lifted_by": UserFactory()})
    WorkerHeartbeat.objects.create(host=f"lab-{number}", pid=1)
    LoginFailure.objects.create(username="ada")
    AppliedDeclaration.objects.create(kind="watch", name=f"w-{number}", file="/etc/w.toml")
    OrmQ.objects.create(payload=SignedPackage.dumps({"id": "1", "name": "x", "func": "f"}))
    Schedule.objects.create(name=f"s-{number}", func="f")
    for success in (True, False):
        facts = {"name": "t", "func": "f", "started": now, "stopped": now}
        Task.objects.create(id=f"t-{number}-{success}", success=success, **facts)
    LogEntry.objects.create(
        user=UserFactory(),
        content_type=ContentType.objects.get_for_model(Session),
        object_id=session.pk,
        action_flag=2,
    )


def address_of(label: str) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_changelist")


def queries_of(client, url: str) -> int:
    with CaptureQueriesContext(connection) as queries:
        assert client.get(url).status_code == 200
    return len(queries)


def test_every_model_of_ours_has_a_list():
    ours = set(apps.get_app_config("sessions_app").get_models())

    assert ours - set(admin.site._registry) == WITHOUT_A_LIST


def test_lists_need_as_many_queries_for_many_rows_as_for_few(operator_client):
    add_rows(1)
    client = Client()
    client.force_login(user_with("admin"))  # its rights are looked up, a superuser's are not
    ContentType.objects.clear_cache()
    few = {}
    for label in LISTED:
        operator_client.get(address_of(label))
        few[label] = queries_of(operator_client, address_of(label))
    for number in range(2, 6):
        add_rows(number)
    many = {label: queries_of(operator_client, address_of(label)) for label in LISTED}
    with_a_role = {label: queries_of(client, address_of(label)) for label in LISTED}

    assert many == few
    assert {label: n for label, n in many.items() if n > MOST_QUERIES} == {}
    assert {label: n for label, n in with_a_role.items() if n > MOST_QUERIES} == {}


def test_lists_can_be_searched_and_filtered():
    """Every model but the queue, whose rows are packed."""
    shown = {label: admin.site._registry[apps.get_model(label)] for label in LISTED}
    del shown["django_q.ormq"]

    assert [label for label, list in shown.items() if not list.search_fields] == []
    assert [label for label, list in shown.items() if not list.list_filter] == []


def test_the_index_shows_the_inbox(operator_client):
    incident = IncidentFactory(title="web answers 502")
    approval = ApprovalFactory(of_a_command=True)

    page = operator_client.get(reverse("admin:index")).content.decode()

    assert f'<a href="{incident.get_absolute_url()}">web answers 502</a>' in page
    assert f'<a href="{approval.get_absolute_url()}">docker restart web</a>' in page


def test_the_index_groups_models_by_task_and_folds_the_others(operator_client):
    response = operator_client.get(reverse("admin:index"))

    named = {name for names in ADMIN_GROUPS.values() for name in names}
    groups = [app["name"] for app in response.context["app_list"]]
    assert groups == [title for title in ADMIN_GROUPS if title in groups]
    assert "What happened" in groups
    shown = {
        model["object_name"] for app in response.context["app_list"] for model in app["models"]
    }
    folded = {
        model["object_name"] for app in response.context["internals"] for model in app["models"]
    }
    assert shown <= named
    assert folded
    assert not folded & named
    assert {model.__name__ for model in admin.site._registry} >= named


def test_times_are_short_with_a_time_zone(operator_client):
    cycle = three_tier_chain()[0].cycle

    page = operator_client.get(address_of("sessions_app.cycle")).content.decode()

    assert f"{cycle.created_at:%Y-%m-%d %H:%M} UTC" in page


def test_an_empty_inbox_says_so(operator_client):
    page = operator_client.get(reverse("admin:index")).content.decode()

    assert "Nothing waits for a person" in page


def test_a_cycle_shows_its_chain(operator_client):
    first, second, third = three_tier_chain()
    url = reverse("admin:sessions_app_cycle_change", args=[first.cycle.pk])

    page = operator_client.get(url).content.decode()

    for session in (first, second, third):
        assert f'<a href="{session.get_absolute_url()}">#{session.pk}</a>' in page
    assert "$2.00" in page


def test_a_long_chain_needs_as_many_queries_as_a_short_one(operator_client):
    short, long = three_tier_chain()[0].cycle, three_tier_chain()[0].cycle
    for _ in range(4):
        three_tier_chain(cycle=long)
    urls = [reverse("admin:sessions_app_cycle_change", args=[one.pk]) for one in (short, long)]
    operator_client.get(urls[0])

    assert queries_of(operator_client, urls[0]) == queries_of(operator_client, urls[1])


def test_the_pages_and_the_admin_link_to_each_other(operator_client):
    session = three_tier_chain()[1]
    watch = Watch.objects.get(pk=session.cycle.watch_id)
    in_admin = reverse("admin:sessions_app_session_change", args=[session.pk])
    watch_in_admin = reverse("admin:sessions_app_watch_change", args=[watch.pk])
    autonomy = reverse("web:autonomy", args=[watch.pk])

    page = operator_client.get(session.get_absolute_url()).content.decode()

    assert f'<a href="{in_admin}">The same in admin</a>' in page
    assert "View on site" in operator_client.get(in_admin).content.decode()
    assert f'href="{watch_in_admin}"' in operator_client.get(autonomy).content.decode()
    assert f'href="{autonomy}"' in operator_client.get(watch_in_admin).content.decode()


def test_admin_link_is_hidden_without_permission(client):
    session = three_tier_chain()[1]
    client.force_login(user_with("viewer"))

    assert "The same in admin" not in client.get(session.get_absolute_url()).content.decode()
