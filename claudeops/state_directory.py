"""The directory in which an installation keeps everything, closed to other users."""

from __future__ import annotations

from pathlib import Path

from django.core.exceptions import ImproperlyConfigured


def make_state_directory(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ImproperlyConfigured(
            f"CLAUDEOPS_STATE_DIR is {str(path)!r}, but no directory can be made there: "
            f"{error.strerror}."
        ) from error
