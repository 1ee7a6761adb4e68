"""How this installation stands, as data for scripts."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from escalation.management.status import Status
from sessions_app.reading.chain_data import session_as_data


def status_as_data(status: Status) -> dict[str, Any]:
    return {
        "version": status.version,
        "running": [session_as_data(session) for session in status.running],
        "queued": status.queued,
        "held_back": status.held_back or None,
        "needs": [asdict(need) for need in status.needs],
        "next_runs": [{"watch": watch.name, "at": at} for watch, at in status.next_runs],
        "cost_today_usd": float(status.cost_today_usd),
        "runs_today": status.runs_today,
    }
