"""The plan as tables: what differs between two states."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from escalation.configuration import plan
from escalation.configuration.plan import Action, Address, FieldChange, Kind, Secret, Step
from tests.tables import each_row

SHOP = Address(kind=Kind.WATCH, name="shop")
PROBE = Address(kind=Kind.PROBE, name="web", watch="shop")
PHONE = Address(kind=Kind.CHANNEL, name="phone")


def change(name, before=None, after=None):
    return FieldChange(name=name, before=before, after=after)


ADD = Step(action=Action.ADD, address=SHOP, fields=(change("every", None, "1h"),))
DIFFERENCES = [
    ({}, {}, ()),
    ({SHOP: {"every": "1h"}}, {SHOP: {"every": "1h"}}, ()),
    ({}, {SHOP: {"every": "1h"}}, (ADD,)),
    ({SHOP: {"every": "1h"}}, {}, (Step(action=Action.REMOVE, address=SHOP),)),
    (
        {SHOP: {"every": "1h", "hosts": ["nas"]}},
        {SHOP: {"cron": "@daily", "hosts": ["nas"]}},
        (
            Step(
                action=Action.CHANGE,
                address=SHOP,
                fields=(change("cron", None, "@daily"), change("every", "1h", None)),
            ),
        ),
    ),
    (
        {PHONE: {"address": Secret("a")}},
        {PHONE: {"address": Secret("b")}},
        (
            Step(
                action=Action.CHANGE,
                address=PHONE,
                fields=(change("address", Secret("a"), Secret("b")),),
            ),
        ),
    ),
]


@each_row("before, after, steps", DIFFERENCES)
def test_difference(before, after, steps):
    assert plan.difference(before, after) == steps


def test_steps_are_in_the_order_of_what_belongs_together():
    second = Address(kind=Kind.WATCH, name="web")
    after = {PHONE: {}, second: {}, PROBE: {}, SHOP: {}}

    assert [step.address for step in plan.difference({}, after)] == [SHOP, PROBE, second, PHONE]


def test_digest_tells_plans_apart():
    one = plan.difference({}, {SHOP: {"every": "1h"}})
    other = plan.difference({}, {SHOP: {"every": "2h"}})

    assert plan.digest(one) == plan.digest(list(one))
    assert plan.digest(one) != plan.digest(other)


def test_no_value_of_a_secret_is_shown():
    assert plan.value_text(Secret("fingerprint")) == "(secret)"


DRIFTS = [
    ({SHOP: {"every": "1h"}}, {SHOP: {"every": "1h", "enabled": True}}, []),
    ({SHOP: {"every": "1h", "enabled": False}}, {SHOP: {"every": "1h", "enabled": True}}, [SHOP]),
    ({SHOP: {}}, {SHOP: {}, PROBE: {"enabled": True}}, [PROBE]),
    ({SHOP: {}, PROBE: {}}, {SHOP: {}}, [PROBE]),
]


@each_row("applied, current, changed", DRIFTS)
def test_drift_leaves_out_a_switch_that_the_file_leaves_open(applied, current, changed):
    assert [step.address for step in plan.drift(applied, current)] == changed


words = st.dictionaries(
    st.text(min_size=1, max_size=5), st.text() | st.integers() | st.booleans(), max_size=3
)
addresses = st.builds(
    Address, kind=st.sampled_from(Kind), name=st.text(max_size=5), watch=st.text(max_size=5)
)
states = st.dictionaries(addresses, words, max_size=4)


@given(states, states)
def test_a_state_differs_from_itself_in_nothing_and_survives_storage(one, other):
    assert plan.difference(one, one) == ()
    assert plan.read_stored(json.loads(json.dumps(plan.stored(one)))) == one
    changed = {step.address for step in plan.difference(one, other)}
    assert changed == {
        address for address in {*one, *other} if one.get(address) != other.get(address)
    }
