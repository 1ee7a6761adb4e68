"""Buttons of Telegram, asked for by long polling at a server that answers as the Bot API does."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.utils import timezone
from django_q.models import OrmQ

from escalation.notifications import outbox, sending
from escalation.supervisor import approval_answers
from escalation.supervisor.approvals import buttons_for, link_for, tell_people
from escalation.worker import telegram
from escalation.worker.telegram import TelegramThread, answers_may_come, bots, lease, poll
from sessions_app.models import (
    Approval,
    Channel,
    IncidentEvent,
    Message,
    SessionEvent,
    TelegramBot,
)
from tests.escalation.notifications.post_offices import BotApi, bot_api
from tests.factories import ApprovalFactory, ChannelFactory, IncidentFactory, user_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
State = Approval.State
CHAT = 42


@pytest.fixture
def bot() -> Iterator[BotApi]:
    with bot_api() as server:
        yield server


@pytest.fixture
def grace() -> User:
    return user_with("approver", username="grace")


@pytest.fixture
def channel(bot, grace) -> Channel:
    return ChannelFactory(
        name="phone", owner=grace, address=bot.address(CHAT), service="Telegram", least_severity=1
    )


@pytest.fixture
def approval() -> Approval:
    return ApprovalFactory(of_a_command=True)


def asked() -> float:
    [(number, chats)] = bots().items()
    return poll(number, chats, "here", seconds=0)


def token(approval: Approval, channel: Channel, answer: str = "approve") -> str:
    return buttons_for(approval, channel, "telegram")[answer]


def test_a_message_with_buttons_is_sent_and_its_answer_is_told_in_all_stories(
    bot, channel, settings, operator_client
):
    settings.CLAUDEOPS_URL = "https://ops.example.org"
    approval = ApprovalFactory()
    incident = IncidentFactory(watch=approval.session.cycle.watch)
    incident.cycles.add(approval.session.cycle)
    tell_people(approval)
    telegram_message = _sent(bot)
    [[approve, _reject]] = telegram_message["reply_markup"]["inline_keyboard"]
    assert len(approve["callback_data"].encode()) <= 64
    bot.press(approve["callback_data"], chat=CHAT)

    assert asked() == 0

    approval.refresh_from_db()
    told = "Approved by grace in Telegram at "
    assert (approval.state, approval.way) == (State.APPROVED, Approval.Way.TELEGRAM)
    assert approval.answer_text.startswith(told)
    assert OrmQ.objects.count() == 1
    assert told in IncidentEvent.objects.get(incident=incident).text
    events = SessionEvent.objects.filter(session=approval.session)
    assert any(told in str(payload) for payload in events.values_list("payload", flat=True))
    for shown in (incident, approval.session.cycle, approval.session, approval):
        page = operator_client.get(shown.get_absolute_url()).content.decode()
        assert "grace" in page, shown
        assert "in Telegram" in page, shown
    [query] = bot.said("answerCallbackQuery")
    assert query["callback_query_id"] == "query-1"
    [edit] = bot.said("editMessageText")
    assert (edit["chat_id"], edit["message_id"]) == (CHAT, 41)
    assert told in edit["text"]
    assert "reply_markup" not in edit


def _sent(bot: BotApi) -> dict[str, Any]:
    outbox.pass_on()
    for number in sending.channels_with_due(timezone.now()):
        sending.send_due(number, link_for, buttons_for)
    assert [row.error for row in Message.objects.all()] == [""]
    return bot.said("sendMessage")[0]


def test_a_rejection_has_a_reason_for_the_session(bot, channel, approval):
    bot.press(token(approval, channel, "reject"), chat=CHAT)

    asked()

    approval.refresh_from_db()
    assert (approval.state, approval.way) == (State.REJECTED, Approval.Way.TELEGRAM)
    assert approval.note == "Rejected with the button in Telegram."


def test_a_press_that_is_not_the_readers_own_changes_nothing(bot, channel, approval, grace):
    """Forged and changed data, other chats and persons, buttons of another channel or service."""
    valid = token(approval, channel)
    other = ChannelFactory(owner=grace, address=bot.address(77), service="Telegram")
    [ntfy] = [buttons_for(approval, channel, "ntfy")["approve"].split("/")[-2]]
    presses = (
        {"data": valid[:-1] + ("A" if valid[-1] != "A" else "B"), "chat": CHAT},
        {"data": valid.replace("a.", "r.", 1), "chat": CHAT},
        {"data": "", "chat": CHAT},
        {"data": "a.1.1." + "x" * 22, "chat": CHAT},
        {"data": "a.99999999999999999999.1." + "x" * 22, "chat": CHAT},
        {"data": "\u0000' OR 1=1", "chat": CHAT},
        {"data": ntfy, "chat": CHAT},
        {"data": token(approval, other), "chat": CHAT},
        {"data": valid, "chat": 77},
        {"data": valid, "chat": 4711},
        {"data": valid, "chat": CHAT, "person": 99},
        {"data": valid, "chat": -10042, "person": CHAT},
    )
    for number, press in enumerate(presses, 1):
        bot.press(**press, number=number)
    bot.updates += [
        {"update_id": 800, "message": {"text": "/start"}},
        {"update_id": 801, "callback_query": {"id": 7}},
    ]

    for _ in range(3):
        asked()

    approval.refresh_from_db()
    assert approval.state == State.WAITING
    assert {one["text"] for one in bot.said("answerCallbackQuery")} == {telegram.FORGED}
    assert len(bot.said("answerCallbackQuery")) == len(presses)
    assert bot.said("editMessageText") == []
    assert TelegramBot.objects.get().next_update == 802


def test_an_answer_counts_once_and_in_time(bot, channel, approval):
    late = ApprovalFactory(of_a_command=True, expires_at=timezone.now() - timedelta(seconds=1))
    bot.press(token(approval, channel), chat=CHAT, number=1)
    bot.press(token(approval, channel), chat=CHAT, number=2)
    bot.press(token(approval, channel, "reject"), chat=CHAT, number=3)
    bot.press(token(late, channel), chat=CHAT, number=4)

    asked()

    approval.refresh_from_db()
    late.refresh_from_db()
    assert (approval.state, late.state) == (State.APPROVED, State.EXPIRED)
    told = [one["text"] for one in bot.said("answerCallbackQuery")]
    assert ["was approved already by grace" in text for text in told] == [False, True, True, False]
    assert "expired" in told[3]
    assert len(bot.said("editMessageText")) == 4


def test_a_reader_who_was_replaced_or_may_no_longer_answer_is_refused(bot, channel, approval):
    data = token(approval, channel)
    channel.owner = user_with("approver", username="ada")
    channel.save()
    bot.press(data, chat=CHAT, number=1)
    asked()
    channel.owner = user_with("viewer", username="eve")
    channel.save()
    bot.press(token(approval, channel), chat=CHAT, number=2)
    asked()

    approval.refresh_from_db()
    assert approval.state == State.WAITING
    told = [one["text"] for one in bot.said("answerCallbackQuery")]
    assert told[0] == telegram.FORGED
    assert "role approver" in told[1]
    Channel.objects.update(enabled=False)
    assert bots() == {}


def test_a_service_that_fails_is_asked_again_later_and_loses_no_press(bot, channel, approval):
    bot.press(token(approval, channel), chat=CHAT)
    bot.errors["getUpdates"] = (
        429,
        {"description": "Too Many Requests", "parameters": {"retry_after": 77}},
    )
    assert asked() == 77
    assert "429" in TelegramBot.objects.get().error
    bot.errors["getUpdates"] = (500, {"description": "Internal"})
    assert asked() == telegram.BACK_OFF_SECONDS
    assert bot.token not in TelegramBot.objects.get().error

    bot.errors = {name: (500, {}) for name in ("answerCallbackQuery", "editMessageText")}
    assert asked() == 0

    approval.refresh_from_db()
    assert approval.state == State.APPROVED
    assert TelegramBot.objects.get().error == ""
    assert TelegramBot.objects.get().next_update == 702


def test_a_service_that_hangs_ends_with_an_error(bot, channel, approval, monkeypatch):
    monkeypatch.setattr(telegram, "LONGER", 0.5)
    bot.hangs.set()

    assert asked() == telegram.BACK_OFF_SECONDS
    assert "No answer" in TelegramBot.objects.get().error


def test_an_error_of_the_database_is_told_and_answers_nothing(bot, channel, approval, monkeypatch):
    def fail(*_arguments: object) -> None:
        raise RuntimeError

    monkeypatch.setattr(approval_answers, "press", fail)
    monkeypatch.setattr(connection, "close", lambda: None)
    bot.press(token(approval, channel), chat=CHAT)

    asked()

    assert bot.said("answerCallbackQuery")[0]["text"] == telegram.NOT_RECORDED
    assert bot.said("editMessageText") == []


def test_one_worker_asks_and_another_takes_over_from_a_dead_one(bot, channel, approval):
    assert lease(123, "first") is not None
    assert lease(123, "second") is None
    assert lease(123, "first") is not None
    TelegramBot.objects.update(until=timezone.now() - timedelta(seconds=1))
    assert lease(123, "second") is not None
    assert lease(123, "first") is None
    telegram.release("second")
    with time_machine.travel(timezone.now() + timedelta(seconds=1)):
        assert lease(123, "first") is not None

    [(number, chats)] = bots().items()
    lease(number, "first")
    assert poll(number, chats, "second", seconds=0) == -1
    assert bot.calls == []


def test_nothing_is_asked_while_nothing_waits(bot, channel):
    ApprovalFactory(session__cycle__drill="web-down")
    stop = threading.Event()

    TelegramThread().look(stop)

    assert not answers_may_come()
    assert bot.calls == []
    ApprovalFactory()
    assert answers_may_come()


def test_a_button_of_ntfy_answers_by_post_alone_and_once(client, approval, grace):
    channel = ChannelFactory(owner=grace, address="ntfy://ops", service="ntfy")
    yes = buttons_for(approval, channel, "ntfy")["approve"]

    assert client.get(yes).status_code == client.head(yes).status_code == 405
    forged = client.post(yes[:-3] + "x/")
    approval.refresh_from_db()
    assert (forged.status_code, approval.state) == (404, State.WAITING)
    of_telegram = buttons_for(approval, channel, "telegram")["approve"]
    assert client.post(yes.replace(yes.split("/")[-2], of_telegram)).status_code == 404
    strict = Client(enforce_csrf_checks=True)

    assert strict.post(yes).status_code == 200
    approval.refresh_from_db()
    assert approval.answer_text.startswith("Approved by grace in ntfy at ")
    assert strict.post(yes).status_code == 409
    Channel.objects.update(owner=None)
    assert strict.post(yes).status_code == 404


def test_slack_opens_the_page_that_asks_again(client, approval, grace):
    channel = ChannelFactory(owner=grace, service="Slack")
    buttons = buttons_for(approval, channel, "slack")

    page = client.get(buttons["reject"])

    assert 'class="primary" type="submit" name="answer" value="reject"' in page.content.decode()
    approval.refresh_from_db()
    assert approval.state == State.WAITING
    channel.owner = None
    assert buttons_for(approval, channel, "slack") == {}


def test_a_command_that_the_message_does_not_show_whole_has_no_approve_button(bot, channel):
    approval = ApprovalFactory(of_a_command=True, command="docker restart web; " * 90)
    tell_people(approval)

    [row] = _sent(bot)["reply_markup"]["inline_keyboard"]

    assert [button["text"] for button in row] == ["Reject"]


def test_a_channel_of_several_people_gets_no_buttons(bot, approval):
    ChannelFactory(address=bot.address(CHAT), service="Telegram", least_severity=1)
    tell_people(approval)

    assert "reply_markup" not in _sent(bot)
    assert bots() == {}
