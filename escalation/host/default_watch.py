"""The first watch, there from the first start."""

from __future__ import annotations

from sessions_app.models import Watch


def ensure_default_watch() -> None:
    """Only where nothing is watched yet: a deleted default stays deleted."""
    if not Watch.objects.exists():
        Watch.objects.create(name=Watch.DEFAULT_NAME)
