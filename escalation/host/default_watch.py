"""The first watch, there from the first start where CLAUDEOPS_WORKDIR names its directory.

Nothing is watched by guess: the directory in which somebody types `make up` is our own code.
"""

from __future__ import annotations

from django.conf import settings

from sessions_app.models import Watch


def ensure_default_watch() -> None:
    """Only where nothing is watched yet."""
    if settings.CLAUDEOPS_WORKDIR and not Watch.objects.exists():
        Watch.objects.create(name=Watch.DEFAULT_NAME)
