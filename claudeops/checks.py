"""A wrong value in the environment stops the start, and the message names the variable."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from claudeops.database_url import SQLITE
from claudeops.env import unknown_names
from claudeops.private_files import OTHERS, complaints, private_paths
from claudeops.state_directory import make_state_directory

# Set by Claude Ops itself, for the processes that it starts.
OTHER_NAMES = {
    *("CLAUDEOPS_SCRATCH", "CLAUDEOPS_SCRATCH_NO_SMALL_DISK", "CLAUDEOPS_RUN", "CLAUDEOPS_COMMAND"),
}
HINT = "Correct it in the environment or in .env and start again."


@register()
def check_environment(**_options: Any) -> list[CheckMessage]:
    return [
        Error(problem.message, hint=HINT, id="claudeops.E001", obj=problem.name)
        for problem in settings.CONFIGURATION_PROBLEMS
    ]


@register()
def check_names(**_options: Any) -> list[CheckMessage]:
    """A misspelt name is a setting that does not hold: `CLAUDEOPS_ROOM=on` builds no room."""
    known = {variable.name for variable in settings.CLAUDEOPS_VARIABLES} | OTHER_NAMES
    return [
        _misspelt(name, meant) if meant else _unknown(name)
        for name, meant in unknown_names(os.environ, known).items()
    ]


def _misspelt(name: str, meant: str) -> CheckMessage:
    sentence = f"{name} is no setting of Claude Ops. Did you mean {meant}?"
    return Error(sentence, hint=f"Rename it to {meant}.", id="claudeops.E003", obj=name)


def _unknown(name: str) -> CheckMessage:
    sentence = f"{name} is no setting of Claude Ops, so it does nothing."
    hint = "Remove it; `claudeops config` lists all settings."
    return Warning(sentence, hint=hint, id="claudeops.W003", obj=name)


@register()
def check_state_directory(**_options: Any) -> list[CheckMessage]:
    try:
        make_state_directory(settings.CLAUDEOPS_STATE_DIR)
    except ImproperlyConfigured as error:
        return [Error(str(error), hint=HINT, id="claudeops.E002", obj="CLAUDEOPS_STATE_DIR")]
    return []


@register()
def check_private_files(**_options: Any) -> list[CheckMessage]:
    """What could not be closed at the start is named, with the command that closes it."""
    paths = private_paths(Path(settings.CLAUDEOPS_STATE_DIR), *database_files())
    return [
        Warning(complaint, hint=remedy, id="claudeops.W001")
        for complaint, remedy in complaints(paths)
    ]


@register()
def check_dotenv(**_options: Any) -> list[CheckMessage]:
    """The operator's own file: named, not changed."""
    path = Path(settings.CLAUDEOPS_ENV_FILE)
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return []
    if not mode & OTHERS:
        return []
    return [
        Warning(
            f"{path} may hold keys and is open to other users (mode {mode:o}).",
            hint=f"chmod 600 {path}",
            id="claudeops.W002",
        )
    ]


def database_files() -> list[Path]:
    """Also where the operator put it outside the state directory. Archived files are made closed;
    their directory may be a mount that others use, too."""
    database = settings.DATABASES["default"]
    return [Path(database["NAME"])] if database["ENGINE"] == SQLITE else []
