"""Computes what a session itself cost, from what its CLI reports.

Newer CLIs count the whole conversation and also state each session's own share; older ones count
the session. The probed capabilities of the CLI decide which, never the figures. A session without
a result line has no figure: its cost is the tokens that the API proxy counted at the prices of the
CLI, marked as measured; or the cost that the telemetry of the CLI states, if it has every counted
answer. Where nothing was counted, the stream gives an estimate that is not added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from pathlib import Path

from escalation.agent.binary import find_binary, fingerprint_of
from escalation.agent.capabilities import Capabilities, capabilities_of, known_capabilities
from escalation.agent.stream import COST_STEP, StreamFacts, Tokens
from escalation.errors import CannotRun
from escalation.resume import transcripts
from escalation.sandbox.api_proxy import Spending
from escalation.sandbox.telemetry_receiver import CliTelemetry
from sessions_app.models import Session
from sessions_app.models.costs import TOKEN_FIELDS

# Sessions searched for one of the same CLI version.
LATEST_RUNS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnCost:
    cost_usd: Decimal | None
    reported_cost_usd: Decimal | None
    basis: str
    baseline_cost_usd: Decimal | None = None
    estimated_cost_usd: Decimal | None = None


Price = Callable[[str], Decimal | None]
"""Returns the dollars for an input token of a model."""
NOTHING = OwnCost(cost_usd=Decimal(0), reported_cost_usd=None, basis=Session.CostBasis.MEASURED)


def settled_cost(
    session: Session,
    facts: StreamFacts,
    counted: Spending | None,
    told: CliTelemetry | None = None,
) -> OwnCost:
    """Cost by the result line, by the total in the CLI's transcript, or by what was counted."""
    if not (session.argv or session.cli_pid or facts.answered or facts.result):
        return NOTHING  # it was cut off before its process was started
    # In a terminal a person can begin other conversations, each with a total of its own.
    has_total = not facts.result and not (session.is_interactive and counted is not None)
    if has_total and not facts.writes_lost and (by_total := _by_total(session, facts)):
        return by_total
    return own_cost(
        facts,
        resumed=session.resumed,
        accumulates=lambda: _accumulates(session),
        baseline=lambda: session.baseline_cost_usd,
        unit_price=lambda model: unit_price_of(session, model, probe=counted is not None),
        counted=counted,
        told=told,
    )


REPORTED = (
    Session.CostBasis.OWN_SHARE,
    Session.CostBasis.PER_RUN,
    Session.CostBasis.DIFFERENCE,
)
ROUNDING_USD = Decimal("0.0001")
"""CLIs print floats, and some round each request to a millionth of a dollar."""


def telemetry_differs(cost: OwnCost, told: CliTelemetry | None, facts: StreamFacts) -> bool:
    """Return whether the two counts of a run that ended by itself differ beyond rounding.

    A run that was cut off may not have sent its last telemetry.
    """
    if told is None or told.is_empty or not facts.result or cost.basis not in REPORTED:
        return False
    return cost.cost_usd is not None and abs(cost.cost_usd - told.cost_usd) > ROUNDING_USD


def tokens_of(facts: StreamFacts, cost: OwnCost, counted: Spending | None) -> Tokens:
    """Tokens of the session. The CLI's figures by model include subagents.

    A session that was cut off reported nothing: the API proxy's count is used.
    """
    if not facts.result and counted is not None and counted.tokens != Tokens():
        return counted.tokens
    if cost.basis == Session.CostBasis.PER_RUN and facts.reported_tokens is not None:
        return facts.reported_tokens
    return facts.own_tokens


def _by_total(session: Session, facts: StreamFacts) -> OwnCost | None:
    """Cost by the conversation's total, which newer CLIs write when they are asked to stop.

    A CLI that was killed has not written it: then the total is not above the one before.
    """
    total = transcripts.cost_state_total(session)
    before = session.baseline_cost_usd if session.resumed else Decimal(0)
    if total is None or before is None or (facts.answered and total <= before):
        return None
    return _by_difference(total, before)


def _capabilities(session: Session, *, probe: bool = True) -> Capabilities | None:
    """Return the capabilities of the CLI that ran the session; None if that CLI is gone.

    Without `probe` only what an earlier probe found is used.
    """
    try:
        binary = find_binary()
        is_same = session.cli_fingerprint in ("", fingerprint_of(Path(binary.path)))
    except (CannotRun, OSError):
        return None
    look_up = capabilities_of if probe else known_capabilities
    found = look_up(binary) if is_same else None
    return found if found is not None and found.works else None


def unit_price_of(session: Session, model: str, *, probe: bool) -> Decimal | None:
    """Return the price that the session's CLI has for a model, or for that of the tier.

    Without the CLI it is the price in the last session with a reported cost. A probe takes seconds,
    which a measured cost is worth and an estimate is not.
    """
    capabilities = _capabilities(session, probe=probe)
    learned = (capabilities.price_of(name) for name in (model, session.model) if capabilities)
    known = next((price for price in learned if price is not None), None)
    return known if known is not None else last_unit_price(session.model, session.cli_version)


