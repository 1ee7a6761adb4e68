"""Secrets that are told by what stands before them: a name, an option, a header, an address. Pure.

A name alone proves nothing (`password = getpass()`, `token: required`), so each value is looked at
before it is hidden. No pattern can take more than linear time: each begins with fixed words and
consumes what it has read, or reads a bounded number of characters.
"""

from __future__ import annotations

import re

from sessions_app.reading.mask_words import BEGINNING, is_masked, mask

NAMES = (
    r"(?:passw(?:or)?d|passwort|kennwort|mot[_-]?de[_-]?passe|contrase[nñ]a|passphrase|passcode"
    r"|(?<=[_-])pass|(?<![A-Za-z0-9])pass(?=[ \t]{0,9}=)|pwd|(?<![A-Za-z0-9])psk|secret|token"
    r"|credential"
    r"|(?:api|access|account|private|signing|encryption|master|auth|preshared|shared)"
    r"[_-]?(?:access[_-]?)?key|secret[_-]?id|(?<![A-Za-z0-9])_auth)"
)
ENDINGS = (
    r"(?:[_-]?(?:key(?:[_-]?base)?|value|string|hash|b64|base64|data|prod|production|staging|test"
    r"|dev|live|main|primary|secondary|root|admin|db|old|new|current|\d{1,3}))?"
)
# Up to the end of what can be a word of a shell, of YAML or of a connection string.
BARE = r"[^\s\"'`,;&<>|\\(){}\[\]]{1,4000}"
QUOTED = r"(?P<quote>\\{0,3}[\"'])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\])){1,4000})"
VALUE = rf"(?:{QUOTED}|(?P<bare>{BARE}))"

PAIR = re.compile(
    rf"(?P<name>{NAMES}{ENDINGS})(?P<close>\\{{0,3}}[\"']?\]?)[ \t]{{0,9}}"
    rf"(?P<between>=>|:=|=(?!=)|:(?!:))[ \t]{{0,9}}{VALUE}",
    re.IGNORECASE,
)
BLOCK_SCALAR = re.compile(
    rf"{NAMES}{ENDINGS}[\"']?:[ \t]{{0,9}}[|>][-+]?\n[ \t]{{1,80}}(?P<bare>[^\n]{{1,4000}})",
    re.IGNORECASE,
)
OF_A_BLOCK = re.compile(r"[|>][-+]?\n[ \t]")
"""Much cheaper to look for."""
NAMES_ITSELF = re.compile(rf"{NAMES}{ENDINGS}$", re.IGNORECASE)
NAME_HINTS = (
    *("pass", "pwd", "secret", "token", "credential", "key", "_auth"),
    *("psk", "kennwort", "contrase"),
)
PLACES_OF_NAMES = frozenset(["files", "compat", "sss", "systemd", "ldap", "nis", "winbind", "db"])
"""Where /etc/nsswitch.conf looks accounts up: `passwd: files systemd`."""

NO_VALUES = frozenset(
    [
        "none",
        "null",
        "nil",
        "true",
        "false",
        "undefined",
        "str",
        "string",
        "int",
        "integer",
        "bytes",
        "bool",
        "boolean",
        "any",
        "object",
        "required",
        "optional",
        "yes",
        "no",
        "empty",
        "unset",
        "hidden",
        "redacted",
        "masked",
        "missing",
        "invalid",
        "expired",
        "not",
        "the",
        "and",
        "for",
        "is",
        "secretstr",
        "text",
        "varchar",
        "char",
        "number",
        "unknown",
        "incorrect",
        "wrong",
        "changed",
        "rejected",
        "denied",
        "failed",
        "granted",
        "basic",
        "bearer",
    ]
)
NO_VALUE = re.compile(
    r"\$[{(]|\$\$?[A-Za-z_]+$|%[A-Za-z_]+%$|%[s(]|\{|<|https?://"  # stands for another
    r"|[*•xX.…_#?-]+$"  # was hidden by somebody else
    r"|(?:self|this|os|sys|settings|config|conf|process|env|environ|args|opts|options|request|req"
    r"|params|props|data|values|secrets|vars|var|local|module|ctx|user|kwargs)\.[A-Za-z_]"  # code
    r"|~?/(?:run|etc|var|home|srv|opt|root|usr|tmp|mnt|app|data|secrets|dev|proc)/"  # a file
)
WORD = re.compile(r"[A-Za-z]+$")
LONGEST_MARK = 60
KEY_CHARACTERS = frozenset("\"'\\_-.")


