"""A hundred watches due in the same minute: in order, within limits, each once."""

from __future__ import annotations

from collections import Counter

import pytest
from django_q.models import OrmQ

from escalation import queue, tasks
from escalation.queue import is_turn_of, running_tiers, start_waiting, wait_for_slot
from escalation.run.runner import admit
from sessions_app.models import Session, Watch
from tests.factories import SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
LIMIT = 4


class Workers:
    """What the hosts' workers do with the queue, without a CLI: claim, end, call the next."""

    def __init__(self) -> None:
        self.started: list[Session] = []
        self.most_at_once = 0

    def take_all(self) -> None:
        """Every task that lies there, by any host, in the order of the queue."""
        for row in OrmQ.objects.order_by("pk"):
            (number,) = row.task["args"]
            row.delete()
            self._try(Session.objects.select_related("cycle__watch").get(pk=number))

    def end_one(self) -> None:
        oldest = Session.objects.filter(status=Session.Status.RUNNING).earliest("started_at")
        oldest.finish(Session.Status.COMPLETED, "done")
        start_waiting()

    def _try(self, session: Session) -> None:
        if not is_turn_of(session):
            wait_for_slot(session)
            start_waiting()
        elif not admit(session):
            self.started.append(session)
            self.most_at_once = max(self.most_at_once, len(running_tiers()))


def work_until_empty(workers: Workers, after_each=lambda: None) -> None:
    workers.take_all()
    while running_tiers():
        workers.end_one()
        after_each()
        workers.take_all()


@pytest.fixture
def due(settings, workdir) -> list[Watch]:
    settings.CLAUDEOPS_MAX_SESSIONS = LIMIT
    watches = [WatchFactory(enabled=True, workdir=str(workdir)) for _ in range(100)]
    for watch in watches:
        assert "was started" in tasks.start_scheduled_cycle(watch.pk)
    return watches


def test_cycles_start_in_order_and_within_the_limit(due):
    workers = Workers()

    work_until_empty(workers)

    assert [session.cycle.watch for session in workers.started] == due
    assert workers.most_at_once == LIMIT


def test_second_cycles_wait_until_every_watch_had_its_first(due):
    """The first watch escalates at once, and has no more of the places than the others."""
    workers, first = Workers(), due[0]
    followed: list[Session] = []

    def escalate_the_first() -> None:
        if not followed:
            cycle = first.cycles.get()
            higher = SessionFactory(
                cycle=cycle, tier=2, status=Session.Status.QUEUED, started_at=None, finished_at=None
            )
            followed.append(higher)
            queue.enqueue_session(higher)

    work_until_empty(workers, escalate_the_first)

    assert workers.started[-1] == followed[0]
    assert Counter(session.cycle.watch for session in workers.started[:100]) == Counter(due)