def expected_unit_price(model: str) -> Decimal | None:
    """Return the price that the CLI of this host has for a model, without a probe."""
    try:
        known = known_capabilities(find_binary())
    except (CannotRun, OSError):
        known = None
    learned = known.price_of(model) if known else None
    return learned if learned is not None else last_unit_price(model)


def _accumulates(session: Session) -> bool | None:
    """Return whether the CLI that ran the session reports totals; None if that CLI is gone."""
    capabilities = _capabilities(session)
    if capabilities is None:
        return None
    parent = session.parent_session
    keeps_id = parent is not None and parent.session_id == session.session_id
    return capabilities.accumulates_on_resume if keeps_id else capabilities.accumulates_on_fork


def own_cost(
    facts: StreamFacts,
    *,
    resumed: bool,
    accumulates: Callable[[], bool | None],
    baseline: Callable[[], Decimal | None],
    unit_price: Price,
    counted: Spending | None = None,
    told: CliTelemetry | None = None,
) -> OwnCost:
    """Cost of a session. The callables may be expensive and are called only when needed.

    If the CLI could not be probed (None), the cost of a resumed session is unknown.
    """
    reported = facts.reported_cost_usd
    if reported is None:
        return _without_figure(facts, unit_price, counted, told)
    if facts.own_share is not None:
        share = facts.own_share.cost_usd
        return OwnCost(
            cost_usd=share,
            reported_cost_usd=reported,
            baseline_cost_usd=reported - share,
            basis=Session.CostBasis.OWN_SHARE,
        )
    adds_up = accumulates() if resumed else False
    if adds_up is None:
        return _by_difference(reported, None)
    if adds_up:
        return _by_difference(reported, baseline())
    return OwnCost(
        cost_usd=reported,
        reported_cost_usd=reported,
        baseline_cost_usd=Decimal(0),
        basis=Session.CostBasis.PER_RUN,
    )


def _by_difference(reported: Decimal, before: Decimal | None) -> OwnCost:
    if before is None:
        # The total may include the cost of other sessions.
        return OwnCost(cost_usd=None, reported_cost_usd=reported, basis=Session.CostBasis.UNKNOWN)
    return OwnCost(
        cost_usd=max(Decimal(0), reported - before),
        reported_cost_usd=reported,
        baseline_cost_usd=before,
        basis=Session.CostBasis.DIFFERENCE,
    )


def _without_figure(
    facts: StreamFacts,
    unit_price: Price,
    counted: Spending | None,
    told: CliTelemetry | None = None,
) -> OwnCost:
    unknown = OwnCost(cost_usd=None, reported_cost_usd=None, basis=Session.CostBasis.UNKNOWN)
    if told is not None and not told.is_empty and _states_all(told, counted):
        return replace(NOTHING, cost_usd=told.cost_usd, basis=Session.CostBasis.TELEMETRY)
    if counted is not None and counted.tokens != Tokens():
        cost = priced(counted.by_model, unit_price)
        return unknown if cost is None else replace(NOTHING, cost_usd=cost)
    if not facts.answered:
        # A request without an answer may have been charged.
        return NOTHING if counted is not None and not counted.answers else unknown
    estimate = priced({facts.model: facts.streamed_tokens}, unit_price)
    if estimate is None or facts.streamed_tokens == Tokens():
        return unknown
    return replace(unknown, estimated_cost_usd=estimate, basis=Session.CostBasis.ESTIMATE)


def _states_all(told: CliTelemetry, counted: Spending | None) -> bool:
    """Return whether the telemetry has every token that the API proxy counted.

    It lacks the last answers of a CLI that was killed before it sent them. Without an API proxy it
    is the best figure there is.
    """
    if counted is None:
        return True
    pairs = zip(astuple(told.tokens), astuple(counted.tokens), strict=True)
    return all(stated >= seen for stated, seen in pairs)


def priced(by_model: Mapping[str, Tokens], unit_price: Price) -> Decimal | None:
    """Return the dollars for tokens; None if the price of a model is unknown."""
    total = Decimal(0)
    for model, tokens in by_model.items():
        if tokens == Tokens():
            continue
        price = unit_price(model)
        if price is None:
            return None
        total += tokens.weighted * price
    return total.quantize(COST_STEP)


def last_unit_price(model: str, cli_version: str = "") -> Decimal | None:
    """Price of an input token of this model in the last session that reported a cost.

    Sessions of the same CLI version come first: another may use the name for another model.
    """
    told = (
        Session.objects.filter(model=model, cost_usd__gt=0)
        .exclude(input_tokens=0, output_tokens=0)
        .order_by("-pk")[:LATEST_RUNS]
    )
    latest = list(told.only("cli_version", "cost_usd", *TOKEN_FIELDS))
    same = [session for session in latest if session.cli_version == cli_version]
    seen = next(iter(same or latest), None)
    if seen is None or seen.cost_usd is None:
        return None
    tokens = Tokens(
        seen.input_tokens, seen.output_tokens, seen.cache_read_tokens, seen.cache_creation_tokens
    )
    return seen.cost_usd / tokens.weighted
