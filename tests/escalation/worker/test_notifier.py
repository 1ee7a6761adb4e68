"""The postman: beside everything else, with targets that do not wait for each other."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import DatabaseError
from django.utils import timezone

from escalation.host import lookout, postman
from escalation.host.postman import Postman
from escalation.word import courier, outbox
from escalation.word.courier import Answer
from sessions_app.models import Happening, Message, WorkerBeat
from tests.escalation.word.post_offices import webhook
from tests.factories import HappeningFactory, TargetFactory

pytestmark = pytest.mark.django_db(transaction=True)


def wait_until(condition, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def round_of():
    """One round, and all that it sent."""
    at_work = Postman()

    def go() -> None:
        at_work.look(rarely=True)
        at_work.finish(60)

    return go


def test_what_happened_reaches_the_target(round_of):
    with webhook() as hook:
        TargetFactory(address=hook.address)
        HappeningFactory(title="web is down")

        round_of()

        assert [got["title"] for got in hook.got] == [
            f"{Happening.objects.get().watch}: web is down"
        ]
        assert Message.objects.get().state == Message.State.SENT


def test_a_target_that_hangs_holds_up_no_other(monkeypatch):
    hanging, released = threading.Event(), threading.Event()
    sent: list[str] = []

    def deliver(address: str, **word: str) -> Answer:
        if "hangs" in address:
            hanging.set()
            released.wait(30)
        sent.append(address)
        return Answer(True, "")

    monkeypatch.setattr(courier, "deliver", deliver)
    at_work = Postman()
    TargetFactory(name="a hanging one", address="json://hangs.example.org/")
    TargetFactory(name="one that works", address="json://works.example.org/")
    delivered = Message.objects.filter(state=Message.State.SENT)
    for expected in (1, 2, 3):
        HappeningFactory()
        at_work.look()
        hanging.wait(10)
        wait_until(lambda expected=expected: delivered.count() == expected)

    assert sent == ["json://works.example.org/"] * 3
    released.set()
    at_work.finish(10)
    assert sent.count("json://hangs.example.org/") == 3


def test_a_database_that_is_away_is_logged_and_tried_again(monkeypatch, caplog, round_of):
    def fail() -> int:
        raise DatabaseError("gone")

    monkeypatch.setattr(outbox, "pass_on", fail)

    round_of()

    assert "it is tried again" in caplog.text


def test_it_works_until_it_is_told_to_stop(monkeypatch):
    monkeypatch.setattr(postman, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(courier, "deliver", lambda address, **word: Answer(True, ""))
    TargetFactory()
    stop = threading.Event()
    working = threading.Thread(target=Postman().work_until, args=(stop,))
    working.start()

    HappeningFactory()
    wait_until(lambda: Message.objects.filter(state=Message.State.SENT).exists())
    stop.set()
    working.join(10)

    assert not working.is_alive()


def silent_worker() -> WorkerBeat:
    return WorkerBeat.objects.create(
        host="lab", pid=1, seen_at=timezone.now() - 2 * WorkerBeat.SILENCE
    )


def test_the_web_server_notices_that_no_worker_lives_and_sends_by_itself():
    silent_worker()
    with webhook() as hook:
        TargetFactory(address=hook.address)
        at_work = Postman()

        lookout.look(at_work)
        lookout.look(at_work)
        at_work.finish(60)

        assert [got["title"] for got in hook.got] == ["The worker on lab is silent"]


def test_while_a_worker_lives_the_web_server_sends_nothing(monkeypatch):
    WorkerBeat.objects.create(host="lab", pid=1)
    TargetFactory()
    HappeningFactory()

    lookout.look(Postman())

    assert outbox.something_waits()


def test_a_look_that_fails_is_logged(monkeypatch, caplog):
    def fail() -> int:
        raise DatabaseError("gone")

    monkeypatch.setattr(lookout, "tell_of_silent_workers", fail)

    lookout.look(Postman())

    assert "it is tried again" in caplog.text


def test_a_storm_against_a_broken_service_costs_few_tries(round_of):
    with webhook() as hook:
        hook.status = 500
        TargetFactory(address=hook.address)
        HappeningFactory.create_batch(30)

        round_of()

        assert len(hook.got) == 1
