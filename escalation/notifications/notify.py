"""The one place that writes down what people may want to be told."""

from __future__ import annotations

from sessions_app.models import Approval, Happening, Incident, Watch
from sessions_app.reading.masking import masked


def tell(
    kind: str,
    title: str,
    *,
    severity: int = Incident.Severity.WARNING,
    text: str = "",
    watch: Watch | None = None,
    incident: Incident | None = None,
    approval: Approval | None = None,
    path: str = "",
) -> Happening:
    """In the caller's transaction: what is rolled back is told to nobody. It sends nothing."""
    return Happening.objects.create(
        kind=kind,
        title=masked(title)[:200],
        text=masked(text),
        severity=severity,
        watch=watch,
        incident=incident,
        approval=approval,
        path=path,
    )
