"""Secrets, hidden before text is stored, shown, handed on or printed.

By value: what the installation itself knows. By shape: what looks like a key, and what stands where
secrets stand. A mark says what was there; masking again changes nothing.

What cannot be seen: a secret that only the words around it tell and that is split over two texts
(the others are seen by `split_secrets`), one without a known shape or a telling name before it, a
number under a telling key.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from django.conf import settings

from sessions_app.reading.key_blocks import without_key_blocks
from sessions_app.reading.known_values import (
    SHORTEST,
    KnownValues,
    known_values,
    values_named,
)
from sessions_app.reading.learned_values import learned_values
from sessions_app.reading.mask_words import mask
from sessions_app.reading.named_secrets import (
    kind_of,
    names_a_secret,
    says_nothing,
    without_pairs,
)
from sessions_app.reading.provider_keys import PROVIDER_KEYS
from sessions_app.reading.told_secrets import without_told

OUR_VARIABLES = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_CUSTOM_HEADERS",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "DATABASE_URL",
)
MORE_SECRET_NAMES = re.compile(r"_(?:KEY|PASS|DSN|CREDENTIALS|AUTH|WEBHOOK(?:_URL)?)$")

SHORTEST_KEY_WITH_SECRET = 16
MOST_LOOKS = 10

# What the engine itself reads: ids and words of the protocol, which no secret can look like.
PROTOCOL_KEYS = frozenset(
    [
        "type",
        "subtype",
        "uuid",
        "session_id",
        "sessionId",
        "id",
        "tool_use_id",
        "parent_tool_use_id",
        "parentUuid",
        "message_id",
        "request_id",
        "requestId",
        "role",
        "model",
        "stop_reason",
        "terminal_reason",
        "status",
        "level",
        "result",
        "kind",
        "verdict",
        "call",
        "timestamp",
        "signature",
        "read_from",
        "from",
        "to",
    ]
)
PROTOCOL_VALUE = re.compile(
    r"[a-z_]{1,40}|(?:toolu|msg|req|srvtoolu|call)_\w{1,60}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def masked(text: str) -> str:
    """The text with every secret in it replaced by a mark."""
    return _masked(text, known_here()) if len(text) >= SHORTEST else text


def masked_data(value: Any) -> Any:
    """The same JSON value with every text in it masked; also by the key that it stands under."""
    return _masked_data(value, known_here())  # looked up once, not for every text in it


def _masked(text: str, known: KnownValues) -> str:
    """What stands right behind a secret may be seen only once that is hidden: so look again."""
    if len(text) < SHORTEST:
        return text
    for _look in range(MOST_LOOKS):
        before, text = text, _looked_through(text, known)
        if text == before:
            break
    return text


def _looked_through(text: str, known: KnownValues) -> str:
    text = known.hidden_in(without_key_blocks(text))
    for key in PROVIDER_KEYS:
        if any(hint in text for hint in key.hints):
            text = key.pattern.sub(mask(key.name), text)
    text = without_told(text, text.lower())
    return without_pairs(text, text.lower())


def _masked_data(value: Any, known: KnownValues) -> Any:
    if isinstance(value, str):
        return _masked(value, known)
    if isinstance(value, list):
        return [_masked_data(item, known) for item in value]
    if isinstance(value, dict):
        return {
            _masked_key(key, known): _masked_under(key, item, known) for key, item in value.items()
        }
    return value


def _masked_key(key: Any, known: KnownValues) -> Any:
    is_long = isinstance(key, str) and len(key) >= SHORTEST_KEY_WITH_SECRET
    return _masked(key, known) if is_long else key


def _masked_under(key: Any, value: Any, known: KnownValues) -> Any:
    if not isinstance(key, str) or not isinstance(value, str):
        return _masked_data(value, known)
    if key in PROTOCOL_KEYS and PROTOCOL_VALUE.fullmatch(value):
        return value
    if names_a_secret(key) and not says_nothing(value):
        return mask(kind_of(key))
    return _masked(value, known)


def known_here() -> KnownValues:
    return known_values(_known_here())


def _known_here() -> tuple[tuple[str, str], ...]:
    passed = [
        name
        for name in settings.CLAUDEOPS_PASS_ENV
        if names_a_secret(name) or MORE_SECRET_NAMES.search(name)
    ]
    return (
        *values_named(os.environ, (*OUR_VARIABLES, *passed)),
        ("CLAUDEOPS_ADMIN_PASSWORD", settings.CLAUDEOPS_ADMIN_PASSWORD or ""),
        ("CLAUDEOPS_SECRET_KEY", _secret_key()),
        *(("CLAUDEOPS_ENCRYPTION_KEY", key) for key in _encryption_keys()),
        *learned_values(),
        ("CLAUDEOPS_PING_URL", settings.CLAUDEOPS_PING_URL or ""),
        *(
            ("database password", str(database.get("PASSWORD") or ""))
            for database in settings.DATABASES.values()
        ),
    )


def _secret_key() -> str:
    return str(settings.SECRET_KEY) if _is_there("CLAUDEOPS_SECRET_KEY", "secret_key") else ""


def _encryption_keys() -> tuple[str, ...]:
    is_there = _is_there("CLAUDEOPS_ENCRYPTION_KEY", "encryption_key")
    return tuple(settings.CLAUDEOPS_ENCRYPTION_KEYS) if is_there else ()


def _is_there(variable: str, file: str) -> bool:
    """To write a line of a log must not make a key."""
    try:
        stored = Path(settings.CLAUDEOPS_STATE_DIR) / file
        return bool(os.environ.get(variable)) or stored.exists()
    except OSError:
        return False
