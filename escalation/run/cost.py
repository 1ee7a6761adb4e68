"""Computes what a session itself cost, from what its CLI reports.

Newer CLIs count the whole conversation and also state each session's own share; older ones count
the session. The probed capabilities of the CLI decide which, never the figures. A session without
a result line has no figure: its cost is estimated from its tokens, and marked as an estimate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from escalation.agent.binary import find_binary, fingerprint_of
from escalation.agent.capabilities import capabilities_of
from escalation.agent.stream import COST_STEP, StreamFacts, Tokens
from escalation.errors import CannotRun
from escalation.resume import transcripts
from sessions_app.models import Session
from sessions_app.models.costs import TOKEN_FIELDS

# Prices relative to an input token, the same for every model so far.
OUTPUT_WEIGHT, CACHE_WRITE_WEIGHT, CACHE_READ_WEIGHT = Decimal(5), Decimal("1.25"), Decimal("0.1")
# Sessions searched for one of the same CLI version.
LATEST_RUNS = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnCost:
    cost_usd: Decimal | None
    reported_cost_usd: Decimal | None
    basis: str
    baseline_cost_usd: Decimal | None = None
    estimated_cost_usd: Decimal | None = None


def settled_cost(session: Session, facts: StreamFacts, counted: Tokens) -> OwnCost:
    """Cost by the result line, by the total in the CLI's transcript, or by an estimate.

    Where the API proxy has counted the tokens, only the price is estimated.
    """
    if not facts.result and not facts.writes_lost and (by_total := _by_total(session, facts)):
        return by_total
    return own_cost(
        facts,
        resumed=session.resumed,
        accumulates=lambda: _accumulates(session),
        baseline=lambda: session.baseline_cost_usd,
        unit_price=lambda: last_unit_price(session.model, session.cli_version),
        counted=counted,
    )


def tokens_of(facts: StreamFacts, cost: OwnCost, counted: Tokens) -> Tokens:
    """Tokens of the session. The CLI's figures by model include subagents.

    A session that was cut off reported nothing: the API proxy's count is used.
    """
    if not facts.result and counted != Tokens():
        return counted
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


def _accumulates(session: Session) -> bool | None:
    """Return whether the CLI that ran the session reports totals; None if that CLI is gone."""
    try:
        binary = find_binary()
        is_same = session.cli_fingerprint in ("", fingerprint_of(Path(binary.path)))
    except (CannotRun, OSError):
        return None
    capabilities = capabilities_of(binary) if is_same else None
    if capabilities is None or not capabilities.works:
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
    unit_price: Callable[[], Decimal | None],
    counted: Tokens = Tokens(),  # noqa: B008 (frozen: nothing can be shared by mistake)
) -> OwnCost:
    """Cost of a session. The callables may be expensive and are called only when needed.

    If the CLI could not be probed (None), the cost of a resumed session is unknown.
    """
    reported = facts.reported_cost_usd
    if reported is None:
        return _without_figure(facts, unit_price, counted)
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
    facts: StreamFacts, unit_price: Callable[[], Decimal | None], counted: Tokens
) -> OwnCost:
    spent = counted if counted != Tokens() else facts.streamed_tokens
    if not facts.answered and spent == Tokens():
        return OwnCost(cost_usd=None, reported_cost_usd=None, basis=Session.CostBasis.UNKNOWN)
    price = unit_price()
    if price is None:
        return OwnCost(cost_usd=None, reported_cost_usd=None, basis=Session.CostBasis.UNKNOWN)
    estimate = (weighted_tokens(spent) * price).quantize(COST_STEP)
    return OwnCost(
        cost_usd=None,
        reported_cost_usd=None,
        estimated_cost_usd=estimate,
        basis=Session.CostBasis.ESTIMATE,
    )


def weighted_tokens(tokens: Tokens) -> Decimal:
    """Convert all kinds of tokens to a number of input tokens of the same price."""
    return (
        Decimal(tokens.input)
        + OUTPUT_WEIGHT * tokens.output
        + CACHE_WRITE_WEIGHT * tokens.cache_creation
        + CACHE_READ_WEIGHT * tokens.cache_read
    )


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
    return seen.cost_usd / weighted_tokens(tokens)
