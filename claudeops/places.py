"""Where things are: in a checkout beside the code, in an installed package where users keep such.

An installed `claudeops` never looks into the directory in which somebody happens to stand: that may
be a watched system, where an agent could have left a `.env` with settings of its own choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
BASE_DIR = PACKAGE.parent
# The wheel has templates and prompts inside this package; a checkout has them beside it.
IS_INSTALLED = (PACKAGE / "templates").is_dir()
RESOURCES = PACKAGE if IS_INSTALLED else BASE_DIR

ENV_FILE_NAME = "CLAUDEOPS_ENV_FILE"


def state_directory(environment: Mapping[str, str], *, installed: bool = IS_INSTALLED) -> Path:
    if not installed:
        return BASE_DIR / "state"
    return _of_the_user(environment, "XDG_DATA_HOME", ".local/share") / "claudeops"


def env_file(environment: Mapping[str, str], *, installed: bool = IS_INSTALLED) -> Path:
    if given := environment.get(ENV_FILE_NAME, "").strip():
        return Path(given).expanduser().absolute()
    if not installed:
        return BASE_DIR / ".env"
    return _of_the_user(environment, "XDG_CONFIG_HOME", ".config") / "claudeops" / ".env"


def _of_the_user(environment: Mapping[str, str], name: str, usual: str) -> Path:
    """By the XDG rules: what is not absolute does not count."""
    given = Path(environment.get(name, ""))
    return given if given.is_absolute() else Path.home() / usual
