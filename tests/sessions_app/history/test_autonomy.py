"""What a watch's runs wanted, and what would have become of it with more or less trust."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.utils import timezone

from sessions_app.models.trust import Step
from sessions_app.reading.trust_record import (
    Fate,
    Kind,
    Wish,
    examples,
    fate_of,
    recorded_wishes,
    what_if,
)
from tests.factories import (
    ChangeFactory,
    CycleFactory,
    GateEventFactory,
    SessionFactory,
    WatchFactory,
)

NOW = timezone.now()
EVERY_WISH = [
    Wish(kind=kind, what=f"{kind} {tier}", tier=tier, given=given, at=NOW, session=1)
    for kind, tier, given in product(Kind, (1, 2, 3, 4), (True, False))
]


@pytest.mark.parametrize(
    ("step", "tier", "fate"),
    [
        (Step.LOOK, 2, Fate.REFUSED),
        (Step.SAFE_WITH_APPROVAL, 2, Fate.ASKED),
        (Step.SAFE_WITH_APPROVAL, 3, Fate.REFUSED),
        (Step.SAFE, 2, Fate.DONE),
        (Step.SAFE, 3, Fate.REFUSED),
        (Step.ALL_WITH_APPROVAL, 2, Fate.DONE),
        (Step.ALL_WITH_APPROVAL, 3, Fate.ASKED),
        (Step.ALL, 3, Fate.DONE),
        (Step.ALL, 4, Fate.REFUSED),
    ],
)
def test_the_fate_of_a_wish_follows_from_the_step(step, tier, fate):
    wish = Wish(kind=Kind.COMMAND, what="x", tier=tier, given=False, at=NOW, session=1)

    assert fate_of(wish, step.policy) == fate


@pytest.mark.parametrize("step", Step)
def test_no_wish_is_in_two_groups(step):
    would = what_if(EVERY_WISH, step)

    assert len({*would.done, *would.asked, *would.prevented}) == len(
        (*would.done, *would.asked, *would.prevented)
    )


@pytest.mark.parametrize(("lower", "higher"), list(zip(Step, list(Step)[1:], strict=False)))
def test_more_trust_never_prevents_what_less_trust_allows(lower, higher):
    assert set(what_if(EVERY_WISH, higher).prevented) <= set(what_if(EVERY_WISH, lower).prevented)


def test_the_sentence_counts():
    would = what_if(EVERY_WISH, Step.ALL_WITH_APPROVAL)

    assert would.sentence == (
        "In the last 7 days it would have let through 2 commands and 2 escalations; asked a person "
        "about 2 commands and 2 escalations; refused 1 command and 1 escalation."
    )
    assert what_if([], Step.ALL).sentence.endswith("would have changed nothing.")


def test_the_same_command_again_and_again_is_one_example():
    wishes = [
        Wish(
            kind=Kind.COMMAND,
            what=what,
            tier=2,
            given=False,
            at=NOW - timedelta(hours=age),
            session=age,
        )
        for age, what in enumerate(["a", "b", "a", "c", "d", "a"])
    ]

    assert [(wish.what, wish.session) for wish in examples(wishes)] == [
        ("a", 0),
        ("b", 1),
        ("c", 3),
    ]


@pytest.mark.django_db
def test_the_record_holds_denied_commands_changes_and_what_tiers_asked_for():
    watch = WatchFactory()
    session = SessionFactory(cycle=CycleFactory(watch=watch))
    denied = {"verdict": "deny", "session": session}
    GateEventFactory(**denied, command="docker restart web", more={"allowed_from": 2})
    GateEventFactory(**denied, command="rm -rf /", more={"allowed_from": 0})
    GateEventFactory(**denied, command="older than that field")
    GateEventFactory(session=session, command="docker ps", more={"allowed_from": 0})
    asks = {"escalation": {"needed": True, "reason": "web hangs", "services": ["web"]}}
    held = SessionFactory(cycle=session.cycle, report=asks)
    SessionFactory(cycle=session.cycle, report=asks, tier=2, status="escalated")
    ChangeFactory(session=SessionFactory(cycle=session.cycle, tier=2), command="systemctl stop x")
    long_ago = timezone.now() - timedelta(days=8)
    SessionFactory(cycle=session.cycle, report=asks, finished_at=long_ago)
    SessionFactory(report=asks)

    found = {(wish.kind, wish.what, wish.tier, wish.given) for wish in recorded_wishes(watch)}

    assert found == {
        (Kind.COMMAND, "docker restart web", 2, False),
        (Kind.COMMAND, "systemctl stop x", 2, True),
        (Kind.TIER, "Tier 2: web hangs", 2, False),
        (Kind.TIER, "Tier 3: web hangs", 3, True),
    }
    assert held.pk in {wish.session for wish in recorded_wishes(watch)}
