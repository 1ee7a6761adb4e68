"""The notifier: sends beside everything else, and no channel waits for another."""

from __future__ import annotations

import threading
import time

import pytest
from django.db import DatabaseError
from django.utils import timezone

from escalation.notifications import outbox, sending
from escalation.notifications.sending import DeliveryResult
from escalation.worker import notifier, web_server
from escalation.worker.notifier import Notifier
from sessions_app.models import Message, Notification, WorkerHeartbeat
from tests.escalation.notifications.post_offices import webhook
from tests.factories import ChannelFactory, NotificationFactory

pytestmark = pytest.mark.django_db(transaction=True)


def wait_until(condition, seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


@pytest.fixture
def send_all():
    """Function that routes and sends everything that is due."""
    at_work = Notifier()

    def go() -> None:
        at_work.look(rarely=True)
        at_work.finish(60)

    return go


def test_a_notification_reaches_its_channel(send_all):
    with webhook() as hook:
        ChannelFactory(address=hook.address)
        NotificationFactory(title="web is down")

        send_all()

        assert [got["title"] for got in hook.got] == [
            f"{Notification.objects.get().watch}: web is down"
        ]
        assert Message.objects.get().state == Message.State.SENT


def test_a_channel_that_hangs_delays_no_other(monkeypatch):
    hanging, released = threading.Event(), threading.Event()
    sent: list[str] = []

    def deliver(address: str, **word: str) -> DeliveryResult:
        if "hangs" in address:
            hanging.set()
            released.wait(30)
        sent.append(address)
        return DeliveryResult(True, "")

    monkeypatch.setattr(sending, "deliver", deliver)
    at_work = Notifier()
    ChannelFactory(name="a hanging one", address="json://hangs.example.org/")
    ChannelFactory(name="one that works", address="json://works.example.org/")
    delivered = Message.objects.filter(state=Message.State.SENT)
    for expected in (1, 2, 3):
        NotificationFactory()
        at_work.look()
        hanging.wait(10)
        wait_until(lambda expected=expected: delivered.count() == expected)

    assert sent == ["json://works.example.org/"] * 3
    released.set()
    at_work.finish(10)
    assert sent.count("json://hangs.example.org/") == 3


def test_an_unavailable_database_is_logged_and_retried(monkeypatch, caplog, send_all):
    def fail() -> int:
        raise DatabaseError("gone")

    monkeypatch.setattr(outbox, "pass_on", fail)

    send_all()

    assert "retrying" in caplog.text


def test_the_notifier_runs_until_it_is_stopped(monkeypatch):
    monkeypatch.setattr(notifier, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(sending, "deliver", lambda address, **word: DeliveryResult(True, ""))
    ChannelFactory()
    stop = threading.Event()
    working = threading.Thread(target=Notifier().work_until, args=(stop,))
    working.start()

    NotificationFactory()
    wait_until(lambda: Message.objects.filter(state=Message.State.SENT).exists())
    stop.set()
    working.join(10)

    assert not working.is_alive()


def silent_worker() -> WorkerHeartbeat:
    return WorkerHeartbeat.objects.create(
        host="lab", pid=1, seen_at=timezone.now() - 2 * WorkerHeartbeat.SILENCE
    )


def test_the_web_server_sends_notifications_without_a_live_worker():
    silent_worker()
    with webhook() as hook:
        ChannelFactory(address=hook.address)
        at_work = Notifier()

        web_server.look(at_work)
        web_server.look(at_work)
        at_work.finish(60)

        assert [got["title"] for got in hook.got] == ["The worker on lab is silent"]


def test_the_web_server_sends_nothing_while_a_worker_is_live(monkeypatch):
    WorkerHeartbeat.objects.create(host="lab", pid=1)
    ChannelFactory()
    NotificationFactory()

    web_server.look(Notifier())

    assert outbox.something_waits()


def test_a_failed_check_is_logged(monkeypatch, caplog):
    def fail() -> int:
        raise DatabaseError("gone")

    monkeypatch.setattr(notifier, "tell_of_silent_workers", fail)

    web_server.look(Notifier())

    assert "retrying" in caplog.text


def test_a_burst_to_a_failing_channel_causes_one_attempt(send_all):
    with webhook() as hook:
        hook.status = 500
        ChannelFactory(address=hook.address)
        NotificationFactory.create_batch(30)

        send_all()

        assert len(hook.got) == 1
