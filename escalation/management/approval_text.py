"""Approvals in a terminal: one line each, all of one, or as data."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from sessions_app.models import Approval
from sessions_app.reading.plain_text import one_line


def list_line(approval: Approval) -> str:
    return (
        f"{approval.pk:>5}  {approval.get_state_display():<10} "
        f"{approval.session.cycle.subject}: {_what(approval, 80)} ({_time(approval)})"
    )


def show_lines(approval: Approval) -> list[str]:
    facts = {
        "Approval": f"{approval.pk}, {approval.get_state_display()}, {_time(approval)}",
        "For": f"{approval.session.cycle.subject}, session {approval.session_id}",
        "What": _what(approval, 4_000),
        "Why": approval.why,
        "Does": "; ".join(map(str, approval.actions)),
        "Doors": ", ".join(map(str, approval.doors)),
        "In": approval.cwd,
        "By": approval.decided_by.get_username() if approval.decided_by else "",
        "Note": approval.note,
        "Plan": approval.plan,
    }
    return [f"{name + ':':<10}{value}" for name, value in facts.items() if value]


def approval_as_data(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.pk,
        "kind": approval.kind,
        "state": approval.state,
        "subject": approval.session.cycle.subject,
        "session": approval.session_id,
        "tier": approval.session.tier,
        "command": approval.command,
        "why": approval.why,
        "asked_at": approval.asked_at,
        "expires_at": approval.expires_at,
    }


def approval_in_full(approval: Approval) -> dict[str, Any]:
    return {
        **approval_as_data(approval),
        "actions": approval.actions,
        "doors": approval.doors,
        "cwd": approval.cwd,
        "plan": approval.plan,
        "note": approval.note,
        "decided_by": approval.decided_by.get_username() if approval.decided_by else None,
        "decided_at": approval.decided_at,
        "used_at": approval.used_at,
    }


def _what(approval: Approval, limit: int) -> str:
    if approval.kind == Approval.Kind.COMMAND:
        return one_line(approval.command, limit)
    return f"start Tier {approval.session.tier}"


def _time(approval: Approval) -> str:
    if approval.is_overdue:
        return "too late"
    moment = approval.expires_at if approval.is_waiting else approval.decided_at
    words = "until" if approval.is_waiting else "on"
    return f"{words} {timezone.localtime(moment):%Y-%m-%d %H:%M}" if moment else ""
