"""A watch bound to hosts: which host takes its tasks, and no other session waits for it."""

from __future__ import annotations

import socket
from datetime import timedelta

import pytest
from django.utils import timezone
from django_q.models import OrmQ

from escalation import queue, tasks
from escalation.queue import is_turn_of, start_waiting
from escalation.queue.broker import WakingBroker
from escalation.run.runner import admit, objection
from escalation.worker.housekeeping import note_unschedulable
from sessions_app.models import Incident, Session, WorkerHeartbeat
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
HERE = socket.gethostname().lower()


def queued(hosts: str = "", **facts) -> Session:
    session: Session = SessionFactory(
        cycle=CycleFactory(running=True, watch=WatchFactory(hosts=hosts)),
        status=Session.Status.QUEUED,
        started_at=None,
        finished_at=None,
        **facts,
    )
    return session


def waiting(hosts: str = "", **facts) -> Session:
    return queued(hosts, waiting_since=timezone.now(), **facts)


def live(host: str, labels: str = "", workers: int = 1) -> WorkerHeartbeat:
    return WorkerHeartbeat.objects.create(host=host, pid=1, labels=labels, workers=workers)


def taken_here() -> list[int]:
    """All that the broker of this host finds."""
    broker, found = WakingBroker("claudeops"), []
    while broker.dequeue():
        row = OrmQ.objects.filter(lock__gt=timezone.now()).order_by("-lock").first()
        assert row is not None
        found.append(row.task["args"][0])
    return found


def handed_over() -> list[int]:
    return [row.task["args"][0] for row in OrmQ.objects.order_by("pk")]


def test_a_host_takes_sessions_bound_to_its_labels_or_name_or_to_no_host(settings):
    settings.CLAUDEOPS_HOST_LABELS = "lab, rack-2"
    free, labelled, named = queued(), queued("lab nas"), queued(HERE)
    for session in (free, labelled, named):
        queue.enqueue_session(session)

    assert taken_here() == [free.pk, labelled.pk, named.pk]


def test_a_host_does_not_take_sessions_bound_to_others(settings):
    settings.CLAUDEOPS_HOST_LABELS = "lab"
    elsewhere, free = queued("nas"), queued()
    # A label that only begins like ours is another.
    beside = queued("lab-2")
    for session in (elsewhere, beside, free):
        queue.enqueue_session(session)

    assert taken_here() == [free.pk]


def test_a_task_on_the_wrong_host_is_moved_to_the_right_one():
    live("nas", "nas")
    session = queued()
    queue.enqueue_session(session)
    watch = session.cycle.watch
    assert watch is not None
    watch.hosts = "nas"
    watch.save()
    OrmQ.objects.all().delete()

    refused = admit(session)
    start_waiting()

    assert "only on nas" in refused
    assert handed_over() == [session.pk]
    assert taken_here() == []


def test_a_session_bound_to_a_missing_host_does_not_block_others(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    _bound, free = waiting("gone"), waiting()

    assert is_turn_of(free)
    start_waiting()

    assert handed_over() == [free.pk]


def test_a_session_bound_to_a_busy_host_does_not_block_others(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 2
    live("nas", workers=1)
    SessionFactory(running=True, host="nas")
    _bound, free = waiting("nas"), waiting()

    start_waiting()

    assert handed_over() == [free.pk]


def test_a_session_bound_to_a_free_host_is_next(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 1
    live("box-7", "box-7 nas")
    bound, _free = waiting("nas"), waiting()

    start_waiting()

    assert handed_over() == [bound.pk]


def test_the_limit_counts_sessions_of_every_host(settings):
    settings.CLAUDEOPS_MAX_SESSIONS = 2
    SessionFactory(running=True, host="nas")
    SessionFactory(running=True, host="lab")

    assert "2 sessions are running" in objection(queued())


def test_the_limit_of_tier_3_counts_sessions_of_every_host():
    SessionFactory(running=True, tier=3, host="elsewhere")

    assert "1 Tier 3 sessions are running" in objection(queued(tier=3))


def long_queued(hosts: str) -> Session:
    session = queued(hosts)
    Session.objects.update(created_at=timezone.now() - timedelta(minutes=3))
    return session


def test_a_session_without_a_matching_live_host_opens_an_incident():
    live("lab")
    session = long_queued("nas")

    tasks.recover_orphans()

    incident = Incident.objects.get()
    assert incident.title == "It could not run: no host with its label is live"
    assert incident.watch == session.cycle.watch


@pytest.mark.parametrize(("hosts", "labels"), [("nas", "nas"), ("", "")])
def test_a_session_with_a_matching_live_host_opens_no_incident(hosts, labels):
    live("box-7", labels)
    long_queued(hosts)

    assert note_unschedulable() == 0


def test_no_incident_is_opened_while_a_host_restarts():
    queued("nas")

    assert note_unschedulable() == 0
