"""Drills never mix with earnest: no page, admin list, sum or command shows one unless asked.

One record has an earnest chain and a drill with the same parts; texts of the drill hold a mark.
"""

from __future__ import annotations

import contextlib
import io
from decimal import Decimal

import pytest
from django.contrib import admin
from django.core.management import call_command
from django.utils import timezone

from escalation.run.searchable import index_run
from sessions_app.models import Cycle, Incident, PeriodCost, Session, SessionEvent, WorkerHeartbeat
from tests.devtools.benchmarks.pages import pages
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    CycleFactory,
    IncidentFactory,
    NotificationFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
    three_tier_chain,
)
from tests.tables import each_row

pytestmark = [
    pytest.mark.django_db,
    pytest.mark.usefixtures("fake_cli"),
    pytest.mark.timeout(300),  # every page
]
MARK = "rehearsalmark"
"""In every text of the drill."""
PRICE = Decimal("7.7654321")
SWITCH = {"drill": "yes"}
TELLS_THE_FIRST_DRILL = {"/start/"}
"""The guide of a new installation tells its first drill, marked as such."""


def played() -> Session:
    """Return the last session of a drill of which everything is on record."""
    cycle = CycleFactory(watch=None, drill=MARK, outcome_reason=MARK, workdir=f"/{MARK}")
    session = three_tier_chain(cycle=cycle)[2]
    facts = {"error": MARK, "escalation_reason": MARK, "request": MARK, "cost_usd": PRICE}
    Session.objects.filter(cycle=cycle).update(
        **facts, report={"summary": MARK}, finished_at=timezone.now()
    )
    SessionEventFactory(session=session, sequence=90, said=MARK)
    incident = IncidentFactory(watch=None, drill=MARK, title=MARK, cause=MARK, detail=MARK)
    incident.cycles.add(cycle)
    incident.events.create(kind="opened", text=MARK, cycle=cycle)
    resolved = {"state": "resolved", "resolved_as": "agent", "resolved_at": timezone.now()}
    IncidentFactory(watch=None, drill=MARK, title=MARK, cause=MARK, **resolved)
    ChangeFactory(session=session, action=MARK, command=MARK, service=MARK)
    approval = ApprovalFactory(session=session, of_a_command=True, command=MARK, why=MARK)
    NotificationFactory(incident=None, approval=approval, title=MARK, text=MARK)
    NotificationFactory(incident=incident, title=MARK, text=MARK)
    SessionFactory(cycle=CycleFactory(watch=None, drill=MARK), running=True)
    for one in Session.objects.filter(cycle=cycle):
        index_run(one)
    return session


@pytest.fixture
def record() -> Session:
    """Return an earnest session; the drill beside it is newer."""
    watch = WatchFactory(name="shop")
    earnest = three_tier_chain(cycle=CycleFactory(watch=watch))[2]
    incident = IncidentFactory(watch=watch, title="web is down")
    incident.cycles.add(earnest.cycle)
    incident.events.create(kind="opened", cycle=earnest.cycle)
    ChangeFactory(session=earnest)
    SessionEventFactory(session=earnest, sequence=90, said="It answers.")
    WorkerHeartbeat.objects.create(host="here", pid=1)
    played()
    return earnest


def shows_one_thing(url: str) -> bool:
    return any(part.isdecimal() for part in url.split("?")[0].split("/"))


def places(url: str, text: str) -> list[str]:
    """Say where the mark stands, for whoever reads the failure."""
    return [f"{url}: …{part[-90:]}[mark]" for part in text.split(MARK)[:-1]][:2]


def test_no_page_and_no_list_of_the_admin_shows_a_drill_unless_asked(operator_client, record):
    urls = dict.fromkeys(page.url for page in pages() if not shows_one_thing(page.url))
    walked = [url for url in urls if url not in TELLS_THE_FIRST_DRILL and "drill" not in url]
    shown: list[str] = []
    for url in walked:
        answer = operator_client.get(url)
        if answer.status_code == 200 and not answer.streaming:
            shown += places(url, answer.content.decode())

    assert len(walked) > 60
    assert shown == [], "\n".join(shown)


def test_the_overview_tells_drills_until_the_first_earnest_cycle(operator_client):
    played()
    assert MARK in operator_client.get("/").content.decode()

    CycleFactory()
    running = CycleFactory(watch=None, drill=MARK, running=True)

    page = operator_client.get("/").content.decode()
    assert places("/", page) == []
    assert f'href="{running.get_absolute_url()}"' in page


def test_pages_of_an_earnest_cycle_show_no_drill(operator_client, record):
    incident = Incident.objects.get(drill="", cycles=record.cycle)
    watch = record.cycle.watch
    assert watch is not None
    for thing in (record, record.cycle, incident, watch):
        url = thing.get_absolute_url()
        answer = operator_client.get(url)
        assert answer.status_code == 200
        assert places(url, answer.content.decode()) == []


ADDRESSES = ("approvals", "cycles", "sessions", "changes", "events", "incidents")


@pytest.mark.parametrize("address", ADDRESSES)
def test_the_switch_shows_drills_and_nothing_else(address, operator_client, record):
    answer = operator_client.get(f"/{address}/", SWITCH)

    page = answer.content.decode()
    assert MARK in page
    assert record.get_absolute_url() not in page
    assert record.cycle.get_absolute_url() not in page


MODELS = (Cycle, Session, SessionEvent, Incident, PeriodCost)


@pytest.mark.parametrize("model", MODELS)
def test_the_switch_of_the_admin_shows_drills_and_nothing_else(model, operator_client, record):
    meta = model._meta
    url = f"/admin/{meta.app_label}/{meta.model_name}/"
    rows = operator_client.get(url).context["cl"].queryset
    drills = operator_client.get(url, SWITCH).context["cl"].queryset

    assert model in admin.site._registry
    assert rows.exists()
    assert drills.exists()
    assert rows.count() + drills.count() == model._default_manager.count()


# Lists and sums of the terminal, each without and with its switch.
COMMANDS = (
    ("cycles",),
    ("session", "list"),
    ("incident", "list"),
    ("change", "list"),
    ("approval", "list"),
    ("events",),
    ("costs", "--period", "all"),
    ("services",),
    ("search", "rehearsalmar"),
    ("status",),
    ("logs",),
    ("probe", "list"),
    ("remedy", "list"),
    ("watch", "list"),
)
WITHOUT_A_SWITCH = {"services", "probe", "remedy", "watch"}


def said(*words: str) -> str:
    out = io.StringIO()
    with contextlib.suppress(SystemExit):
        call_command(*words, stdout=out, stderr=io.StringIO())
    return out.getvalue()


@each_row(
    ("words", "as_json"), [(words, as_json) for words in COMMANDS for as_json in (False, True)]
)
def test_no_command_shows_a_drill_unless_asked(words, as_json, record):
    flags = ("--json",) if as_json else ()
    text = said(*words, *flags)
    assert MARK not in text
    assert str(PRICE)[:6] not in text
    if words[0] not in WITHOUT_A_SWITCH:
        asked = said(*words, "--drills", *flags)
        assert MARK in asked
        assert words[0] == "status" or "shop" not in asked


def test_the_digest_tells_of_no_drill(record):
    assert MARK not in said("digest")
