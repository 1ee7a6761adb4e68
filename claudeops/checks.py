"""System checks of settings and of the permissions of files."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning, register
from django.core.exceptions import ImproperlyConfigured

from claudeops.env import OLD_NAMES, SQLITE, old_names_in, unknown_names
from claudeops.state import OTHERS, complaints, make_state_directory, private_paths

# Set by Claude Ops for the processes that it starts.
INTERNAL_NAMES = {
    *("CLAUDEOPS_SCRATCH", "CLAUDEOPS_SCRATCH_NO_SMALL_DISK", "CLAUDEOPS_RUN", "CLAUDEOPS_COMMAND"),
}


def hint() -> str:
    """Return where a setting is corrected."""
    return f"Correct it in the environment or in {settings.CLAUDEOPS_ENV_FILE} and start again."


@register("claudeops")
def check_environment(**_options: Any) -> list[CheckMessage]:
    return [
        Error(problem.message, hint=hint(), id="claudeops.E001", obj=problem.name)
        for problem in settings.CONFIGURATION_PROBLEMS
    ]


@register("claudeops")
def check_names(**_options: Any) -> list[CheckMessage]:
    """Report names that nothing reads: a misspelt name leaves its setting at the default."""
    known = {variable.name for variable in settings.CLAUDEOPS_VARIABLES} | INTERNAL_NAMES
    return [
        _misspelt(name, meant) if meant else _unknown(name)
        for name, meant in unknown_names(os.environ.keys() - OLD_NAMES.keys(), known).items()
    ]


def _misspelt(name: str, meant: str) -> CheckMessage:
    sentence = f"{name} is not a setting of Claude Ops. Did you mean {meant}?"
    return Error(sentence, hint=f"Rename it to {meant}.", id="claudeops.E003", obj=name)


def _unknown(name: str) -> CheckMessage:
    sentence = f"{name} is not a setting of Claude Ops and has no effect."
    hint = "Remove it; `claudeops config` lists all settings."
    return Warning(sentence, hint=hint, id="claudeops.W003", obj=name)


@register("claudeops")
def check_old_names(**_options: Any) -> list[CheckMessage]:
    """Warn about settings with their old names; refuse an old and a new name together."""
    return [
        Error(
            f"{old} and {new} are both set; {old} is the old name of {new}.",
            hint=f"Remove {old}.",
            id="claudeops.E004",
            obj=old,
        )
        if os.environ.get(new, "").strip()
        else Warning(
            f"{old} is now called {new}; the next version does not read the old name.",
            hint=f"Rename it to {new}.",
            id="claudeops.W004",
            obj=old,
        )
        for old, new in old_names_in(os.environ).items()
    ]


@register("claudeops")
def check_state_directory(**_options: Any) -> list[CheckMessage]:
    try:
        make_state_directory(settings.CLAUDEOPS_STATE_DIR)
    except ImproperlyConfigured as error:
        return [Error(str(error), hint=hint(), id="claudeops.E002", obj="CLAUDEOPS_STATE_DIR")]
    return []


@register("claudeops")
def check_private_files(**_options: Any) -> list[CheckMessage]:
    """Warn about files that the start could not close to other users."""
    paths = private_paths(Path(settings.CLAUDEOPS_STATE_DIR), *database_files())
    return [
        Warning(complaint, hint=remedy, id="claudeops.W001")
        for complaint, remedy in complaints(paths)
    ]


@register("claudeops")
def check_dotenv(**_options: Any) -> list[CheckMessage]:
    """Warn about a `.env` file that other users can read. It is never changed."""
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
    """Return the file of an SQLite database, which may be outside the state directory.

    The archive is left out: its files are made private, its directory may be a shared mount.
    """
    database = settings.DATABASES["default"]
    return [Path(database["NAME"])] if database["ENGINE"] == SQLITE else []
