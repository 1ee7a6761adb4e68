from __future__ import annotations

import pytest

from escalation.errors import CycleActive
from escalation.queue import enqueue_with
from escalation.supervisor import cycles
from sessions_app.models import Cycle, Session, Watch
from tests.factories import CycleFactory, UserFactory, WatchFactory

pytestmark = pytest.mark.django_db


def start(watch: Watch, **options) -> Cycle:
    options = {
        "trigger": Cycle.Trigger.MANUAL,
        **options,
    }
    return cycles.start(watch, **options)


def test_it_creates_a_cycle_and_its_first_session():
    watch = WatchFactory(workdir="/srv/shop")

    session = start(watch).sessions.get()

    assert (session.tier, session.model, session.status) == (1, "haiku", Session.Status.QUEUED)
    assert (session.workdir, session.parent_session) == ("/srv/shop", None)
    assert session.continued_by == Session.ContinuedBy.FRESH
    assert session.continued_why


def test_it_enqueues_the_first_session():
    handed: list[Session] = []

    with enqueue_with(handed.append):
        cycle = start(WatchFactory())

    assert handed == [cycle.sessions.get()]


def test_it_copies_the_settings_of_the_watch():
    watch = WatchFactory(workdir="/srv", instructions="Mind db.", max_tier=2, dry_run=True)

    cycle = start(watch)
    Watch.objects.filter(pk=watch.pk).update(workdir="/x", instructions="", max_tier=3)

    cycle.refresh_from_db()
    assert (cycle.workdir, cycle.instructions) == ("/srv", "Mind db.")
    assert (cycle.max_tier, cycle.dry_run) == (2, True)


def test_it_stores_the_requester_and_the_request():
    person = UserFactory()

    cycle = start(WatchFactory(), requested_by=person, prompt="Is db slow?", tier=2)

    assert (cycle.requested_by, cycle.prompt, cycle.first_tier) == (person, "Is db slow?", 2)
    assert cycle.sessions.get().model == "sonnet"


@pytest.mark.parametrize("state", Cycle.ACTIVE_STATES)
def test_a_second_cycle_of_a_watch_is_refused(state):
    active = CycleFactory(running=True, state=state)

    with pytest.raises(CycleActive) as refusal:
        start(active.watch)

    assert str(refusal.value) == (
        f"Cycle {active.pk} of {active.watch.name} is still {state.label}; wait for it to finish."
    )
    assert (Cycle.objects.count(), Session.objects.count()) == (1, 0)


def test_a_watch_whose_cycle_has_ended_gets_the_next_one():
    watch = CycleFactory().watch

    assert start(watch).pk


def test_an_active_cycle_does_not_block_another_watch():
    CycleFactory(running=True)

    assert start(WatchFactory()).pk


def test_drills_do_not_block_each_other():
    CycleFactory(running=True, drilled=True)

    assert CycleFactory(running=True, drilled=True).pk


def test_when_enqueueing_fails_there_is_no_cycle():
    def refuse(session: Session) -> None:
        raise RuntimeError("the queue is gone")

    with enqueue_with(refuse), pytest.raises(RuntimeError):
        start(WatchFactory())

    assert (Cycle.objects.count(), Session.objects.count()) == (0, 0)
