"""`claudeops channel`: add, test, switch and remove, without an address on the command line."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from escalation.notifications import sending
from escalation.notifications.sending import DeliveryResult
from sessions_app.models import Channel, Message
from sessions_app.redaction.encryption import address_of
from tests.escalation.refusals import command_refused
from tests.factories import ChannelFactory, WatchFactory

pytestmark = pytest.mark.django_db
SECRET = "json://ada:hunter2hunter2@127.0.0.1:9/"


@pytest.fixture
def said(monkeypatch, capsys):
    """Run it with these words and this standard input; gives what it printed."""
    monkeypatch.setattr(
        sending, "look_at", lambda address: DeliveryResult(True, "", "JSON (127.0.0.1)")
    )

    def run(*words: str, stdin: str = "") -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        call_command(*("channel", *words))
        return capsys.readouterr().out

    return run


def test_an_empty_list_names_the_command_to_add_one(said):
    assert "channel add NAME" in said("list")


def test_a_channel_is_added_with_an_address_from_standard_input(said):
    WatchFactory(name="shop")
    words = ("--from", "critical", "--watch", "shop", "--quiet", "22:00-07:00", "--digest", "08:00")

    text = said("add", "hook", *words, stdin=f"{SECRET}\n")

    channel = Channel.objects.get()
    assert address_of(channel) == SECRET
    assert "hook: JSON (127.0.0.1), on, from critical" in text
    assert "hunter2" not in text
    assert [watch.name for watch in channel.watches.all()] == ["shop"]
    assert str(channel.quiet_from) == "22:00:00"


@pytest.mark.parametrize(
    ("words", "stdin", "code", "named"),
    [
        (("add", "hook"), "", RefusalCode.INVALID_ARGUMENTS, "address"),
        (("add", "hook"), "two words\n", RefusalCode.INVALID_ARGUMENTS, "one line"),
        (("add", "hook", "--quiet", "22:00"), SECRET, RefusalCode.INVALID_ARGUMENTS, "22:00-07:00"),
        (("add", "hook", "--quiet", "late-early"), SECRET, RefusalCode.INVALID_ARGUMENTS, "HH:MM"),
        (("add", "hook", "--digest", "noon"), SECRET, RefusalCode.INVALID_ARGUMENTS, "HH:MM"),
        (("add", "hook", "--watch", "nowhere"), SECRET, RefusalCode.NOT_FOUND, "nowhere"),
        (("add", "taken"), SECRET, RefusalCode.INVALID_ARGUMENTS, "Name"),
        (("test", "nobody"), "", RefusalCode.NOT_FOUND, "taken"),
        (("remove", "nobody"), "", RefusalCode.NOT_FOUND, "nobody"),
    ],
)
def test_an_invalid_channel_is_refused_and_not_stored(said, words, stdin, code, named):
    ChannelFactory(name="taken")

    with command_refused(code, match=named):
        said(*words, stdin=stdin)

    assert Channel.objects.count() == 1


def test_a_name_that_was_taken_meanwhile_is_refused(said, monkeypatch):
    def look_at(address: str) -> DeliveryResult:
        ChannelFactory(name="hook")
        return DeliveryResult(True, "", "JSON")

    monkeypatch.setattr(sending, "look_at", look_at)

    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="Name"):
        said("add", "hook", stdin=SECRET)

    assert Channel.objects.count() == 1


def test_a_failed_test_is_refused_with_its_error(said, monkeypatch):
    ChannelFactory(name="hook")
    monkeypatch.setattr(
        sending, "deliver", lambda address, **word: DeliveryResult(False, "It said 500.")
    )

    with command_refused(RefusalCode.NOT_DELIVERED, match="It said 500"):
        said("test", "hook")
    assert "failed 1×: It said 500." in said("list")


def test_reports_a_test_that_arrived(said, monkeypatch):
    ChannelFactory(name="hook")
    monkeypatch.setattr(sending, "deliver", lambda address, **word: DeliveryResult(True, ""))

    assert "was sent to hook" in said("test", "hook")
    assert Message.objects.get().state == Message.State.SENT


def test_a_channel_is_switched_off_and_on_and_removed(said):
    ChannelFactory(name="hook")

    assert "hook is off" in said("disable", "hook")
    assert "hook is on" in said("enable", "hook")
    assert "hook was removed" in said("remove", "hook", "--no-input")
    assert not Channel.objects.exists()
