"""What the sessions of a watch asked for, and its outcome at every level of autonomy."""

from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest
from django.utils import timezone

from sessions_app.history.autonomy import (
    Fate,
    PermissionKind,
    RequestedPermission,
    examples,
    fate_of,
    recorded_wishes,
    what_if,
)
from sessions_app.models.autonomy import AutonomyLevel
from tests.factories import (
    ChangeFactory,
    CommandEventFactory,
    CycleFactory,
    SessionFactory,
    WatchFactory,
)
from tests.tables import each_row

NOW = timezone.now()
EVERY_WISH = [
    RequestedPermission(kind=kind, what=f"{kind} {tier}", tier=tier, given=given, at=NOW, session=1)
    for kind, tier, given in product(PermissionKind, (1, 2, 3, 4), (True, False))
]


@each_row(
    ("step", "tier", "fate"),
    [
        (AutonomyLevel.LOOK, 2, Fate.REFUSED),
        (AutonomyLevel.SAFE_WITH_APPROVAL, 2, Fate.ASKED),
        (AutonomyLevel.SAFE_WITH_APPROVAL, 3, Fate.REFUSED),
        (AutonomyLevel.SAFE, 2, Fate.DONE),
        (AutonomyLevel.SAFE, 3, Fate.REFUSED),
        (AutonomyLevel.ALL_WITH_APPROVAL, 2, Fate.DONE),
        (AutonomyLevel.ALL_WITH_APPROVAL, 3, Fate.ASKED),
        (AutonomyLevel.ALL, 3, Fate.DONE),
        (AutonomyLevel.ALL, 4, Fate.REFUSED),
    ],
)
def test_the_outcome_of_a_request_follows_from_the_level(step, tier, fate):
    wish = RequestedPermission(
        kind=PermissionKind.COMMAND, what="x", tier=tier, given=False, at=NOW, session=1
    )

    assert fate_of(wish, step.policy) == fate


@each_row("step", AutonomyLevel)
def test_every_request_is_in_one_group(step):
    would = what_if(EVERY_WISH, step)

    assert len({*would.done, *would.asked, *would.prevented}) == len(
        (*would.done, *would.asked, *would.prevented)
    )


@pytest.mark.parametrize(
    ("lower", "higher"), list(zip(AutonomyLevel, list(AutonomyLevel)[1:], strict=False))
)
def test_more_autonomy_never_prevents_what_less_autonomy_allows(lower, higher):
    assert set(what_if(EVERY_WISH, higher).prevented) <= set(what_if(EVERY_WISH, lower).prevented)


def test_the_sentence_counts_requests_by_outcome():
    would = what_if(EVERY_WISH, AutonomyLevel.ALL_WITH_APPROVAL)

    assert would.sentence == (
        "In the last 7 days it would have let through 2 commands and 2 escalations; asked a person "
        "about 2 commands and 2 escalations; refused 1 command and 1 escalation."
    )
    assert what_if([], AutonomyLevel.ALL).sentence.endswith("would have changed nothing.")


def test_a_repeated_command_is_one_example():
    wishes = [
        RequestedPermission(
            kind=PermissionKind.COMMAND,
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
def test_requests_are_read_from_denied_commands_changes_and_escalations():
    watch = WatchFactory()
    session = SessionFactory(cycle=CycleFactory(watch=watch))
    denied = {"verdict": "deny", "session": session}
    CommandEventFactory(**denied, command="docker restart web", more={"allowed_from": 2})
    CommandEventFactory(**denied, command="rm -rf /", more={"allowed_from": 0})
    CommandEventFactory(**denied, command="older than that field")
    CommandEventFactory(session=session, command="docker ps", more={"allowed_from": 0})
    asks = {"escalation": {"needed": True, "reason": "web hangs", "services": ["web"]}}
    held = SessionFactory(cycle=session.cycle, report=asks)
    SessionFactory(cycle=session.cycle, report=asks, tier=2, status="escalated")
    ChangeFactory(session=SessionFactory(cycle=session.cycle, tier=2), command="systemctl stop x")
    long_ago = timezone.now() - timedelta(days=8)
    SessionFactory(cycle=session.cycle, report=asks, finished_at=long_ago)
    SessionFactory(report=asks)

    found = {(wish.kind, wish.what, wish.tier, wish.given) for wish in recorded_wishes(watch)}

    assert found == {
        (PermissionKind.COMMAND, "docker restart web", 2, False),
        (PermissionKind.COMMAND, "systemctl stop x", 2, True),
        (PermissionKind.TIER, "Tier 2: web hangs", 2, False),
        (PermissionKind.TIER, "Tier 3: web hangs", 3, True),
    }
    assert held.pk in {wish.session for wish in recorded_wishes(watch)}
