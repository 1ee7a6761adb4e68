"""A run's own cost, whatever its CLI reports (REQ-5)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from escalation.agent.stream import COST_STEP, StreamFacts, Tokens
from escalation.resume import transcripts
from escalation.run import cost as cost_module
from escalation.run.cost import OwnCost, last_unit_price, own_cost, telemetry_differs
from escalation.run.prepare import conversation_total
from escalation.sandbox.api_proxy import Spending
from escalation.sandbox.telemetry_receiver import CliTelemetry
from sessions_app.models import Session
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import ESCALATE, HEALTHY
from tests.escalation.runs import child_of, escalated, run
from tests.factories import SessionFactory
from tests.tables import each_row

Basis = Session.CostBasis


def never(*_asked: Any) -> Any:
    raise AssertionError("nobody had to ask")


def facts_with(*results: dict[str, Any], answered: bool = True) -> StreamFacts:
    facts = StreamFacts()
    if answered:
        usage = {"input_tokens": 1000, "output_tokens": 100, "cache_read_input_tokens": 2000}
        facts.observe({"type": "assistant", "message": {"id": "m", "usage": usage}})
    for result in results:
        facts.observe({"type": "result", **result})
    return facts


def share(*costs: float) -> dict[str, Any]:
    by_model = {f"model-{number}": {"costUSD": cost} for number, cost in enumerate(costs)}
    return {"model_usage_since_last_result": by_model}


def cost_of(facts: StreamFacts, **answers: Any) -> OwnCost:
    return own_cost(
        facts,
        resumed=answers.get("resumed", False),
        accumulates=answers.get("accumulates", never),
        baseline=answers.get("baseline", never),
        unit_price=answers.get("unit_price", never),
        counted=answers.get("counted"),
        told=answers.get("told"),
    )


def test_req5_a_stated_share_is_the_cost():
    cost = cost_of(facts_with({"total_cost_usd": 0.50, **share(0.4, 0.07)}), resumed=True)

    assert (cost.cost_usd, cost.basis) == (Decimal("0.47"), Basis.OWN_SHARE)
    assert (cost.reported_cost_usd, cost.baseline_cost_usd) == (Decimal("0.50"), Decimal("0.03"))


def test_req5_shares_of_several_result_lines_are_added():
    cost = cost_of(
        facts_with(
            {"total_cost_usd": 0.1, **share(0.1)}, {"total_cost_usd": 0.3, **share(0.15, 0.05)}
        )
    )

    assert cost.cost_usd == Decimal("0.3")
    assert cost.baseline_cost_usd == 0


def test_req5_the_same_model_in_two_tiers_is_not_counted_twice():
    cost = cost_of(facts_with({"total_cost_usd": 0.06, **share(0.03)}), resumed=True)

    assert (cost.cost_usd, cost.baseline_cost_usd) == (Decimal("0.03"), Decimal("0.03"))


def test_req5_an_error_result_without_a_share_of_its_own_costs_nothing():
    error = {"subtype": "error_during_execution", "is_error": True, "total_cost_usd": 0.5}

    cost = cost_of(facts_with({**error, **share()}, answered=False), resumed=True)

    assert (cost.cost_usd, cost.reported_cost_usd) == (Decimal(0), Decimal("0.5"))


def test_req5_a_fresh_run_costs_what_it_reports_without_a_probe():
    cost = cost_of(facts_with({"total_cost_usd": 0.03}))

    assert (cost.cost_usd, cost.basis) == (Decimal("0.03"), Basis.PER_RUN)
    assert cost.baseline_cost_usd == 0


def test_req5_a_resumed_run_of_a_cli_that_reports_per_run_costs_what_it_reports():
    cost = cost_of(facts_with({"total_cost_usd": 0.47}), resumed=True, accumulates=lambda: False)

    assert (cost.cost_usd, cost.basis) == (Decimal("0.47"), Basis.PER_RUN)


def test_req5_a_resumed_run_of_a_cli_that_accumulates_costs_the_difference():
    cost = cost_of(
        facts_with({"total_cost_usd": 0.50}),
        resumed=True,
        accumulates=lambda: True,
        baseline=lambda: Decimal("0.03"),
    )

    assert (cost.cost_usd, cost.basis) == (Decimal("0.47"), Basis.DIFFERENCE)
    assert (cost.reported_cost_usd, cost.baseline_cost_usd) == (Decimal("0.5"), Decimal("0.03"))


@pytest.mark.parametrize("reported", [0.03, 0.0, 0.029])
def test_req5_a_difference_is_never_negative(reported):
    cost = cost_of(
        facts_with({"total_cost_usd": reported, "is_error": True}),
        resumed=True,
        accumulates=lambda: True,
        baseline=lambda: Decimal("0.03"),
    )

    assert cost.cost_usd == 0


def test_req5_cost_is_unknown_without_a_baseline():
    cost = cost_of(
        facts_with({"total_cost_usd": 0.5}),
        resumed=True,
        accumulates=lambda: True,
        baseline=lambda: None,
    )

    assert (cost.cost_usd, cost.basis) == (None, Basis.UNKNOWN)
    assert cost.reported_cost_usd == Decimal("0.5")


def test_req5_counted_tokens_at_the_prices_of_their_models_are_the_cost():
    prices = {"opus": Decimal("0.000004"), "haiku": Decimal("0.0000001")}
    spending = Spending(
        by_model={"opus": Tokens(input=1000, output=10), "haiku": Tokens(input=2000)}, answers=2
    )

    cost = cost_of(facts_with(), counted=spending, unit_price=prices.get)

    assert (cost.cost_usd, cost.basis) == (Decimal("0.0044"), Basis.MEASURED)
    assert cost.estimated_cost_usd is None


def test_without_a_result_the_telemetry_is_the_cost_if_it_has_every_counted_answer():
    told = CliTelemetry(by_event=Decimal("0.3"), requests=1, tokens=Tokens(1000, 100, 5, 2))
    counted = Spending(by_model={"opus": told.tokens}, answers=1)
    more = Spending(by_model={"opus": told.tokens + Tokens(output=1)}, answers=2)
    price = Decimal("0.000001")

    for spending, cost, basis in (
        (counted, Decimal("0.3"), Basis.TELEMETRY),
        (None, Decimal("0.3"), Basis.TELEMETRY),
        (more, (more.tokens.weighted * price).quantize(COST_STEP), Basis.MEASURED),
    ):
        found = cost_of(facts_with(), counted=spending, told=told, unit_price=lambda model: price)
        assert (found.cost_usd, found.basis) == (cost, basis)
    empty = cost_of(facts_with(answered=False), counted=Spending(), told=CliTelemetry())
    assert (empty.cost_usd, empty.basis) == (Decimal(0), Basis.MEASURED)


def test_two_counts_differ_beyond_rounding_only_where_a_run_reported_its_cost():
    ended, cut_off = facts_with({"total_cost_usd": 0.5}), facts_with()
    told = CliTelemetry(by_event=Decimal("0.5"), requests=3)
    for cost, basis, facts, expected in (
        ("0.5", Basis.PER_RUN, ended, False),
        ("0.50009", Basis.OWN_SHARE, ended, False),
        ("0.5002", Basis.OWN_SHARE, ended, True),
        ("0.4", Basis.DIFFERENCE, ended, True),
        ("0.4", Basis.DIFFERENCE, cut_off, False),
        ("0.4", Basis.MEASURED, ended, False),
    ):
        own = OwnCost(cost_usd=Decimal(cost), reported_cost_usd=None, basis=basis)
        assert telemetry_differs(own, told, facts) is expected, (cost, basis)
        assert not telemetry_differs(own, CliTelemetry(), facts)
        assert not telemetry_differs(own, None, facts)


def test_req5_counted_tokens_without_a_price_have_an_unknown_cost():
    spending = Spending(by_model={"opus": Tokens(input=1000)}, answers=1)

    cost = cost_of(facts_with(), counted=spending, unit_price=lambda model: None)

    assert (cost.cost_usd, cost.basis) == (None, Basis.UNKNOWN)


def test_req5_a_run_without_a_single_request_cost_nothing():
    cost = cost_of(facts_with(answered=False), counted=Spending())

    assert (cost.cost_usd, cost.basis) == (Decimal(0), Basis.MEASURED)


def test_req5_a_request_without_an_answer_has_an_unknown_cost():
    unseen = Spending(by_model={"opus": Tokens()}, answers=1, cut_off=1)

    cost = cost_of(facts_with(answered=False), counted=unseen)

    assert (cost.cost_usd, cost.basis) == (None, Basis.UNKNOWN)


def test_req5_without_a_count_a_run_without_a_result_is_an_estimate_and_never_a_cost():
    price = Decimal("0.000001")

    cost = cost_of(facts_with(), unit_price=lambda model: price)

    assert (cost.cost_usd, cost.basis) == (None, Basis.ESTIMATE)
    assert cost.estimated_cost_usd == price * (1000 + 5 * 100 + 200)


@pytest.mark.parametrize(
    ("facts", "answers"),
    [
        (facts_with(), {"unit_price": lambda model: None}),
        (facts_with(answered=False), {}),
    ],
)
def test_req5_without_evidence_the_cost_is_unknown(facts, answers):
    cost = cost_of(facts, **answers)

    assert (cost.cost_usd, cost.estimated_cost_usd) == (None, None)
    assert cost.basis == Basis.UNKNOWN


@each_row("odd", [None, "much", True, -1, [], {}])
def test_a_result_without_a_usable_figure_has_no_cost(odd):
    cost = cost_of(facts_with({"total_cost_usd": odd}), unit_price=lambda model: None)

    assert (cost.cost_usd, cost.reported_cost_usd) == (None, None)


def test_tokens_are_weighted_by_price():
    tokens = Tokens(input=100, output=10, cache_read=1000, cache_creation=80)

    assert tokens.weighted == 100 + 50 + 100 + 100


@pytest.mark.django_db
def test_unit_price_is_from_the_last_session_with_a_cost():
    SessionFactory(model="haiku", cost_usd=Decimal("9"), input_tokens=1)
    SessionFactory(model="haiku", cost_usd=Decimal("0.002"), input_tokens=1000)
    SessionFactory(model="haiku", cost_usd=None, input_tokens=1000)
    SessionFactory(model="haiku", cost_usd=Decimal(1))
    SessionFactory(model="opus", cost_usd=Decimal(5), input_tokens=1)

    assert last_unit_price("haiku") == Decimal("0.000002")
    assert last_unit_price("sonnet") is None


@pytest.mark.django_db
def test_the_unit_price_is_that_of_the_same_cli_where_hosts_have_different_ones():
    SessionFactory(model="haiku", cli_version="new", cost_usd=Decimal("0.002"), input_tokens=1000)
    SessionFactory(model="haiku", cli_version="old", cost_usd=Decimal("0.02"), input_tokens=1000)

    assert last_unit_price("haiku", "new") == Decimal("0.000002")
    assert last_unit_price("haiku", "newest") == Decimal("0.00002")


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("reported", "written", "total"),
    [
        (None, None, None),
        (Decimal("0.03"), None, Decimal("0.03")),
        (None, Decimal("0.04"), Decimal("0.04")),
        (Decimal("0.03"), Decimal("0.04"), Decimal("0.04")),
        (Decimal("0.05"), Decimal("0.04"), Decimal("0.05")),
    ],
)
def test_the_baseline_is_the_highest_total_known_of_the_parent(
    monkeypatch, reported, written, total
):
    monkeypatch.setattr(transcripts, "cost_state_total", lambda session: written)

    assert conversation_total(SessionFactory(reported_cost_usd=reported)) == total


def test_a_run_without_a_parent_has_no_baseline():
    assert conversation_total(None) is None


def reports(cost: float, report: str = "ESCALATE") -> str:
    return f"init(); tool('df', 'full'); result({report}, total_cost_usd={cost})"


@pytest.mark.django_db
def test_req5_tier_2_cost_is_independent_of_tier_1_cost(fake_cli, session, settings):
    fake_cli.install(settings, accumulates_on_fork=True)
    child = escalated(fake_cli, session, reports(0.03))
    fake_cli.then(reports(0.50, "HEALTHY"))

    second = run(child)

    first = Session.objects.get(pk=session.pk)
    assert (first.cost_usd, second.cost_usd) == (Decimal("0.03"), Decimal("0.47"))
    assert (second.reported_cost_usd, second.cost_basis) == (Decimal("0.5"), Basis.DIFFERENCE)


@pytest.mark.django_db
def test_req5_the_same_figures_of_a_cli_that_reports_per_run(fake_cli, session):
    child = escalated(fake_cli, session, reports(0.03))
    fake_cli.then(reports(0.50, "HEALTHY"))

    second = run(child)

    assert (second.cost_usd, second.cost_basis) == (Decimal("0.5"), Basis.PER_RUN)


@pytest.mark.django_db
def test_req5_three_tiers_add_up_to_what_the_cli_reported(fake_cli, session, settings):
    fake_cli.install(settings, accumulates_on_fork=True)
    second = escalated(fake_cli, session, reports(0.03))
    third = escalated(fake_cli, second, reports(0.50))
    fake_cli.then(reports(2.50, "HEALTHY"))

    last = run(third)

    costs = [ran.cost_usd for ran in Session.objects.order_by("pk")]
    assert costs == [Decimal("0.03"), Decimal("0.47"), Decimal("2")]
    assert sum(cost for cost in costs if cost) == last.reported_cost_usd


@pytest.mark.django_db
def test_req5_a_run_by_handoff_begins_a_total_of_its_own(fake_cli, session, settings):
    fake_cli.install(settings, accumulates_on_fork=True)
    child = escalated(fake_cli, session, reports(0.03))
    Session.objects.filter(pk=child.pk).update(force_fresh=True)
    fake_cli.then(reports(0.50, "HEALTHY"))

    assert run(child).cost_usd == Decimal("0.5")


@pytest.mark.django_db
def test_req5_a_refused_resume_costs_nothing(fake_cli, session, settings):
    fake_cli.install(settings, accumulates_on_fork=True)
    child = escalated(fake_cli, session, reports(0.03))
    fake_cli.then("result(None, is_error=True, total_cost_usd=0.03, num_turns=0); sys.exit(1)")
    refused = run(child)
    fake_cli.then(reports(0.47, "HEALTHY"))

    again = run(Session.objects.get(status=Session.Status.QUEUED))

    assert (refused.cost_usd, again.cost_usd) == (Decimal(0), Decimal("0.47"))


@pytest.mark.django_db
def test_req5_a_killed_session_has_a_marked_estimate(fake_cli, session):
    SessionFactory(model="haiku", cost_usd=Decimal("0.001"), input_tokens=1000)
    fake_cli.then("init(); say(); os.kill(os.getpid(), signal.SIGKILL)")

    killed = run(session)

    assert (killed.cost_usd, killed.cost_basis) == (None, Basis.ESTIMATE)
    assert killed.estimated_cost_usd == Decimal("0.000001") * 105


@pytest.mark.django_db
def test_req5_without_capabilities_the_cost_of_a_resumed_session_is_unknown(
    fake_cli, session, settings
):
    fake_cli.install(settings, works=False, problem="a fresh run printed no result")
    child = escalated(fake_cli, session, reports(0.03))
    fake_cli.then(reports(0.50, "HEALTHY"))

    second = run(child)

    assert (second.cost_usd, second.cost_basis) == (None, Basis.UNKNOWN)


@pytest.mark.django_db
def test_req5_the_baseline_is_not_the_total_of_the_session_itself(settings, tmp_path, session):
    old = FakeCli(tmp_path / "old", can_fork=False).install(settings, accumulates_on_resume=True)
    total = "; remember(asked, type='cost-state', totalCostUSD={})"
    old.then(reports(0.03) + total.format(0.03))
    old.then(reports(0.50, "HEALTHY") + total.format(0.50))

    second = run(child_of(run(session)))

    assert second.cost_usd == Decimal("0.47")


@pytest.mark.django_db
def test_capabilities_are_probed_only_when_they_decide(fake_cli, session, monkeypatch):
    monkeypatch.setattr(cost_module, "capabilities_of", never)
    fake_cli.reports(ESCALATE).reports(HEALTHY, **share(0.018))

    assert run(child_of(run(session))).cost_basis == Basis.OWN_SHARE
