"""Concurrent processes with the same finding open one incident and resolve it once."""

from __future__ import annotations

from tests.escalation.contenders import CONTENDERS


def test_concurrent_findings_open_one_incident_for_a_cause(contest):
    _answers, (incidents, seen, told) = contest.race(
        setup="""
from escalation.errors import WhyNot
from escalation.supervisor.conclude import finish_cycle
sessions = [queued(f"watch {n}") for n in range(4)]
for session in sessions:
    session.finish("failed", "no CLI")
""",
        before="cycle = Cycle.objects.get(pk=sessions[number].cycle_id)",
        attempt="""
finish_cycle(cycle, "could_not_run", "no CLI", WhyNot.CLI)
answer = cycle.outcome
""",
        look="""
found = Incident.objects.filter(cause="cli")
told = Notification.objects.filter(incident__cause="cli").count()
seen = [found.count(), found.get().times_seen, told]
""",
    )

    assert (incidents, seen, told) == (1, CONTENDERS, 1)


def test_concurrent_requests_resolve_an_incident_once(contest):
    answers, (ends, told) = contest.race(
        setup="""
from escalation.errors import OperationRefused
from escalation.incidents import recorder
incident = Incident.objects.create(
    kind="problem", scope="watch:1", cause="contested", title="web is down"
)
""",
        attempt="""
try:
    recorder.resolve(incident)
    answer = "resolved"
except OperationRefused:
    answer = "too late"
""",
        look="""
ends = incident.events.filter(kind="resolved").count()
seen = [ends, Notification.objects.filter(incident=incident).count()]
""",
    )

    assert sorted(answers) == ["resolved"] + ["too late"] * (CONTENDERS - 1)
    assert (ends, told) == (1, 1)


def test_concurrent_workers_start_one_verification(contest):
    answers, (cycles, linked) = contest.race(
        setup="""
from django.utils import timezone
from escalation.supervisor.verification import verify_watch
watch = Watch.objects.create(name="fixed", workdir="/tmp")
incident = Incident.objects.create(
    watch=watch, kind="problem", scope=f"watch:{watch.pk}", cause="web", title="web is down",
    state="verifying", verify_at=timezone.now(),
)
""",
        attempt="answer = verify_watch(watch) is not None",
        look="seen = [watch.cycles.count(), incident.cycles.count()]",
    )

    assert sorted(answers) == [False] * (CONTENDERS - 1) + [True]
    assert (cycles, linked) == (1, 1)
