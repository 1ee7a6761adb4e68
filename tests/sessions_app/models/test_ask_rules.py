"""Rules for commands that need approval, as an operator writes them."""

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
def test_rules_are_parsed(words, rules):
    assert read_ask_rules(words) == rules


@each_row("words", ["docker restart", "Bash(rm:*) x", "Bash(:*)", "Bash()", "Bash"])
def test_an_invalid_rule_is_reported(words):
    with pytest.raises(ValueError, match="is not a rule like"):
        read_ask_rules(words)


@pytest.mark.django_db
def test_a_watch_with_an_invalid_rule_is_invalid():
    with pytest.raises(ValidationError, match="is not a rule like"):
        WatchFactory.build(ask="restart").clean()


@pytest.mark.django_db
def test_a_cycle_uses_the_rules_of_its_copy_and_of_its_watch():
    cycle = CycleFactory(ask="Bash(rm:*)", watch=WatchFactory(ask="Bash(rm:*) Bash(mv:*)"))

    assert cycle.ask_rules == ("Bash(rm:*)", "Bash(mv:*)")
