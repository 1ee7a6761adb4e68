"""Compares stored usage and cost with the figures of the API and the CLI.

A run that printed a result is known exactly. One that was cut off used at least what its transcript
proves, and at most what the API offered it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.devtools.chaos.api_log import KINDS, LoggedExchange, Usage, total
from tests.devtools.chaos.evidence import SessionEvidence, resumed_line
from tests.devtools.chaos.raw_transcripts import stated_total, usages

Prices = Mapping[str, Mapping[str, float]]
"""US dollars per token, by model and kind."""

COLUMNS = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cache_read_input_tokens": "cache_read_tokens",
    "cache_creation_input_tokens": "cache_creation_tokens",
}
SLACK = 0.000001
"""US dollars: the CLI adds floats, the database has ten decimals."""
ESTIMATE_SLACK = 1.1
"""An estimate may exceed the offered amount by a tenth."""


def cost_violations(runs: list[SessionEvidence], prices: Prices) -> list[str]:
    found = [*_chain_totals(runs)]
    for run in runs:
        exact = bool(run.results)
        found += [*(_exact_tokens(run) if exact else _bounded_tokens(run))]
        found += [*(_exact_dollars(run, prices) if exact else _bounded_dollars(run, prices))]
    return found


def dollars(exchanges: list[LoggedExchange], prices: Prices) -> float:
    return sum(
        count * prices[one.model][kind] for one in exchanges for kind, count in one.offered.items()
    )


def _exact_tokens(run: SessionEvidence) -> Iterator[str]:
    served = total([one.offered for one in run.exchanges if one.served])
    for kind in KINDS:
        counted = run.row[COLUMNS[kind]]
        if counted != served[kind]:
            yield f"session {run.key} counts {counted} {_name(kind)}, the API served {served[kind]}"


def _bounded_tokens(run: SessionEvidence) -> Iterator[str]:
    least = total(usages(run.words))
    most = total([one.offered for one in run.exchanges])
    for kind in KINDS:
        counted = run.row[COLUMNS[kind]]
        if counted > most[kind]:
            yield f"session {run.key} counts {counted} {_name(kind)} of {most[kind]} offered"
        if counted < least[kind]:
            yield (
                f"session {run.key} counts {counted} {_name(kind)}, its transcript proves "
                f"{least[kind]}"
            )


def _exact_dollars(run: SessionEvidence, prices: Prices) -> Iterator[str]:
    due = dollars([one for one in run.exchanges if one.served], prices)
    cost = run.row["cost_usd"]
    if cost is None:
        yield f"session {run.key} has no cost, though its CLI stated one"
    elif abs(cost - due) > SLACK:
        yield f"session {run.key} cost {_dollars(cost)}, what the API served costs {_dollars(due)}"


def _bounded_dollars(run: SessionEvidence, prices: Prices) -> Iterator[str]:
    most = dollars(run.exchanges, prices)
    cost, estimate = run.row["cost_usd"], run.row["estimated_cost_usd"]
    if cost is not None and cost > most + SLACK:
        offered = f"all that was offered costs {_dollars(most)}"
        yield f"session {run.key} cost {_dollars(cost)}, {offered}"
    if cost is not None and run.exchanges:
        least = _proved_dollars(run, prices)
        if cost < least - SLACK:
            proved = f"its transcript proves {_dollars(least)}"
            yield f"session {run.key} cost {_dollars(cost)}, {proved}"
    if estimate is not None and estimate > most * ESTIMATE_SLACK + SLACK:
        offered = f"offered were {_dollars(most)}"
        yield f"session {run.key} is estimated at {_dollars(estimate)}, {offered}"


def _proved_dollars(run: SessionEvidence, prices: Prices) -> float:
    price = prices[run.exchanges[0].model]
    proved: Usage = total(usages(run.words))
    return sum(count * price[kind] for kind, count in proved.items())


def _chain_totals(runs: list[SessionEvidence]) -> Iterator[str]:
    """The CLI keeps one account for a conversation and all its forks: the chain must add up to it.

    What a killed run spent is missing from it, and what it could not write on a full disk: such a
    chain is left to the check of each run.
    """
    for run in runs:
        line = resumed_line(run, runs)
        stated = stated_total(run.transcript)
        if stated is None or not all(_kept_its_account(one) for one in line):
            continue
        stored = sum(one.row["cost_usd"] or 0 for one in line)
        if abs(stored - stated) > SLACK * len(line):
            yield (
                f"the chain up to session {run.key} cost {_dollars(stored)}, the CLI's own "
                f"account says {_dollars(stated)}"
            )


def _kept_its_account(run: SessionEvidence) -> bool:
    return bool(run.results) and stated_total(run.transcript) is not None


def _name(kind: str) -> str:
    return kind.replace("_", " ")


def _dollars(amount: float) -> str:
    """Format without code of Claude Ops."""
    return "$" + format(amount, ".7f").rstrip("0").rstrip(".")
