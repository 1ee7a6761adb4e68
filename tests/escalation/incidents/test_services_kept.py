"""The state of each service, stored when a cycle ends and checked by computing it again."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps
from django.core.management import call_command

from escalation.report import Report
from escalation.supervisor.conclude import finish_cycle
from sessions_app.history.services import differing_services, rebuild_services
from sessions_app.models import Cycle, Incident, ServiceState, Watch
from tests.escalation.rows import a_report
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db
KEPT = ("watch_id", "service", "name", "status", "place", "detail", "since", "cycle_id", "marks")


def ended_cycle(watch: Watch | None, *reports: Report, **facts: object) -> Cycle:
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


def test_a_cycle_stores_the_state_of_each_service(watch):
    cycle = ended_cycle(watch, services(("Web", "down"), ("db", "healthy")))

    web = ServiceState.objects.get(service="web")
    assert (web.watch, web.name, web.status, web.cycle) == (watch, "Web", "down", cycle)
    assert [status for _cycle, status, _at in web.marks] == ["down"]
    assert ServiceState.objects.get(service="db").status == "healthy"


def test_the_last_report_of_a_chain_counts(watch):
    ended_cycle(watch, services(("web", "down")), services(("web", "healthy")))

    assert ServiceState.objects.get().status == "healthy"


def test_a_service_is_down_since_the_first_cycle_that_reported_it(watch):
    ended_cycle(watch, services(("web", "healthy")))
    first = ended_cycle(watch, services(("web", "down")))
    ended_cycle(watch, services(("web", "down")))

    web = ServiceState.objects.get()
    assert web.since == first.created_at.replace(microsecond=0)
    assert [status for _cycle, status, _at in web.marks] == ["healthy", "down", "down"]


def test_a_service_that_a_cycle_does_not_mention_keeps_its_state(watch):
    first = ended_cycle(watch, services(("web", "down"), ("db", "healthy")))
    ended_cycle(watch, services(("db", "healthy")))

    web = ServiceState.objects.get(service="web")
    assert (web.status, web.cycle) == ("down", first)


def test_the_same_name_in_two_watches_is_two_services(watch):
    ended_cycle(watch, services(("web", "down")))
    ended_cycle(WatchFactory(), services(("web", "healthy")))

    assert ServiceState.objects.filter(service="web").count() == 2


def test_a_drill_stores_no_service_state():
    ended_cycle(None, services(("web", "down")), drill="disk-full")

    assert not ServiceState.objects.exists()


def test_removing_a_watch_removes_its_services_and_keeps_its_cycles(watch):
    ended_cycle(watch, services(("web", "down")))
    watch.delete()

    assert not ServiceState.objects.exists()
    assert Cycle.objects.count() == 1


def test_stored_states_equal_the_reports(watch):
    ended_cycle(watch, services(("web", "down"), ("web", "healthy")))
    ended_cycle(watch, services(("Web.service", "degraded")), services(("db", "unknown")))
    ended_cycle(WatchFactory(), services(("web", "healthy")))
    kept = list(ServiceState.objects.order_by("watch", "service").values(*KEPT))

    assert list(differing_services()) == []
    rebuild_services()

    assert list(ServiceState.objects.order_by("watch", "service").values(*KEPT)) == kept


@pytest.mark.parametrize(
    ("purpose", "status"),
    [("plan", "down"), ("follow_up", "down"), ("fork", "healthy"), ("retry", "healthy")],
)
def test_stored_and_rebuilt_states_use_the_same_sessions(watch, purpose, status):
    cycle = CycleFactory(running=True, watch=watch)
    SessionFactory(cycle=cycle, report=services(("web", "down")), messages=4)
    SessionFactory(cycle=cycle, report=services(("web", "healthy")), messages=4, purpose=purpose)
    finish_cycle(cycle, Cycle.Outcome.NEEDS_PERSON, "it ended")
    kept = list(ServiceState.objects.values(*KEPT))

    assert ServiceState.objects.get().status == status
    assert list(differing_services()) == []
    rebuild_services()

    assert list(ServiceState.objects.values(*KEPT)) == kept


def test_a_wrong_state_is_found_and_rebuilt(watch, capsys):
    ended_cycle(watch, services(("web", "down")))
    ServiceState.objects.update(marks=[[1, "healthy", 0]])

    with pytest.raises(SystemExit):
        call_command("rollups", "--check")
    assert "web: stored healthy" in capsys.readouterr().err

    call_command("rollups", "--rebuild")
    assert ServiceState.objects.get().marks[0][1] == "down"


def test_the_migration_reads_earlier_reports(watch):
    """Its function alone: a schema that goes back and forth would be every other test's as well."""
    ended_cycle(watch, services(("Web", "down"), ("db", "healthy")))
    ended_cycle(watch, services(("web", "healthy")))
    kept = list(ServiceState.objects.order_by("service").values(*KEPT))
    ServiceState.objects.all().delete()

    import_module("sessions_app.migrations.0014_services").read_reports(apps, None)

    assert list(ServiceState.objects.order_by("service").values(*KEPT)) == kept


def test_the_migration_gives_one_name_to_rows_of_the_same_service(watch):
    ended_cycle(watch, services(("web", "down")))
    last = ended_cycle(watch, services(("web", "healthy"), ("db", "healthy")))
    merged = ServiceState.objects.get(service="web")
    before, after = merged.marks
    ServiceState.objects.filter(pk=merged.pk).update(marks=[before], seen_at=merged.since)
    split = ServiceStateFactory(watch=watch, service="/web", name="/web", marks=[after], cycle=last)
    IncidentFactory(watch=watch, cause="/web", severity=3, times_seen=2).cycles.add(last)
    kept = Incident.objects.get(cause="web")
    old = IncidentFactory(watch=watch, cause="/db", state="resolved")

    migration = import_module("sessions_app.migrations.0029_service_names")
    migration.normalise(apps, None)

    state = ServiceState.objects.get(service="web")
    assert (state.pk, state.name, state.status) == (split.pk, "web", "healthy")
    assert state.marks == [before, after]
    incident = Incident.objects.get(cause="web", state="open", watch=watch)
    assert (incident.pk, incident.severity, incident.times_seen) == (kept.pk, 3, 3)
    assert last in incident.cycles.all()
    old.refresh_from_db()
    assert old.cause == "db"