def without_pairs(text: str, lowered: str) -> str:
    """`password=…` in shell, YAML, JSON, environments, headers and connection strings."""
    if not any(hint in lowered for hint in NAME_HINTS):
        return text
    text = PAIR.sub(_hide_pair, text)
    return BLOCK_SCALAR.sub(_hide_block, text) if OF_A_BLOCK.search(text) else text


def names_a_secret(name: str) -> bool:
    return NAMES_ITSELF.search(name) is not None


def kind_of(name: str) -> str:
    lowered = name.lower()
    kinds = {
        **dict.fromkeys(("pass", "pwd", "psk", "kennwort", "contrase"), "password"),
        "token": "token",
        "key": "key",
    }
    return next((kind for word, kind in kinds.items() if word in lowered), "secret")


def says_nothing(value: str) -> bool:
    """It names, types or points to a secret, or one was hidden there already."""
    stripped = value.strip()
    if not stripped or is_masked(stripped) or stripped.lower() in NO_VALUES:
        return True
    return NO_VALUE.match(stripped) is not None


def with_mask(found: re.Match[str], group: str, name: str) -> str:
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return f"{found[0][:start]}{mask(name)}{found[0][end:]}"


def _hide_pair(found: re.Match[str]) -> str:
    if _is_in_mark(found):
        return found[0]
    kind = kind_of(found["name"])
    if found["quoted"] is not None:
        return found[0] if says_nothing(found["quoted"]) else with_mask(found, "quoted", kind)
    if says_nothing(found["bare"]) or _is_code_or_prose(found):
        return found[0]
    quote = found["close"].rstrip("]")
    if found["between"] == ":" and quote.endswith('"'):
        # A number in JSON: what is put there must be JSON too.
        start = found.start("bare") - found.start()
        return f"{found[0][:start]}{quote}{mask(kind)}{quote}"
    return with_mask(found, "bare", kind)


def _is_in_mark(found: re.Match[str]) -> bool:
    """`[masked: password] = x`, where the name is what a mark says of the value before."""
    before = found.string[max(0, found.start() - LONGEST_MARK) : found.start()]
    return found["close"] == "]" and before.rfind(BEGINNING) > before.rfind("]")


def _is_code_or_prose(found: re.Match[str]) -> bool:
    name, value, text = found["name"], found["bare"], found.string
    following = text[found.end() : found.end() + 8]
    if following[:1] in ("(", "{") or (following[:1] == "[" and following != "[masked:"):
        return True
    if len(value) < 3 or (len(value) < 4 and value.isdecimal()):
        return True
    if (name.lower() == "passwd" and value in PLACES_OF_NAMES) or (
        name.lower() == "pass" and value.isdecimal()
    ):
        return True
    if value.lower() == name.lower() or (name.lower() == "pwd" and value[0] in "/~"):
        return True
    return found["between"] == ":" and WORD.match(value) is not None and _is_in_prose(found)


def _is_in_prose(found: re.Match[str]) -> bool:
    """`unexpected token: foo`, where a word stands before the name; not `password: foo`.

    A mark counts as the word that it hides, or masking again would find more.
    """
    before = found.string[max(0, found.start() - 100) : found.start()]
    while before and (before[-1].isalnum() or before[-1] in KEY_CHARACTERS):
        before = before[:-1]
    word = before.rstrip(" ")
    is_mark = word.endswith("]") and word.rfind(BEGINNING) > word.rfind("]", 0, -1)
    return before.endswith(" ") and (is_mark or word[-1:].isalnum())


def _hide_block(found: re.Match[str]) -> str:
    return found[0] if says_nothing(found["bare"]) else with_mask(found, "bare", "secret")
