"""How each service is, kept where the round ends and proved by recomputing."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.core.management import call_command

from escalation.report import Report
from escalation.supervisor.conclude import finish_cycle
from sessions_app.history.services import differing_services, rebuild_services
from sessions_app.models import Cycle, ServiceState, Watch
from tests.escalation.rows import a_report
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
KEPT = ("watch_id", "service", "name", "status", "place", "detail", "since", "cycle_id", "marks")


def a_round(watch: Watch | None, *reports: Report, **facts: object) -> Cycle:
    cycle: Cycle = CycleFactory(running=True, watch=watch, **facts)
    for tier, report in enumerate(reports, start=1):
        SessionFactory(cycle=cycle, tier=tier, report=report, messages=4)
    finish_cycle(cycle, Cycle.Outcome.HEALTHY, "it ended")
    return cycle


def services(*pairs: tuple[str, str]) -> Report:
    return a_report(services=pairs)


@pytest.fixture
def watch() -> Watch:
    made: Watch = WatchFactory(name="shop")
    return made


def test_a_round_says_how_each_service_is(watch):
    cycle = a_round(watch, services(("Web", "down"), ("db", "healthy")))

    web = ServiceState.objects.get(service="web")
    assert (web.watch, web.name, web.status, web.cycle) == (watch, "Web", "down", cycle)
    assert [status for _cycle, status, _at in web.marks] == ["down"]
    assert ServiceState.objects.get(service="db").status == "healthy"


def test_the_last_word_of_a_chain_counts(watch):
    a_round(watch, services(("web", "down")), services(("web", "healthy")))

    assert ServiceState.objects.get().status == "healthy"


def test_it_is_down_since_the_first_round_that_said_so(watch):
    a_round(watch, services(("web", "healthy")))
    first = a_round(watch, services(("web", "down")))
    a_round(watch, services(("web", "down")))

    web = ServiceState.objects.get()
    assert web.since == first.created_at.replace(microsecond=0)
    assert [status for _cycle, status, _at in web.marks] == ["healthy", "down", "down"]


def test_a_service_that_a_round_does_not_name_keeps_what_was_said(watch):
    first = a_round(watch, services(("web", "down"), ("db", "healthy")))
    a_round(watch, services(("db", "healthy")))

    web = ServiceState.objects.get(service="web")
    assert (web.status, web.cycle) == ("down", first)


def test_the_same_name_in_two_watches_is_two_services(watch):
    a_round(watch, services(("web", "down")))
    a_round(WatchFactory(), services(("web", "healthy")))

    assert ServiceState.objects.filter(service="web").count() == 2


def test_a_drill_says_nothing_of_a_service():
    a_round(None, services(("web", "down")), drill="disk-full")

    assert not ServiceState.objects.exists()


def test_services_go_with_their_watch_and_the_rounds_stay(watch):
    a_round(watch, services(("web", "down")))
    watch.delete()

    assert not ServiceState.objects.exists()
    assert Cycle.objects.count() == 1


def test_what_is_kept_is_what_the_reports_say(watch):
    a_round(watch, services(("web", "down"), ("web", "healthy")))
    a_round(watch, services(("Web.service", "degraded")), services(("db", "unknown")))
    a_round(WatchFactory(), services(("web", "healthy")))
    kept = list(ServiceState.objects.order_by("watch", "service").values(*KEPT))

    assert list(differing_services()) == []
    rebuild_services()

    assert list(ServiceState.objects.order_by("watch", "service").values(*KEPT)) == kept


@pytest.mark.parametrize(
    ("purpose", "status"),
    [("plan", "down"), ("follow_up", "down"), ("fork", "healthy"), ("retry", "healthy")],
)
def test_what_is_kept_and_what_is_recomputed_count_the_same_sessions(watch, purpose, status):
    cycle = CycleFactory(running=True, watch=watch)
    SessionFactory(cycle=cycle, report=services(("web", "down")), messages=4)
    SessionFactory(cycle=cycle, report=services(("web", "healthy")), messages=4, purpose=purpose)
    finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, "it ended")
    kept = list(ServiceState.objects.values(*KEPT))

    assert ServiceState.objects.get().status == status
    assert list(differing_services()) == []
    rebuild_services()

    assert list(ServiceState.objects.values(*KEPT)) == kept


def test_a_state_that_is_not_what_was_reported_is_found_and_mended(watch, capsys):
    a_round(watch, services(("web", "down")))
    ServiceState.objects.update(marks=[[1, "healthy", 0]])

    with pytest.raises(SystemExit):
        call_command("rollups", "--check")
    assert "web: stored healthy" in capsys.readouterr().err

    call_command("rollups", "--rebuild")
    assert ServiceState.objects.get().marks[0][1] == "down"


def test_what_was_reported_before_is_read_by_the_migration(watch):
    """Its function alone: a schema that goes back and forth would be every other test's as well."""
    a_round(watch, services(("Web", "down"), ("db", "healthy")))
    a_round(watch, services(("web", "healthy")))
    kept = list(ServiceState.objects.order_by("service").values(*KEPT))
    ServiceState.objects.all().delete()

    import_module("sessions_app.migrations.0014_services").read_reports(apps, None)

    assert list(ServiceState.objects.order_by("service").values(*KEPT)) == kept
