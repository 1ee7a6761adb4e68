"""`bench sandbox` and `bench overhead`: both sides are measured alike, the figures are right."""

from __future__ import annotations

import tomllib

from tests.devtools.benchmarks.overhead import SCENARIO, slow_answers
from tests.devtools.benchmarks.sandbox import SandboxCost, measure


def test_each_side_is_measured_as_often_as_asked(settings):
    settings.CLAUDEOPS_SANDBOX = "required"

    found = measure(2)

    sides = (found.inside_ms, found.outside_ms, found.mediated_ms)
    assert [len(side) for side in sides] == [2, 2, 2]
    assert [len(side) for side in (found.api_proxy_ms, found.direct_ms)] == [2, 2]
    assert len(found.decision_ms) > 300


def test_figures_are_medians_of_differences_and_the_99th_percentile():
    cost = SandboxCost(
        inside_ms=[20.0, 30.0, 40.0],
        outside_ms=[5.0, 5.0, 50.0],
        mediated_ms=[50.0, 31.0, 43.0],
        decision_ms=[1.0] * 199 + [9.0],
        api_proxy_ms=[4.0, 4.0],
        direct_ms=[3.0, 3.0],
    )

    assert (cost.call_more_ms, cost.program_more_ms) == (15.0, 3.0)
    assert cost.first_byte_ms == 1.0
    assert 1.0 <= cost.decision_p99_ms < 9.0


def test_slow_answers_take_their_time_at_every_tier():
    with slow_answers(1) as directory:
        data = tomllib.loads((directory / f"{SCENARIO}.toml").read_text())

    assert {answer["delay"] for tier in data["tier"].values() for answer in tier} == {1.0}
