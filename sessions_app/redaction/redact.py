"""Redacts secrets before text is stored, displayed, sent or printed.

A secret is replaced by a mark like `[redacted: github token]`. Each text is searched repeatedly
until nothing changes, because a secret may be found only after its neighbour is redacted. One
search has these passes:

1. private keys, also without head or tail (`patterns.without_key_blocks`);
2. values that the installation knows, plain and encoded (`KnownValues`): credentials in the
   environment, its own keys, passwords of the database, addresses of channels;
3. the data of Kubernetes Secrets (`patterns.without_kubernetes_secrets`);
4. keys with the prefix of a provider (`patterns.PROVIDER_KEYS`);
5. prose, and syntax such as addresses, headers and options of programs (`patterns.without_shapes`);
6. values after a telling name, as in `password=…`, in lists and in columns of tables;
7. numbers of payment cards;
8. base64 of a text in which these passes find something.

Control sequences of terminals are left out of the search; a text in which nothing is found keeps
them. In JSON, the key of a value is a telling name too. `SplitSecrets` redacts the second half of a
secret that is split over two lines of a stream, `SecretOutputs` the whole output of commands that
print secrets. Redacting a redacted text changes nothing.

Not found are secrets that have neither a known value or shape nor a telling name, passwords in
prose that are ordinary words, and secrets known by their name only that are split over two texts.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from django.conf import settings

from sessions_app.credentials import SECRETS
from sessions_app.redaction.patterns import (
    BEGINNINGS,
    CONTROL,
    CONTROL_HINTS,
    NAMES_A_LIST,
    PRIVATE_KEY,
    completed_by,
    decoded,
    is_left_open,
    is_placeholder,
    is_redacted,
    is_secret_item,
    kind_of,
    length_of_lines,
    lower,
    mark,
    names_a_secret,
    without_cards,
    without_columns,
    without_control,
    without_key_blocks,
    without_kubernetes_secrets,
    without_lists,
    without_pairs,
    without_provider_keys,
    without_shapes,
)
from sessions_app.redaction.secret_commands import is_key_file, prints_secrets

SHORTEST = 6
"""Shorter values occur in too many harmless words."""
SHORTEST_ENCODED = 8
SHORTEST_IN_PIECES = 16
"""Minimum length of a value that is searched across line ends."""
LINE_END = re.compile(r"(?:\r?\n|\\n)[ \t]*")
ORDINARY_WORD = re.compile(r"[A-Za-z]{1,11}|[0-9]{1,11}")


class KnownValues:
    """Redacts secrets by their values, plain and encoded. Built from pairs of name and value."""

    def __init__(self, named: Iterable[tuple[str, str]]) -> None:
        self._names: dict[str, str] = {}
        for name, value in named:
            for form in _forms(value):
                self._names.setdefault(form, name)
        # Longest first: an address contains a password that is known too.
        forms = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_pattern_for, forms))) if forms else None
        self._long = [form for form in forms if len(form) >= SHORTEST_IN_PIECES]

    def redact(self, text: str) -> str:
        if self._pattern is None:
            return text
        if any(form in text for form in self._names):
            text = self._pattern.sub(lambda found: mark(self._names[found[0]]), text)
        return self._redact_across_lines(text) if LINE_END.search(text) else text

    def completed_by(self, before: str, after: str) -> tuple[str, int]:
        """Find a secret that starts in `before` and ends in `after`.

        Return its name and the number of its characters in `after`, or `("", 0)`.
        """
        together = before + after
        if self._pattern is None or not any(form in together for form in self._names):
            return "", 0
        for found in self._pattern.finditer(together):
            if found.start() < len(before) < found.end():
                return self._names[found[0]], found.end() - len(before)
        return "", 0

    def _redact_across_lines(self, text: str) -> str:
        """Redact values that a program has wrapped, like base64 or the output of a terminal."""
        joined = LINE_END.sub("", text)
        for form in self._long:
            if form in joined and form not in text:
                pieces = f"(?:{LINE_END.pattern})?".join(map(re.escape, form))
                text = re.sub(pieces, mark(self._names[form]), text)
        return text


@lru_cache(maxsize=8)
def known_values(named: tuple[tuple[str, str], ...]) -> KnownValues:
    return KnownValues(named)


def values_named(environment: Mapping[str, str], names: Iterable[str]) -> Iterable[tuple[str, str]]:
    return ((name, environment[name]) for name in names if environment.get(name))


def _pattern_for(form: str) -> str:
    """Return a pattern; a password that is an ordinary word matches whole words only."""
    if ORDINARY_WORD.fullmatch(form):
        return rf"(?<![A-Za-z0-9_]){re.escape(form)}(?![A-Za-z0-9_])"
    return re.escape(form)


def _forms(value: str) -> set[str]:
    value = value.strip()
    if len(value) < SHORTEST or any(begin.strip() in value for begin in BEGINNINGS):
        return set()
    plain = {
        value,
        quote(value, safe=""),
        quote(value),
        quote_plus(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
    }
    return plain | set(_in_base64(value.encode("utf-8", "surrogatepass")))


def _in_base64(value: bytes) -> Iterable[str]:
    """Yield the characters of base64 that do not depend on neighbouring bytes, per offset."""
    for offset in range(3):
        filled = base64.b64encode(bytes(offset) + value).decode().rstrip("=")
        end = (offset + len(value)) * 8 // 6
        inner = filled[-(-offset * 8 // 6) : end]
        if len(inner) >= SHORTEST_ENCODED:
            yield inner
            yield inner.replace("+", "-").replace("/", "_")


# Secrets that this process has read from the database. Redaction itself makes no queries, because
# it runs in log handlers and before the models are loaded.
_learned: dict[tuple[str, int], tuple[str, ...]] = {}


def learn(name: str, number: int, values: Iterable[str]) -> None:
    """Set the secret values of a row, and replace the previous ones."""
    _learned[name, number] = tuple(values)


def forget_all(name: str) -> None:
    for key in [key for key in _learned if key[0] == name]:
        _learned.pop(key, None)


def learned_values() -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for (name, _), values in list(_learned.items()) for value in values)


OUR_VARIABLES = (*SECRETS, "DATABASE_URL")
MORE_SECRET_NAMES = re.compile(r"_(?:KEY|PASS|DSN|CREDENTIALS|AUTH|WEBHOOK(?:_URL)?)$")

ENCODED = "encoded secret"
# Four characters of base64 for three bytes of ASCII, whose upper bits are not set.
_ASCII = r"[A-Za-f][A-HQ-Xg-nw-z0-3][ABEFIJMNQRUVYZcdghklopstwx014589][A-Za-z0-9+/_-]"
ENCODED_TEXT = re.compile(
    r"(?:(?<![A-Za-z0-9+/_-])|(?<=\\[nrt]))"
    rf"(?P<word>(?:{_ASCII}){{4,}}[A-Za-z0-9+/_-]*={{0,2}}"
    # Further lines of a long text.
    r"(?:(?<=[A-Za-z0-9+/]{60})(?:\r?\n[ \t]{0,40}[A-Za-z0-9+/]{60,})*"
    r"(?:\r?\n[ \t]{0,40}[A-Za-z0-9+/]{4,}={0,2}(?=\s|$))?)?)"
    r"(?P<discord>\.[\w-]{6}\.[\w-]{27,40})?"
)

SHORTEST_KEY_WITH_SECRET = 16
SHORTEST_NUMBER = 10_000
"""Smaller numbers under a key like `passwd` are counts."""
MOST_PASSES = 10

# JSON keys whose ids and words are not redacted, because Claude Ops reads them.
PROTOCOL_KEYS = frozenset(
    [
        *("type", "subtype", "uuid", "session_id", "sessionId", "id", "tool_use_id"),
        *("parent_tool_use_id", "parentUuid", "message_id", "request_id", "requestId", "role"),
        *("model", "stop_reason", "terminal_reason", "status", "level", "result", "kind"),
        *("verdict", "call", "timestamp", "signature", "read_from", "from", "to"),
    ]
)
PROTOCOL_VALUE = re.compile(
    r"[a-z_]{1,40}|(?:toolu|msg|req|srvtoolu|call)_\w{1,60}"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
)


def redacted(text: str) -> str:
    """Replace every secret in a text by a mark."""
    return _redacted(text, known_here()) if len(text) >= SHORTEST else text


def redacted_data(value: Any) -> Any:
    """Redact all texts of a JSON value, also by the names of their keys."""
    return _redacted_data(value, known_here())  # one lookup for all texts


def _redacted(text: str, known: KnownValues) -> str:
    """Search a text until nothing changes."""
    if len(text) < SHORTEST:
        return text
    if any(hint in text for hint in CONTROL_HINTS):
        return _redacted_in_terminal(text, known)
    return _redacted_plain(text, known)


def _redacted_in_terminal(text: str, known: KnownValues) -> str:
    """Search a text without its control sequences, which it keeps if nothing is found."""
    plain = without_control(text)
    hidden = _redacted_plain(plain, known)
    inside = "\n".join(found["text"] for found in CONTROL.finditer(text) if found["text"])
    is_harmless = hidden == plain and _redacted_plain(inside, known) == inside
    return text if is_harmless else hidden


def _redacted_plain(text: str, known: KnownValues) -> str:
    for _pass in range(MOST_PASSES):
        before, text = text, _without_encoded(_searched(text, known), known)
        if text == before:
            break
    return text


def _searched(text: str, known: KnownValues) -> str:
    text = without_kubernetes_secrets(known.redact(without_key_blocks(text)))
    text = without_provider_keys(text)
    lowered = lower(text)
    text = without_pairs(without_shapes(text, lowered))
    lowered = lower(text)
    return without_cards(without_columns(without_lists(text, lowered), lowered))


def _without_encoded(text: str, known: KnownValues) -> str:
    """Redact base64 of a text that contains a secret."""

    def hide(found: re.Match[str]) -> str:
        plain = decoded("".join(found["word"].split()))
        if found["discord"] and plain.isdecimal():
            return mark("discord token")
        is_harmless = _searched(plain, known) == plain
        return found[0] if is_harmless else f"{mark(ENCODED)}{found['discord'] or ''}"

    return ENCODED_TEXT.sub(hide, text)


def _redacted_data(value: Any, known: KnownValues) -> Any:
    if isinstance(value, str):
        return _redacted(value, known)
    if isinstance(value, list):
        return [_redacted_data(item, known) for item in value]
    if isinstance(value, dict):
        return {
            _redacted_key(key, known): _redacted_under(key, item, value, known)
            for key, item in value.items()
        }
    return value


def _redacted_key(key: Any, known: KnownValues) -> Any:
    is_long = isinstance(key, str) and len(key) >= SHORTEST_KEY_WITH_SECRET
    return _redacted(key, known) if is_long else key


def _redacted_under(key: Any, value: Any, around: dict[Any, Any], known: KnownValues) -> Any:
    """Redact a value of an object by its key, and by the other values of the object."""
    if key in ("data", "stringData") and around.get("kind") == "Secret":
        return _hidden_data(value)
    if not isinstance(key, str) or not isinstance(value, str | list | int):
        return _redacted_data(value, known)
    if isinstance(value, list):
        is_named = NAMES_A_LIST.search(key) is not None
        return [_redacted_item(key if is_named else "", item, known) for item in value]
    if isinstance(value, int):
        is_secret = kind_of(key) == "password" and names_a_secret(key) and value >= SHORTEST_NUMBER
        return mark(kind_of(key)) if is_secret else value
    if key in PROTOCOL_KEYS and PROTOCOL_VALUE.fullmatch(value):
        return value
    # The environment of a container: {"name": "DB_PASSWORD", "value": "…"}.
    name = around.get("name") if key == "value" else key
    if isinstance(name, str) and names_a_secret(name) and not is_placeholder(value):
        return mark(kind_of(name))
    return _redacted(value, known)


def _redacted_item(name: str, item: Any, known: KnownValues) -> Any:
    if name and isinstance(item, str) and is_secret_item(name, item):
        return mark(kind_of(name))
    return _redacted_data(item, known)


def _hidden_data(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden_data(item) for key, item in value.items()}
    return mark("secret data") if isinstance(value, str) and not is_redacted(value) else value


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
    """Return True if a key exists. Reading the setting would create one."""
    try:
        stored = Path(settings.CLAUDEOPS_STATE_DIR) / file
        return bool(os.environ.get(variable)) or stored.exists()
    except OSError:
        return False


REMEMBERED = 1_000
"""Characters of the last text that are kept; more than any known secret has."""
# JSON keys of a stream line that hold text of the model or of a tool.
TEXTS = frozenset(["text", "content", "thinking", "result", "stdout", "stderr", "line"])


class SplitSecrets:
    """Redacts the second part of secrets that are split over two lines of a session's stream.

    The first part is already stored, but useless without the second. Found are known values, keys
    of providers and the lines of private keys.
    """

    def __init__(self) -> None:
        self._said: dict[str, str] = {}
        self._in_key_block: set[str] = set()

    def redact(self, source: str, payload: dict[str, Any], known: KnownValues) -> dict[str, Any]:
        """Redact the end of a secret that started in the previous text of the source."""
        texts = list(_texts(payload))
        if not texts:
            return payload
        before, first = self._said.get(source, ""), texts[0].lstrip()
        self._said[source] = f"{before if len(texts) == 1 else ''}{texts[-1]}".rstrip()[
            -REMEMBERED:
        ]
        name, length = self._completed(source, before, first, known)
        goes_on = len(texts) == 1 and length == len(first.rstrip())
        self._note_key_block(source, texts, goes_on=goes_on)
        if not length:
            return payload
        changed: dict[str, Any] = _with_first(payload, [f"{mark(name)}{first[length:]}"])
        return changed

    def _completed(
        self, source: str, before: str, first: str, known: KnownValues
    ) -> tuple[str, int]:
        name, length = known.completed_by(before, first[:REMEMBERED])
        if not length:
            name, length = completed_by(before, first[:REMEMBERED])
        if not length and source in self._in_key_block:
            return PRIVATE_KEY, length_of_lines(first)
        return name, length

    def _note_key_block(self, source: str, texts: list[str], *, goes_on: bool) -> None:
        if is_left_open(texts[-1]) or (source in self._in_key_block and goes_on):
            self._in_key_block.add(source)
        else:
            self._in_key_block.discard(source)


def _texts(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if key in TEXTS and value.strip():
            yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _texts(item, name)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item, key)


def _with_first(value: Any, replacement: list[str], key: str = "") -> Any:
    """Replace the first text of a value; the replacement is removed from its list when used."""
    if isinstance(value, str):
        is_text = key in TEXTS and value.strip()
        return replacement.pop() if is_text and replacement else value
    if isinstance(value, Mapping):
        return {name: _with_first(item, replacement, name) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_first(item, replacement, key) for item in value]
    return value


HIDDEN_OUTPUT = mark("output of a command that prints secrets")
# Keys of a tool's structured result that are no output.
NO_OUTPUT = frozenset(["type", "filePath"])


class SecretOutputs:
    """Redacts the whole output of calls that read secrets, in the messages of one conversation.

    A call is known by its id: Bash with such a command, or another tool with the path of a key
    file. The call comes before its result.
    """

    def __init__(self) -> None:
        self._calls: set[str] = set()

    def redact(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Note the calls of a message, and replace the outputs of those noted before."""
        message = payload.get("message")
        content = message.get("content") if isinstance(message, dict) else None
        blocks = (
            [block for block in content if isinstance(block, dict)]
            if isinstance(content, list)
            else []
        )
        self._calls |= {
            block["id"]
            for block in blocks
            if isinstance(block.get("id"), str) and _reads_secrets(block.get("input"))
        }
        if not any(self._is_hidden(block) for block in blocks):
            return payload
        hidden = [
            {**block, "content": HIDDEN_OUTPUT} if self._is_hidden(block) else block
            for block in content or []
        ]
        results = {
            key: _without_output(payload[key])
            for key in payload
            if key in ("tool_use_result", "toolUseResult")
        }
        return {**payload, **results, "message": {**(message or {}), "content": hidden}}

    def _is_hidden(self, block: Any) -> bool:
        is_result = isinstance(block, dict) and block.get("type") == "tool_result"
        call = block.get("tool_use_id") if is_result else None
        return isinstance(call, str) and call in self._calls


def _reads_secrets(given: Any) -> bool:
    """Return True if the input of a tool has a command that prints secrets, or a key file."""
    texts = (
        {key: text for key, text in given.items() if isinstance(text, str)}
        if isinstance(given, dict)
        else {}
    )
    return prints_secrets(texts.get("command", "")) or any(
        is_key_file(texts.get(key, "")) for key in ("file_path", "path")
    )


def _without_output(value: Any, key: str = "") -> Any:
    if isinstance(value, str):
        return value if key in NO_OUTPUT or not value else HIDDEN_OUTPUT
    if isinstance(value, list):
        return [_without_output(item, key) for item in value]
    if isinstance(value, dict):
        return {name: _without_output(item, name) for name, item in value.items()}
    return value
