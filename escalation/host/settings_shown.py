"""The settings of this installation as a person may see them: no secret among them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings

from escalation.agent import CREDENTIALS

SECRET_NAME = re.compile(r"PASSWORD|SECRET|TOKEN|KEY|PRIVATE|WEBHOOK|PING_URL|CREDENTIAL")
HIDDEN = "(set, not shown)"


@dataclass(frozen=True, slots=True)
class Setting:
    name: str
    value: Any
    source: str

    @property
    def is_secret(self) -> bool:
        return bool(SECRET_NAME.search(self.name)) and bool(self.value)

    @property
    def shown(self) -> str:
        if self.is_secret:
            return HIDDEN
        return as_words(self.value)

    def as_data(self) -> dict[str, str | None]:
        return {"name": self.name, "value": self.shown or None, "source": self.source}


def all_settings() -> Iterator[Setting]:
    for variable in settings.CLAUDEOPS_VARIABLES:
        yield Setting(variable.name, variable.value, variable.source)
    for name in (*CREDENTIALS, "ANTHROPIC_BASE_URL"):
        yield Setting(name, os.environ.get(name, ""), _source_of(name))


def _source_of(name: str) -> str:
    if not os.environ.get(name):
        return "default"
    in_file = name in settings.NAMES_IN_ENV_FILE
    return str(settings.CLAUDEOPS_ENV_FILE) if in_file else "environment"


def as_words(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return ",".join(map(str, value))
    if value is None:
        return ""
    return without_password(str(value)) if not isinstance(value, Path) else str(value)


def without_password(text: str) -> str:
    """An address may hold a password; the rest of it is worth seeing."""
    try:
        password = urlsplit(text).password if "://" in text else None
    except ValueError:
        return HIDDEN
    return text.replace(f":{password}@", ":***@") if password else text
