"""`claudeops target`: in a terminal what the page does, without an address in any history."""

from __future__ import annotations

import io

import pytest
from django.core.management import CommandError, call_command

from escalation.word import courier
from escalation.word.courier import Answer
from sessions_app.models import Message, Target
from sessions_app.reading.target_addresses import address_of
from tests.factories import TargetFactory, WatchFactory

pytestmark = pytest.mark.django_db
SECRET = "json://ada:hunter2hunter2@127.0.0.1:9/"


@pytest.fixture
def said(monkeypatch, capsys):
    """Run it with these words and this standard input; gives what it printed."""
    monkeypatch.setattr(courier, "look_at", lambda address: Answer(True, "", "JSON (127.0.0.1)"))

    def run(*words: str, stdin: str = "") -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO(stdin))
        call_command(*("target", *words))
        return capsys.readouterr().out

    return run


def test_without_any_it_says_what_to_do(said):
    assert "Nobody is told anything yet" in said("list")


def test_a_target_is_added_with_an_address_from_standard_input(said):
    WatchFactory(name="shop")
    words = ("--from", "critical", "--watch", "shop", "--quiet", "22:00-07:00", "--digest", "08:00")

    text = said("add", "hook", *words, stdin=f"{SECRET}\n")

    target = Target.objects.get()
    assert address_of(target) == SECRET
    assert "hook: JSON (127.0.0.1), on, from critical" in text
    assert "hunter2" not in text
    assert [watch.name for watch in target.watches.all()] == ["shop"]
    assert str(target.quiet_from) == "22:00:00"


@pytest.mark.parametrize(
    ("words", "stdin", "why"),
    [
        (("add", "hook"), "", "Give an address"),
        (("add", "hook"), "two words\n", "one line"),
        (("add", "hook", "--quiet", "22:00"), SECRET, "like 22:00-07:00"),
        (("add", "hook", "--quiet", "late-early"), SECRET, "HH:MM"),
        (("add", "hook", "--digest", "noon"), SECRET, "HH:MM"),
        (("add", "hook", "--watch", "nowhere"), SECRET, "no watch nowhere"),
        (("add", "taken"), SECRET, "already exists"),
        (("test", "nobody"), "", "There is: taken"),
        (("remove", "nobody"), "", "There is no target nobody"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_stored(said, words, stdin, why):
    TargetFactory(name="taken")

    with pytest.raises(CommandError, match=why) as refused:
        said(*words, stdin=stdin)

    assert refused.value.returncode == 2
    assert Target.objects.count() == 1


def test_a_test_that_fails_is_an_error(said, monkeypatch):
    TargetFactory(name="hook")
    monkeypatch.setattr(courier, "deliver", lambda address, **word: Answer(False, "It said 500."))

    with pytest.raises(CommandError, match="did not reach hook. It said 500"):
        said("test", "hook")
    assert "failed 1×: It said 500." in said("list")


def test_a_test_that_arrives_is_told(said, monkeypatch):
    TargetFactory(name="hook")
    monkeypatch.setattr(courier, "deliver", lambda address, **word: Answer(True, ""))

    assert "was sent to hook" in said("test", "hook")
    assert Message.objects.get().state == Message.State.SENT


def test_it_is_switched_off_on_and_removed(said):
    TargetFactory(name="hook")

    assert "hook is off" in said("disable", "hook")
    assert "hook is on" in said("enable", "hook")
    assert "hook is removed" in said("remove", "hook", "--no-input")
    assert not Target.objects.exists()
