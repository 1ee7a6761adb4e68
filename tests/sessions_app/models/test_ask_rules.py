"""Rules for commands that wait for a person, as an operator writes them."""

from __future__ import annotations

import pytest
from django.core.exceptions import ValidationError

from sessions_app.models.watch import read_ask_rules
from tests.factories import CycleFactory, WatchFactory
from tests.tables import each_row


@each_row(
    ("words", "rules"),
    [
        ("", ()),
        ("  ", ()),
        ("Bash(docker restart:*)", ("Bash(docker restart:*)",)),
        ("Bash(rm:*) Bash(git push:*)", ("Bash(rm:*)", "Bash(git push:*)")),
        ("Bash(rm:*),Bash( git push )", ("Bash(rm:*)", "Bash(git push)")),
        ("Bash(rm:*) Bash(rm:*)", ("Bash(rm:*)",)),
    ],
)
def test_rules_are_read(words, rules):
    assert read_ask_rules(words) == rules


@each_row("words", ["docker restart", "Bash(rm:*) x", "Bash(:*)", "Bash()", "Bash"])
def test_what_is_no_rule_is_named(words):
    with pytest.raises(ValueError, match="is not a rule like"):
        read_ask_rules(words)


@pytest.mark.django_db
def test_a_watch_with_a_wrong_rule_is_not_valid():
    with pytest.raises(ValidationError, match="is not a rule like"):
        WatchFactory.build(ask="restart").clean()


@pytest.mark.django_db
def test_a_cycle_asks_by_its_own_copy_and_by_its_watch():
    cycle = CycleFactory(ask="Bash(rm:*)", watch=WatchFactory(ask="Bash(rm:*) Bash(mv:*)"))

    assert cycle.ask_rules == ("Bash(rm:*)", "Bash(mv:*)")
