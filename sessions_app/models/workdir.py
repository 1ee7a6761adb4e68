"""Where a watch may work: inside the operator's roots, and away from what belongs to Claude Ops.

An agent that works in the state directory or the code, beside them or around them could read the
keys and rewrite its own supervisor. Drills have no watch, and so no rule: their systems are ours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from django.conf import settings


def objection_to_workdir(
    directory: str | Path, *, roots: Iterable[Path], ours: Mapping[str, Path]
) -> str:
    """Why nothing may run there, as a sentence; empty where it may. Links are followed first."""
    given = Path(directory)
    if not given.is_absolute():
        return f"The directory {str(directory)!r} must be absolute, like /srv/shop."
    try:
        real = given.resolve()
        allowed = [root.resolve() for root in roots]
        kept = {name: path.resolve() for name, path in ours.items()}
    except (OSError, RuntimeError, ValueError) as error:  # a ring of links, a NUL
        return f"The directory {str(directory)!r} cannot be used: {error}."
    shown = str(given) if real == given else f"{given} (which is {real})"
    if real == Path("/"):
        return f"{shown} is the whole machine: choose the directory of one system."
    for name, path in kept.items():
        if real.is_relative_to(path):
            return f"{shown} lies in {name} ({path}): choose a directory outside of it."
        if path.is_relative_to(real):
            return f"{shown} holds {name} ({path}): choose a directory beside it."
    if not any(real.is_relative_to(root) for root in allowed):
        listed = ", ".join(map(str, allowed))
        return f"{shown} is outside the roots that CLAUDEOPS_ROOTS allows ({listed})."
    return ""


def objection_here(directory: str | Path) -> str:
    """The same, with the roots and the places of this installation."""
    return objection_to_workdir(directory, roots=settings.CLAUDEOPS_ROOTS, ours=our_places())


def our_places() -> dict[str, Path]:
    """Everything that an agent must not have under its feet, with what to call it."""
    places = {
        "the state directory of Claude Ops": Path(settings.CLAUDEOPS_STATE_DIR),
        "the code of Claude Ops": Path(settings.BASE_DIR),
        "the prompts of Claude Ops": Path(settings.CLAUDEOPS_PROMPTS_DIR),
    }
    if sys.prefix != sys.base_prefix:
        places["the Python environment of Claude Ops"] = Path(sys.prefix)
    if settings.CLAUDEOPS_ARCHIVE_DIR:
        places["the archive of Claude Ops"] = Path(settings.CLAUDEOPS_ARCHIVE_DIR)
    database = settings.DATABASES["default"]
    if database["ENGINE"].endswith("sqlite3"):
        places["the database of Claude Ops"] = Path(database["NAME"])
    return places
