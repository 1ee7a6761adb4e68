"""What must hold after every round, whatever died in it."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent import family
from escalation.continuity.transcript_tail import own_messages
from escalation.rehearsal.drills.drill import drill_directory
from sessions_app.models import Cycle, Session

# The basis of a figure that the CLI itself stated for a run.
STATED = (Session.CostBasis.OWN_SHARE, Session.CostBasis.PER_RUN)


def violations(cycle: Cycle) -> list[str]:
    sessions = list(cycle.sessions.order_by("pk"))
    log = _log(cycle)
    return [
        *_endings(cycle, sessions),
        *_links(sessions),
        *_runs(sessions, log),
        *_costs(sessions, log),
        *_leftovers(cycle, sessions),
        *_events(sessions),
    ]


def _endings(cycle: Cycle, sessions: list[Session]) -> Iterator[str]:
    if cycle.state != Cycle.State.FINISHED or not cycle.outcome:
        yield f"cycle {cycle.pk} is {cycle.state} without an outcome"
    for session in sessions:
        if session.is_open:
            yield f"session {session.pk} is still {session.status}"
        if session.status == Session.Status.COMPLETED and session.report is None:
            yield f"session {session.pk} is completed without a report"


def _links(sessions: list[Session]) -> Iterator[str]:
    known = {session.pk for session in sessions}
    roots = [session for session in sessions if session.parent_session_id is None]
    if len(roots) != 1:
        yield f"the chain has {len(roots)} beginnings"
    for session in sessions:
        if session.parent_session_id is not None and session.parent_session_id not in known:
            yield f"session {session.pk} hangs on a session outside its cycle"


def _runs(sessions: list[Session], log: list[dict[str, Any]]) -> Iterator[str]:
    """Every start chooses an id of its own, so two ids for one session are two starts."""
    started = defaultdict(set)
    for entry in log:
        if "body" in entry:
            user = json.loads(entry["body"]["metadata"]["user_id"])
            started[entry["run"]].add(user["session_id"])
    for run, ids in started.items():
        if len(ids) > 1:
            yield f"session {run} was started {len(ids)} times"
    tiers = [session.tier for session in sessions if session.purpose == Session.Purpose.TIER]
    if len(tiers) != len(set(tiers)):
        yield f"a tier was run twice: {tiers}"


def _costs(sessions: list[Session], log: list[dict[str, Any]]) -> Iterator[str]:
    served: dict[str, int] = defaultdict(int)
    for entry in log:
        served[entry["run"]] += entry.get("served", {}).get("input_tokens", 0)
    for session in sessions:
        used, given = session.input_tokens, served[str(session.pk)]
        if session.cost_basis in STATED and used != given:
            yield f"session {session.pk} counts {used} input tokens, the API served {given}"
        elif used > given:
            yield f"session {session.pk} counts {used} input tokens of {given} that were served"
        if session.cost_usd is None and session.cost_basis in STATED:
            yield f"session {session.pk} has no cost, though its CLI stated one"


def _leftovers(cycle: Cycle, sessions: list[Session]) -> Iterator[str]:
    for session in sessions:
        if session.run_mark and (living := family(None, [], session.run_mark)):
            yield f"session {session.pk} left {len(living)} processes behind"
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    for name in ("handoffs", "spool", "runs"):
        for path in (state / name).glob("*"):
            if path.is_file() and path.stat().st_size:
                yield f"the file {name}/{path.name} was left behind"


def _events(sessions: list[Session]) -> Iterator[str]:
    """All that a CLI wrote down before its death has reached the record."""
    for session in sessions:
        stored = {
            payload.get("uuid")
            for payload in session.events.values_list("payload", flat=True)
            if isinstance(payload, dict)
        }
        lost = [entry for entry in own_messages(session) if entry.get("uuid") not in stored]
        if lost:
            first = json.dumps(lost[0].get("message"))[:200]
            yield f"session {session.pk} lost {len(lost)} events, the first: {first}"


def _log(cycle: Cycle) -> list[dict[str, Any]]:
    path = drill_directory(cycle) / "requests.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]
