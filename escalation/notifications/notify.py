"""Stores notifications."""

from __future__ import annotations

from sessions_app.models import Approval, Incident, Notification, Watch
from sessions_app.redaction.redact import redacted


def notify(
    kind: str,
    title: str,
    *,
    severity: int = Incident.Severity.WARNING,
    text: str = "",
    watch: Watch | None = None,
    incident: Incident | None = None,
    approval: Approval | None = None,
    path: str = "",
) -> Notification:
    """Store a notification in the caller's transaction; the worker sends it later."""
    return Notification.objects.create(
        kind=kind,
        title=redacted(title),
        text=redacted(text),
        severity=severity,
        watch=watch,
        incident=incident,
        approval=approval,
        path=path,
    )
