"""Checks that an experiment lost, doubled and left nothing; `costs` checks usage and cost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tests.devtools.chaos.costs import Prices, cost_violations
from tests.devtools.chaos.evidence import DrillEvidence, SessionEvidence, resumed_line
from tests.devtools.chaos.raw_transcripts import tool_numbers

OPEN = ("queued", "running", "awaiting_approval")
GOOD = ("completed", "escalated")
OUR_OWN_FAILURE = "Claude Ops itself failed"
MOST_ATTEMPTS = 2
"""A run without a first answer may be started a second time."""


def violations(evidence: DrillEvidence, prices: Prices) -> list[str]:
    return [
        *_endings(evidence),
        *_links(evidence.runs),
        *_conversations(evidence.runs),
        *_starts(evidence),
        *_words(evidence.runs),
        *_numbers(evidence.runs),
        *cost_violations(evidence.runs, prices),
        *_leftovers(evidence),
    ]


def _endings(evidence: DrillEvidence) -> Iterator[str]:
    cycle = evidence.cycle
    if cycle["state"] != "finished" or not cycle["outcome"]:
        yield f"cycle {cycle['id']} is {cycle['state']}, its outcome {cycle['outcome'] or 'open'}"
    for run in evidence.runs:
        status, error = run.row["status"], run.row["error"]
        if status in OPEN:
            yield f"session {run.key} is still {status}"
        elif not run.row["finished_at"]:
            yield f"session {run.key} is {status} and has no end"
        if status in GOOD and not (run.results and run.row["report"]):
            yield f"session {run.key} is {status} without a result and a report"
        if error.startswith(OUR_OWN_FAILURE):
            yield f"session {run.key} is {status}: {error[:200]}"


def _links(runs: list[SessionEvidence]) -> Iterator[str]:
    by_key = {run.key: run for run in runs}
    followed = {run.row["parent_session_id"] for run in runs}
    for parent in followed:
        attempts = [run for run in runs if run.row["parent_session_id"] == parent]
        yield from _attempts(parent, attempts)
        if parent is not None and parent not in by_key:
            yield f"a session hangs on session {parent}, which is not in its cycle"
    if None not in followed:
        yield "the chain has no beginning"
    for run in runs:
        before = by_key.get(run.row["parent_session_id"])
        if before is not None and before.row["tier"] > run.row["tier"]:
            yield f"session {run.key} is of a lower tier than session {before.key} before it"
        if run.row["status"] == "escalated" and run.key not in followed:
            yield f"session {run.key} is escalated and nothing follows it"


def _attempts(parent: int | None, attempts: list[SessionEvidence]) -> Iterator[str]:
    """Check that each successor does its work once."""
    place = "the beginning" if parent is None else f"session {parent}"
    worked = [run for run in attempts if not run.did_nothing]
    if len(worked) > 1 or len(attempts) > MOST_ATTEMPTS:
        yield f"the chain goes on from {place} {len(attempts)} times, {len(worked)} of them at work"


def _conversations(runs: list[SessionEvidence]) -> Iterator[str]:
    """Check that a resumed run has all tool results of the runs before."""
    for run in runs:
        earlier = resumed_line(run, runs)[1:]
        if not run.exchanges:
            continue
        told = run.exchanges[0].messages
        missing = [number for one in earlier for number in _calls_sent(one) if number not in told]
        if missing:
            yield (
                f"session {run.key} resumes session {earlier[0].key} and was not told of "
                f"{len(missing)} tool calls before it"
            )


def _calls_sent(run: SessionEvidence) -> set[str]:
    """Return the calls of this run whose results are in its last request, not in its first."""
    if not run.exchanges:
        return set()
    first, last = run.exchanges[0].messages, run.exchanges[-1].messages
    return {
        number
        for message in json.loads(last)
        for number in tool_numbers({"message": message}, "tool_use_id")
        if number not in first
    }


def _starts(evidence: DrillEvidence) -> Iterator[str]:
    """Count the starts of a session: each has its own id."""
    for run in evidence.runs:
        started = {one.conversation for one in run.exchanges}
        if len(started) > 1:
            yield f"session {run.key} was started {len(started)} times"
    for stranger in evidence.strangers:
        yield f"the API has served a session {stranger} that the record does not know"
    spoke = Counter(
        run.row["tier"]
        for run in evidence.runs
        if run.row["purpose"] == "tier" and not run.did_nothing
    )
    for tier, count in spoke.items():
        if count > 1:
            yield f"Tier {tier} was run {count} times"


def _words(runs: list[SessionEvidence]) -> Iterator[str]:
    """Check that all transcript entries are stored, once."""
    for run in runs:
        stored = Counter(_ids_stored(run))
        lost = [entry for entry in run.words if entry["uuid"] not in stored]
        if lost:
            first = json.dumps(lost[0].get("message"))[:200]
            yield f"session {run.key} lost {len(lost)} events, the first: {first}"
        doubled = [name for name, count in stored.items() if count > 1]
        if doubled:
            yield f"session {run.key} has {len(doubled)} events twice"
        said = json.dumps([event["payload"] for event in run.events])
        unheard = [number for number in _calls_sent(run) if number not in said]
        if unheard:
            yield f"session {run.key} has no event for {len(unheard)} tool calls that the API saw"


def _ids_stored(run: SessionEvidence) -> list[str]:
    payloads: list[dict[str, Any]] = [event["payload"] for event in run.events]
    return [str(payload["uuid"]) for payload in payloads if payload.get("uuid")]


def _numbers(runs: list[SessionEvidence]) -> Iterator[str]:
    """Check the sequence numbers of events for gaps."""
    for run in runs:
        numbers = [event["sequence"] for event in run.events]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"session {run.key} has {len(numbers)} events, numbered up to {numbers[-1]}"


def _leftovers(evidence: DrillEvidence) -> Iterator[str]:
    for process in evidence.processes:
        yield f"the process {process} was left behind"
    for file in evidence.files:
        yield f"the file {file} was left behind"
    for conversation in evidence.held:
        yield f"the conversation {conversation} is still held"
