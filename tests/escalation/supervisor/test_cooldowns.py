"""How often a service may be restarted or redeployed: tables and properties."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from random import Random

from escalation.command_policy.understanding import EVERYTHING, CommandEffect
from escalation.supervisor.cooldowns import (
    Done,
    Limit,
    effects_of,
    healthy_in,
    left,
    limits_of,
    objection,
    recovered,
    service_behind,
    tier_objection,
    used,
)
from sessions_app.models import Watch
from tests.escalation.rows import a_report
from tests.tables import each_row

NOW = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
RESTART, REDEPLOY = "restart", "redeploy"
LIMITS = {RESTART: Limit(allowed=2, hours=4), REDEPLOY: Limit(allowed=1, hours=24)}
NEVER = {RESTART: Limit(allowed=0, hours=4), REDEPLOY: Limit(allowed=0, hours=24)}


def done(service: str = "web", hours_ago: float = 1, kind: str = RESTART) -> Done:
    return Done(kind=kind, service=service, at=NOW - timedelta(hours=hours_ago))


def doing(service: str = "web", kind: str = RESTART) -> CommandEffect:
    return CommandEffect(kind=kind, service=service, action=f"{kind} {service}")


def why(effects: list[CommandEffect], record: list[Done], limits=LIMITS) -> str:
    reached = objection(effects, record, limits, NOW)
    return reached.reason if reached else ""


WEB1, WEB1_ALSO, WEB2, UNLIKE = "ed:a rsa:b", "rsa:b", "ed:c rsa:d", "dsa:e"


@each_row(
    ("record", "host", "count"),
    [
        ([WEB1, WEB1], WEB1, 0),
        ([WEB1, WEB1], WEB2, 2),
        ([WEB1, WEB2], WEB2, 1),
        # The same host by another name, with a part of its keys.
        ([WEB1_ALSO, WEB1_ALSO], WEB1, 0),
        # Hosts that cannot be told apart, unknown ones and this one count for each other.
        ([WEB1, WEB1], UNLIKE, 0),
        (["", ""], WEB1, 0),
        ([WEB1, WEB2], "", 0),
    ],
)
def test_equal_services_of_hosts_with_other_keys_do_not_count_together(record, host, count):
    rows = [replace(done(), host=one) for one in record]

    assert left(RESTART, "web", rows, LIMITS, NOW, host) == count
    reached = objection([replace(doing(), host=host)], rows, LIMITS, NOW)
    assert (reached is None) == (count > 0)


def test_a_tier_is_stopped_if_a_service_is_used_up_on_all_its_hosts():
    used_up = [replace(done(), host=WEB1)] * 2

    assert tier_objection(2, ["web"], used_up, LIMITS, NOW)
    assert not tier_objection(2, ["web"], [*used_up, replace(done(), host=WEB2)], LIMITS, NOW)


def test_effects_have_the_keys_of_their_host():
    [found] = effects_of(
        [replace(doing("Web.service"), host="root@one")], {"root@one": WEB1}.__getitem__
    )

    assert (found.service, found.host) == ("web", WEB1)
    assert effects_of([doing()])[0].host == ""


def test_a_new_watch_allows_two_restarts_in_4_hours_and_a_redeployment_a_day():
    assert limits_of(None) == limits_of(Watch()) == LIMITS


@each_row(
    ("record", "count"),
    [
        ([], 2),
        ([done()], 1),
        ([done(), done()], 0),
        ([done(), done(), done()], 0),
        ([done(hours_ago=4.01), done(hours_ago=5)], 2),
        ([done(hours_ago=4)], 2),
        ([done(hours_ago=3.99)], 1),
        ([done("db"), done("db")], 2),
        ([done(kind=REDEPLOY), done(kind="other")], 2),
        ([done(EVERYTHING)], 1),
        ([done(EVERYTHING), done()], 0),
        ([done(hours_ago=-1)], 1),
    ],
)
def test_remaining_restarts_of_a_service(record, count):
    assert left(RESTART, "web", record, LIMITS, NOW) == count


@each_row(
    ("effects", "record", "words"),
    [
        ([doing()], [done()], ""),
        (
            [doing()],
            [done(), done()],
            "web was restarted twice in the last 4 h: do not try again, ask for a person in your "
            "report.",
        ),
        ([doing(kind=REDEPLOY)], [done(), done()], ""),
        ([doing(kind=REDEPLOY)], [done(kind=REDEPLOY)], "web was redeployed once in the last 24 h"),
        ([doing(), doing()], [], ""),
        ([doing(), doing(), doing()], [], "web was restarted twice"),
        ([doing("db"), doing()], [done(), done()], "web was restarted twice"),
        ([doing(EVERYTHING)], [done("db"), done("db")], "something here was restarted twice"),
        ([doing(), doing(EVERYTHING)], [done()], "something here was restarted twice"),
        ([doing(kind="other")], [done(), done()], ""),
        ([doing(kind=REDEPLOY)], [done(EVERYTHING, kind=REDEPLOY)], ""),
        ([doing(EVERYTHING, REDEPLOY)], [done(EVERYTHING, kind=REDEPLOY)], "something here was"),
        ([doing(EVERYTHING, REDEPLOY)], [done(kind=REDEPLOY)], "something here was redeployed"),
    ],
)
def test_a_command_is_refused_when_nothing_remains(effects, record, words):
    told = why(effects, record)

    assert told.startswith(words) if words else told == ""


def test_a_limit_of_zero_refuses_always():
    assert why([doing()], [], NEVER).startswith("web may never be restarted in this watch")


def test_another_change_has_no_cooldown():
    assert why([doing("", "other")] * 5, [done(), done()]) == ""


@each_row("name", ["web", "Web ", "/web", "web.service", "deploy/web", "shop-web-1", "shop_web_1"])
def test_one_service_has_one_spelling(name):
    assert service_behind(name) == "web"
    assert [effect.service for effect in effects_of([doing(name)])] == ["web"]


@each_row("name", ["web-5d9c7b4f88-x2x4z", "web-5d9c7b4f88-abcde"])
def test_a_pod_is_its_deployment(name):
    assert service_behind(name) == "web"


@each_row("effect", [doing(EVERYTHING), doing("", "other")])
def test_an_effect_without_a_named_service_stays_as_it_is(effect):
    assert effects_of([effect]) == (effect,)


@each_row("name", ["", "*", "…", "-", "web" * 500, "shop--1", "\u202eweb", "1-2-3"])
def test_nonsense_has_a_spelling_too(name):
    assert service_behind(service_behind(name)) == service_behind(name) or len(name) < 6
    assert len(service_behind(name)) <= 200


@each_row(
    ("tier", "services", "record", "held"),
    [
        (2, ["web"], [done(), done()], True),
        (2, ["Web", "web.service"], [done(), done()], True),
        (2, ["web"], [done()], False),
        (2, ["web", "db"], [done(), done()], False),
        (2, ["web", "db"], [done(), done(), done("db"), done("db")], True),
        (2, [], [done(), done()], False),
        (2, [""], [done(), done()], False),
        (3, ["web"], [done(), done()], False),
        (3, ["web"], [done(), done(), done(kind=REDEPLOY)], True),
        (3, ["web"], [done(kind=REDEPLOY)], False),
        (4, ["web"], [done(), done(), done(kind=REDEPLOY)], True),
    ],
)
def test_a_tier_is_not_started_when_all_its_remedies_were_used(tier, services, record, held):
    assert (tier_objection(tier, services, record, LIMITS, NOW) is not None) == held


def test_the_reason_names_the_used_remedies():
    record = [done(), done(), done(kind=REDEPLOY)]

    reached = tier_objection(3, ["web"], record, LIMITS, NOW)

    assert reached is not None
    assert reached.reason == (
        "web was restarted twice in the last 4 h; web was redeployed once in the last 24 h"
    )


def test_a_tier_may_start_when_no_remedy_was_tried_even_with_a_limit_of_zero():
    assert tier_objection(2, ["web"], [], NEVER, NOW) is None
    assert tier_objection(2, ["web"], [done()], NEVER, NOW) is not None


def test_no_order_of_requests_exceeds_the_limit():
    """Two hundred questions over five hours, against a count of our own."""
    random = Random(9)  # noqa: S311 (chance, not secrecy)
    for allowed, hours in product((0, 1, 2, 5), (1, 4)):
        limits = {RESTART: Limit(allowed=allowed, hours=hours), REDEPLOY: LIMITS[REDEPLOY]}
        record: list[Done] = []
        for _ in range(200):
            now = NOW + timedelta(seconds=random.randrange(5 * 3600))
            if objection([doing()], record, limits, now) is None:
                record.append(Done(kind=RESTART, service="web", at=now))
        for start in record:
            window = [
                other
                for other in record
                if start.at <= other.at < start.at + timedelta(hours=hours)
            ]
            assert len(window) <= max(allowed, 0)


def test_more_changes_never_increase_the_rest():
    random = Random(9)  # noqa: S311 (chance, not secrecy)
    names = ("web", "db", EVERYTHING)
    for _ in range(300):
        record = [
            done(random.choice(names), random.uniform(-2, 30), random.choice((RESTART, REDEPLOY)))
            for _ in range(random.randrange(8))
        ]
        more = [*record, done(random.choice(names), random.uniform(-2, 30))]
        for kind, service in product(LIMITS, names):
            assert used(kind, service, more, LIMITS, NOW) >= used(
                kind, service, record, LIMITS, NOW
            )
            assert left(kind, service, more, LIMITS, NOW) <= left(
                kind, service, record, LIMITS, NOW
            )


def test_a_clock_that_is_set_back_does_not_end_a_cooldown():
    record = [done(hours_ago=0.1), done(hours_ago=0.1)]

    for back in (timedelta(hours=1), timedelta(days=400)):
        assert left(RESTART, "web", record, LIMITS, NOW - back) == 0


def test_a_service_is_healthy_in_a_cycle_unless_a_report_says_otherwise():
    first = a_report(services=(("web", "down"), ("db", "healthy")))
    then = a_report(services=(("Web", "healthy"), ("cache", "unknown")))

    assert healthy_in([first, then]) == {"db"}
    assert healthy_in([then]) == {"web"}
    assert healthy_in([]) == set()


def test_two_consecutive_healthy_cycles_end_a_cooldown():
    well, ill = a_report(services=(("web", "healthy"),)), a_report(services=(("web", "degraded"),))

    assert recovered([well], [well]) == {"web"}
    assert recovered([well], [ill]) == recovered([ill], [well]) == recovered([well], []) == set()
