"""Redacts secrets before text is stored, displayed, sent or printed.

A secret is replaced by a mark like `[redacted: github token]`. Each text is searched repeatedly
until nothing changes, because a secret may be found only after its neighbour is redacted. One
search has these passes:

1. private keys, also without head or tail (`without_key_blocks`);
2. values that the installation knows, plain and encoded (`KnownValues`): credentials in the
   environment, its own keys, passwords of the database, addresses of channels;
3. the data of Kubernetes Secrets (`without_kubernetes_secrets`);
4. keys with the prefix of a provider (`PROVIDER_KEYS`);
5. prose, and syntax such as addresses, headers and options of programs (`without_shapes`);
6. values after a telling name, as in `password=…`, in lists and in columns of tables;
7. numbers of payment cards;
8. base64 of a text in which these passes find something.

Control sequences of terminals are left out of the search; a text in which nothing is found keeps
them. In JSON, the key of a value is a telling name too. `SplitSecrets` redacts the second half of a
secret that is split over two lines of a stream, `SecretOutputs` the whole output of commands that
print secrets. Redacting a redacted text changes nothing.

A name alone is not enough (`password = getpass()`, `token: required`), so each value is checked
before it is redacted. All patterns take linear time: each begins with fixed text and reads a
bounded number of characters.

The output of commands such as `kubectl get secret -o jsonpath=…`, `wg genkey` or `cat id_ed25519`
is a secret as a whole (`prints_secrets`). Commands are read as text: what a variable, a script or
an alias hides is not recognized.

Not found are secrets that have neither a known value or shape nor a telling name, passwords in
prose that are ordinary words, and secrets known by their name only that are split over two texts.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

from django.conf import settings

from sessions_app.credentials import SECRETS

# Commands and files whose output is a secret, whatever it looks like.

_PROGRAM = r"(?:^|[\s/])"
_WORDS = r"(?:[^\n]{0,500}\s)?"
READERS = re.compile(
    rf"""{_PROGRAM}(?:
      (?:kubectl|oc|k)\s(?:
          (?={_WORDS}get\s)(?={_WORDS}(?:[^\s,]+,)*secrets?(?:[\s,/.]|$))
          (?={_WORDS}(?:-o|--output|--template)[=\s]?(?!=?(?:name|wide)\b)\S)
        | {_WORDS}(?:create\s+token|view-secret)\b
        | {_WORDS}config\s+view\s{_WORDS}--raw\b
        )
    | wg\s+(?:genkey|genpsk|showconf|show\s{_WORDS}(?:private-key|preshared-keys|dump))\b
    | (?:vault|bao)\s+(?:-\S+\s+)*(?:kv\s+get|read|unwrap|print\s+token|token\s+create
        |operator\s+(?:init|rekey|generate-root))\b
    | (?:pass|gopass)\s+(?!(?:-h|--help|ls|list|find|search|grep|git|insert|add|init|edit|rm|remove
        |delete|mv|rename|cp|copy|help|version)\b)\S
    | gpg2?\s{_WORDS}(?:--export-secret-(?:sub)?keys|--decrypt|-d)(?:\s|$)
    | (?:docker|podman)\s+(?:config|secret)\s+inspect\b
    | age-keygen(?!{_WORDS}\s-y\b)
    | age\s{_WORDS}(?:-d|--decrypt)\b
    | sops\s{_WORDS}(?:-d|--decrypt|decrypt|exec-env)\b
    | ansible-vault\s+(?:view|decrypt)\b
    | openssl\s+(?:rand|genrsa|genpkey)\b
    | openssl\s+(?:rsa|pkey|ec|pkcs8|pkcs12)\s(?!{_WORDS}-(?:noout|pubout)\b)
    | (?:pwgen|apg)(?:\s|$)
    | aws\s{_WORDS}(?:secretsmanager\s+(?:batch-)?get-secret-value
        |ssm\s+get-parameters?(?:-by-path|-history)?\s{_WORDS}--with-decryption
        |ecr\s+get-(?:login-password|authorization-token)|sts\s+(?:assume-role|get-session-token)
        |iam\s+create-access-key)\b
    | gcloud\s{_WORDS}(?:secrets\s+versions\s+access|print-(?:access|identity)-token)\b
    | az\s{_WORDS}(?:keyvault\s+secret\s+show|account\s+get-access-token|keys\s+list
        |credential\s+show)\b
    | (?:gh|glab)\s+auth\s+token\b
    | (?:op\s+(?:read|item\s+get)|(?:bw|rbw)\s+get|lpass\s+show|keepassxc-cli\s+show
        |secret-tool\s+lookup|systemd-creds\s+(?:cat|decrypt)|virsh\s+secret-get-value)\b
    | (?:terraform|tofu)\s+output\s{_WORDS}-(?:json|raw)\b
    | nmcli\s{_WORDS}(?:-s|--show-secrets)\b
    )""",
    re.VERBOSE,
)
PRINTERS = re.compile(
    rf"{_PROGRAM}(?:cat|tac|nl|less|more|head|tail|bat|batcat|sed|awk|gawk|grep|egrep|zgrep|rg|cut|sort"
    r"|strings|base64|base32|xxd|od|hexdump|jq|yq|diff|fold|dd|tee)\s"
)
SECRET_DIRECTORY = re.compile(
    r"/ssl/private/.|/private-keys-v1\.d/.|/\.password-store/.|^/(?:var/)?run/secrets/."
)
KEY_FILE = re.compile(
    r"(?:^|/)id_[\w*?-]+$|/\.ssh/\*$|ssh_host_\w+_key$|\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)$"
    r"|(?:^|/)(?:\.vault-token|\.pgpass|\.netrc|\.git-credentials|g?shadow-?|(?:ch|p)ap-secrets"
    r"|ipsec\.secrets)$"
)
CERTIFICATE = re.compile(
    r"/certs?/[^/]*\.pem$|(?:^|[/_.-])(?:certs?|certificate|chain|fullchain|ca|bundle)\d*\.pem$"
)
PUBLIC_KEY = re.compile(r"(?:^|[/_.-])pub(?:lic)?(?:key)?\.\w+$")
SEPARATORS = re.compile(r"[;&|\n()`]|\$\(")
QUOTES = re.compile(r"\\\n|[\"'\\]")
OPTION_WITH_KEY = re.compile(r"\s(?:-i|--?key|--private-key|-inkey|--cert)[=\s]\s*\S+")
LONGEST_COMMAND = 20_000


def prints_secrets(command: str) -> bool:
    """Return True if a command reads secrets in order to print them."""
    plain = QUOTES.sub("", command[:LONGEST_COMMAND])
    parts = [part for part in SEPARATORS.split(plain) if part.strip()]
    return any(READERS.search(part) or _prints_key_file(part) for part in parts)


def is_key_file(path: str) -> bool:
    """Return True for the path of a private key or of a file that consists of secrets."""
    lowered = path.lower()
    if SECRET_DIRECTORY.search(lowered):
        return True
    is_public = CERTIFICATE.search(lowered) or PUBLIC_KEY.search(lowered)
    return KEY_FILE.search(lowered) is not None and not is_public


def _prints_key_file(part: str) -> bool:
    if not PRINTERS.search(part):
        return False
    words = OPTION_WITH_KEY.sub(" ", part).split()
    return any(is_key_file(word.removeprefix("if=").lstrip("<")) for word in words)


# Marks and control sequences.

BEGINNINGS = ("[redacted: ", "[masked: ")
"""Beginning of a mark, today and in text that earlier versions stored."""
MARK_WORDS = tuple(begin.rstrip() for begin in BEGINNINGS)


def mark(what: str) -> str:
    return f"{BEGINNINGS[0]}{what}]"


def is_redacted(value: str) -> bool:
    """Return True for a mark, or its first word: some patterns end at a space."""
    return value.startswith(MARK_WORDS)


def _last_mark(text: str) -> int:
    """Return the position of the last beginning of a mark, or -1."""
    return max(text.rfind(begin) for begin in BEGINNINGS)


CONTROL_HINTS = ("\x1b", "\x9b", "\\u001", "\\x1", "\\033", "\\e[", "^[[")
CONTROL = re.compile(
    r"(?:\x1b\[|\x9b|(?:\\u001[bB]|\\x1[bB]|\\033|\\e|\^\[)\[)[0-?]{0,64}[ -/]{0,9}[@-~]"
    r"|\x1b[\]PX^_](?P<text>[^\x07\x1b\x9c\n]{0,4000})(?:\x07|\x1b\\|\x9c)"  # a title, a link
    r"|\x1b(?:[ -/]{0,9}[0-~])?"
)
"""Control sequences of terminals, also as JSON, shells and `cat -v` write them."""


def without_control(text: str) -> str:
    return CONTROL.sub("", text)


NAMES = (
    r"(?:passw(?:or)?d|passwort|kennwort|mot[ _-]?de[ _-]?passe|contrase[nñ]a|passphrase|passcode"
    r"|(?<=[_-])pass|(?<![A-Za-z0-9])pass(?=[ \t]{0,9}=)|pwd|(?<![A-Za-z0-9])psk|secret|token"
    r"|(?:(?<![A-Za-z0-9])|(?<=root)|(?<=bind))pw|(?<!ch)authtok|erlang[_-]?cookie"
    r"|credential|(?:totp|otp|mfa|2fa)[_-]?seed|\.docker(?:configjson|cfg)"
    r"|(?:api|access|account|private|signing|encryption|master|auth|preshared|shared"
    r"|(?<![A-Za-z])app|(?<![A-Za-z])ping|pagerduty[_-]?(?:routing|integration|service))"
    r"[_-]?(?:access[_-]?)?key"
    r"|(?:api|secret|access|recovery|pre-shared)[ -]key|secret[_-]?id|(?<![A-Za-z0-9])_auth"
    r"|(?<![A-Za-z0-9])pin(?=\\{0,3}[\"']?[ \t]{0,9}[:=][ \t]{0,9}[\"']?\d{4,12}(?![\w.:/-])))"
)
ENDINGS = (
    r"(?:[_-]?(?:key(?:[_-]?base)?|value|string|hash|b64|base64|data|prod|production|staging|test"
    r"|dev|live|main|primary|secondary|root|admin|db|old|new|current|\d{1,3}))?"
)
# A word of a shell, of YAML or of a connection string.
BARE = r"[^\s\"'`,;&<>|\\(){}\[\]]{1,4000}"
QUOTED = r"(?P<quote>\\{0,3}[\"'])(?P<quoted>(?:(?!(?P=quote))(?:\\.|[^\n\\])){1,4000})"
VALUE = rf"(?:(?:[bru]{{1,2}}(?=[\"']))?{QUOTED}|(?P<bare>{BARE}))"

PAIR = re.compile(
    rf"(?P<name>{NAMES}{ENDINGS})(?P<close>\\{{0,3}}[\"']?\]?)[ \t]{{0,9}}"
    rf"(?P<between>=>|:=|=(?!=)|:(?!:)|::(?=[ \t]))[ \t]{{0,9}}{VALUE}",
    re.IGNORECASE,
)
BLOCK_NAME = re.compile(rf"{NAMES}{ENDINGS}[\"']?\Z", re.IGNORECASE)
BLOCK_VALUE = re.compile(r"[ \t]{0,80}(?P<bare>[^\n]{1,4000})")
OF_A_BLOCK = re.compile(r":[ \t]{0,9}[|>][-+]?\n[ \t]")
NAMES_ITSELF = re.compile(rf"{NAMES}{ENDINGS}$", re.IGNORECASE)
# Where `PAIR` is tried: it takes much longer to search. Every name contains one of these words.
PAIR_HINT = re.compile(
    r"(?:pass|pw|psk|secret|token|credential|key|_auth|kennwort|contrase|seed|pin|\.docker|authtok"
    r"|cookie)"
    r"[^\n:=]{0,40}[:=]"
)
PAIR_START = re.compile(rf"{NAMES}{ENDINGS}\\{{0,3}}[\"']?\]?[ \t]{{0,9}}[:=]", re.IGNORECASE)
LONGEST_PREFIX = 40
LONGEST_PIN = 20
PLACES_OF_NAMES = frozenset(
    ["files", "compat", "sss", "systemd", "ldap", "nis", "winbind", "db", "password", "chauthtok"]
)
"""Sources in /etc/nsswitch.conf, as in `passwd: files systemd`, and messages of the program."""

NO_VALUES = frozenset(
    [
        *("none", "null", "nil", "true", "false", "undefined", "str", "string", "int"),
        *("integer", "bytes", "bool", "boolean", "any", "object", "required", "optional"),
        *("yes", "no", "empty", "unset", "hidden", "redacted", "masked", "missing", "invalid"),
        *("expired", "not", "the", "and", "for", "is", "secretstr", "text", "varchar", "char"),
        *("number", "unknown", "incorrect", "wrong", "changed", "rejected", "denied"),
        *("failed", "granted", "basic", "bearer", "enabled", "disabled"),
    ]
)
NO_VALUE = re.compile(
    r"\$[{(]|\$\$?[A-Za-z_]+-?$|%[A-Za-z_]+%$|%[s(]|\{|<|https?://"  # a reference
    r"|[*•xX.…_#?-]+$"  # hidden by another program
    r"|(?:self|this|os|sys|settings|config|conf|process|env|environ|args|opts|options|request|req"
    r"|params|props|data|values|secrets|vars|var|local|module|ctx|user|kwargs)\.[A-Za-z_]"  # code
    r"|~?/(?:run|etc|var|home|srv|opt|root|usr|tmp|mnt|app|data|secrets|dev|proc)/"  # a file
)
WORD = re.compile(r"[A-Za-z]+$")
LONGEST_MARK = 60
KEY_CHARACTERS = frozenset("\"'\\_-.")


def lower(text: str) -> str:
    """Return the text in lower case and of the same length, which `str.lower` does not promise."""
    return text.replace("İ", "i").lower()


def without_pairs(text: str) -> str:
    """Redact `password=…` in shell, YAML, JSON, environments, headers and connection strings."""
    lowered = lower(text)
    pieces: list[str] = []
    done = at = 0
    while hint := PAIR_HINT.search(lowered, at):
        at = hint.end()
        start = PAIR_START.search(text, max(done, hint.start() - LONGEST_PREFIX), at + LONGEST_PIN)
        if start and (found := PAIR.match(text, start.start())):
            pieces += [text[done : found.start()], _hide_pair(found)]
            done = found.end()
            at = max(at, done)
    return _without_blocks("".join([*pieces, text[done:]]))


def names_a_secret(name: str) -> bool:
    return NAMES_ITSELF.search(name) is not None


def kind_of(name: str) -> str:
    lowered = name.lower()
    kinds = {
        **dict.fromkeys(("pass", "pw", "psk", "kennwort", "contrase"), "password"),
        "token": "token",
        "key": "key",
    }
    return next((kind for word, kind in kinds.items() if word in lowered), "secret")


def is_placeholder(value: str) -> bool:
    """Return True if a value is a type, a reference, or redacted, and not a secret."""
    stripped = value.strip()
    if not stripped or is_redacted(stripped) or stripped.lower() in NO_VALUES:
        return True
    return NO_VALUE.match(stripped) is not None


def with_mark(found: re.Match[str], group: str, name: str) -> str:
    start, end = found.start(group) - found.start(), found.end(group) - found.start()
    return f"{found[0][:start]}{mark(name)}{found[0][end:]}"


def _hide_pair(found: re.Match[str]) -> str:
    if _is_in_mark(found):
        return found[0]
    kind = kind_of(found["name"])
    if found["quoted"] is not None:
        return found[0] if is_placeholder(found["quoted"]) else with_mark(found, "quoted", kind)
    if is_placeholder(found["bare"]) or _is_code_or_prose(found):
        return found[0]
    quote = found["close"].rstrip("]")
    if found["between"] == ":" and quote.endswith('"'):
        # A number in JSON: the mark must be JSON too.
        start = found.start("bare") - found.start()
        return f"{found[0][:start]}{quote}{mark(kind)}{quote}"
    return with_mark(found, "bare", kind)


def _is_in_mark(found: re.Match[str]) -> bool:
    """Return True for `[redacted: password] = x`, where the name is part of a mark."""
    before = found.string[max(0, found.start() - LONGEST_MARK) : found.start()]
    return found["close"] == "]" and _last_mark(before) > before.rfind("]")


def _is_code_or_prose(found: re.Match[str]) -> bool:
    name, value, text = found["name"], found["bare"], found.string
    following = text[found.end() : found.end() + 10]
    if following[:1] in ("(", "{") or (following[:1] == "[" and not is_redacted(following)):
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
    """Return True for `unexpected token: foo`, with a word before the name.

    A mark counts as a word, so that redacting again finds nothing more.
    """
    before = found.string[max(0, found.start() - 100) : found.start()]
    while before and (before[-1].isalnum() or before[-1] in KEY_CHARACTERS):
        before = before[:-1]
    word = before.rstrip(" ")
    is_mark = word.endswith("]") and _last_mark(word) > word.rfind("]", 0, -1)
    return before.endswith(" ") and (is_mark or word[-1:].isalnum())


def _without_blocks(text: str) -> str:
    """Redact block scalars of YAML."""
    pieces: list[str] = []
    done = 0
    for block in OF_A_BLOCK.finditer(text):
        name = BLOCK_NAME.search(text, max(done, block.start() - LONGEST_PREFIX), block.start())
        value = BLOCK_VALUE.match(text, block.end())
        if name and value and value.start() >= done and not is_placeholder(value["bare"]):
            pieces += [text[done : value.start("bare")], mark("secret")]
            done = value.end()
    return "".join([*pieces, text[done:]])


CODES = "codes"
_CODE = (
    r"(?=[A-Za-z0-9-]{6})(?=[A-Za-z-]{0,40}\d)[A-Za-z0-9]{4,16}(?:-[A-Za-z0-9]{3,12}){0,9}(?![\w-])"
)
CODE_LIST = re.compile(
    r"(?:recovery|backup|scratch|emergency|rescue|wiederherstellungs|one-time)[ _-]?"
    r"(?:[a-z]{1,12}[ _-])?codes?\\{0,3}[\"']?[^\n\w]{0,10}(?:(?:are|lauten|sind)\b[^\n\w]{0,10})?"
    r"[\s\"'\\*\[-]{1,40}(?:\d{1,2}[.)][ \t]{1,9})?"
    rf"(?P<bare>{_CODE}(?:[\s,;\"'\\|*•-]{{1,40}}(?:\d{{1,2}}[.)][ \t]{{1,9}})?"
    rf"(?:{_CODE}|[A-Za-z0-9]{{5,8}}-[A-Za-z0-9]{{5,8}}(?![\w-]))){{0,50}})",
    re.IGNORECASE,
)
_REDACTED = r"(?:redacted|masked): "
LIST_NAME = r"(?:passwords?|passphrases?|api[_-]?keys?|access[_-]?keys?|tokens?|pins)"
LIST = re.compile(
    rf"{LIST_NAME}\\{{0,3}}[\"']?[ \t]{{0,9}}(?:[:=][ \t]{{0,9}}\[(?!{_REDACTED})"
    rf"(?P<inline>(?:\[{_REDACTED}[^\]\n]{{0,60}}\]|[^\[\]\n]){{3,4000}})"
    r"|:[ \t]{0,9}(?P<block>(?:\n[ \t]{0,80}-[ \t]{1,9}[^\s:][^\n:]{0,400}(?=\n|$)){1,200}))",
    re.IGNORECASE,
)
LIST_HINT = re.compile(
    rf"{LIST_NAME}\\{{0,3}}[\"']?[ \t]{{0,9}}(?:[:=][ \t]{{0,9}}\[|:[ \t]{{0,9}}\n[ \t]{{0,80}}-)"
)
SHORTEST_ITEM = 4
SHORTEST_TOKEN = 10
LIST_ITEM = re.compile(rf"\[{_REDACTED}[^\]\n]{{0,60}}\]|[^\s\"'\\,\[\]]{{3,400}}")
NAMES_A_LIST = re.compile(rf"{LIST_NAME}$|(?:recovery|backup|scratch)[ _-]?codes$", re.IGNORECASE)


def without_lists(text: str, lowered: str) -> str:
    """Redact recovery codes, and the items of a list with a telling name."""
    if "code" in lowered:
        text = CODE_LIST.sub(lambda found: with_mark(found, "bare", CODES), text)
    return LIST.sub(_hide_items, text) if LIST_HINT.search(lowered) else text


def is_secret_item(name: str, item: str) -> bool:
    """Return True for a secret in a list of that name; a list of tokens may hold words."""
    if is_placeholder(item) or " " in item or len(item) < SHORTEST_ITEM:
        return False
    if "token" in name.lower():
        return len(item) >= SHORTEST_TOKEN and is_chosen(item)
    return "pass" in name.lower() or is_chosen(item) or item.isdecimal()


def _hide_items(found: re.Match[str]) -> str:
    group = "inline" if found["inline"] is not None else "block"
    name, kind = found[0][: found.start(group) - found.start()], kind_of(found[0][:20])
    hidden = LIST_ITEM.sub(
        lambda item: mark(kind) if is_secret_item(name, item[0]) else item[0], found[group]
    )
    return f"{name}{hidden}"


FARTHEST_PROGRAM = 1000
SHORTEST_NUMBER = 6


@dataclass(frozen=True, slots=True)
class Shape:
    """Syntax with a secret in it: an address, a header, an option of a program, SQL, XML."""

    name: str
    hints: tuple[str, ...]
    """Lower-case texts; every text that the pattern matches contains one of them."""
    pattern: re.Pattern[str]
    """The group `bare` or `quoted` is the secret."""
    programs: tuple[str, ...] = ()
    """Programs, one of which must be earlier in the line; `-p` means something else elsewhere."""
    is_secret: Callable[[str], bool] | None = None
    """Tells a secret from other values that are not quoted; prose says `the password is wrong`."""


def _shape(
    name: str,
    hints: str,
    pattern: str,
    programs: str = "",
    is_secret: Callable[[str], bool] | None = None,
) -> Shape:
    """Return a shape. Hints are separated by spaces, or by `|` if they contain spaces."""
    parts = hints.split("|") if "|" in hints else hints.split()
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    named = tuple(filter(None, programs.split("|")))
    return Shape(name, tuple(filter(None, parts)), compiled, named, is_secret)


CHOSEN = re.compile(r"(?=\D*\d)(?=[^A-Za-z]*[A-Za-z])\S{6,}$")
_UNITS = (
    r"(?:m?s|h|d|x|[kmgt]i?b?|th|px|(?:sec|second|min|minute|hour|day|week|month|year|byte|bit|char"
    r"|character|digit|time|attempt|user)s?)"
)
NOT_CHOSEN = re.compile(
    r"[~.]{0,2}/|\w+://|[\w-]+(?:\.[\w-]+)+$|[\w.+-]+@[\w.-]+$"  # a path, an address, a version
    rf"|v?\d+(?:[.:_/-]\d+)+\w*$|\d+-?{_UNITS}$|0x[0-9a-f]+$|T?\d\d:\d\d"  # a number
    r"|(?:sha|md|base|utf|iso|aes|rsa|bcrypt|argon|ed|hs|rs|x|ipv)-?\d+(?:[-:]\w+)?$"  # a format
    r"|\S+-(?:protected|encoded|encrypted|hashed|based|only|characters?|digits?|bits?)$"
    r"|(?-i:[A-Z][A-Z0-9]*_[A-Z0-9_]+)$",  # a variable
    re.IGNORECASE,
)
RANDOM = re.compile(r"[A-Za-z0-9+/]{16,}")


def is_chosen(value: str) -> bool:
    """Return True for a word with letters and digits that is no path, address, unit or version."""
    return CHOSEN.match(value) is not None and NOT_CHOSEN.match(value) is None


def is_random(value: str) -> bool:
    """Return True for sixteen letters and digits in a row."""
    run = RANDOM.search(value)
    return run is not None and not run[0].isalpha() and not run[0].isdecimal()


def decoded(word: str) -> str:
    """Return the text behind base64 or base64url; empty if it is none."""
    plain = word.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return ""
    return data.decode("utf-8", "replace")


LOGIN = re.compile(r"[\w.@+-]{1,100}:[ -~]{1,400}$")


def is_encoded_login(word: str) -> bool:
    """Return True for the base64 of `user:password`."""
    return LOGIN.match(decoded(word)) is not None


def _is_no_number(value: str) -> bool:
    return not value.isdecimal()


_Q = r"(?:\\{0,3}[\"'])?"
_GAP = r"[ \t]{1,9}"
_ANY = r"[ \t]{0,9}"
_NAME = (
    r"\w{0,60}(?:password|passwd|passphrase|_pass|pwd|token|secret"
    r"|(?:api|auth|access|private|secret)[_-]?key)"
)
# Prose: the noun, what it belongs to, and a value in quotes or before a punctuation mark.
_NOUN = (
    r"(?:password|passwort|kennwort|passphrase|passcode|mot de passe|contrase[nñ]a)[*_`\"']{0,3}"
)
_OF = (
    rf"(?:{_GAP}(?:for|of|on|für|von|pour|de|para){_GAP}(?:(?:the|user|account){_GAP}){{0,2}}"
    r"[^\s:=]{1,60})?"
)
_SAID = (
    r"(?:(?P<quote>[\"'`“„«])(?P<quoted>[^\"'`“”„«»\n]{3,200})"
    r"|[*_]{0,3}(?P<bare>[^\s\"'`<>()\[\]{}|,;]{3,200}?)(?=[.,;:!?*_]{0,3}(?:[\s)\]\\]|$)))"
)
NOUNS = (
    *("password", "passwort", "kennwort", "passphrase", "passcode", "mot de passe"),
    "contrase",
)
PROSE = (
    _shape(
        "password",
        "",
        rf"{_NOUN}{_OF}{_GAP}(?:is|was|has been|wurde|lautet|ist|war|est|es)"
        rf"(?:{_GAP}(?:now|jetzt))?(?:{_GAP}(?:changed|set|reset|updated|rotated))?"
        rf"(?:{_GAP}from{_GAP}\S{{1,60}})?(?:{_GAP}(?:to|auf))?[ \t:]{{1,9}}{_SAID}",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "",
        rf"(?:set|changed?|reset|rotated?|updated?){_GAP}(?:\w{{1,20}}{_GAP}){{0,3}}?{_NOUN}{_OF}"
        rf"{_GAP}to{_GAP}{_SAID}",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "",
        rf"{_NOUN}{_OF}{_GAP}(?:was{_GAP})?changed{_GAP}from{_GAP}\S{{1,60}}{_GAP}to{_GAP}{_SAID}",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "",
        rf"{_NOUN}{_OF}{_GAP}(?:was{_GAP})?(?:changed|set){_GAP}from{_GAP}{_SAID}",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "",
        rf"user(?:name)?{_GAP}\S{{1,60}}{_GAP}{_NOUN}{_GAP}(?:\d{_GAP})?{_SAID}",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "",
        rf"(?:with|using|mit){_GAP}(?:(?:the|dem){_GAP})?{_NOUN}{_GAP}{_SAID}",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "",
        rf"{_NOUN}{_GAP}(?:for|of|für){_GAP}(?:\w{{1,20}}{_GAP}){{0,2}}[^\s:]{{1,60}}:{_GAP}{_SAID}",
        is_secret=is_chosen,
    ),
)

SHAPES = (
    _shape("url password", "://", r"://[^\s:/@\"'<>\[]{0,200}:(?P<bare>[^\s/?#\"'<>\[]{1,400})@"),
    _shape("url token", "://", r"://(?P<bare>(?=[\w-]{0,60}\d)[\w-]{20,200}):?@"),
    _shape(
        "authorization",
        "authorization",
        rf"authorization{_Q}{_ANY}[:=,]{_ANY}{_Q}"
        rf"(?:(?:basic|bearer|token|apikey|api-key|negotiate|digest|ntlm|splunk|key){_GAP})?"
        r"(?P<bare>[^\s\"'`\\\[\]<>]{3,8000})",
    ),
    _shape(
        "bearer token",
        "bearer",
        rf"(?<![\w-])bearer{_GAP}(?P<bare>(?=[a-z._~+/=-]{{0,80}}\d)[\w.~+/=-]{{12,8000}})",
    ),
    _shape(
        "cookie",
        "cookie",
        rf"cookie2?{_Q}:{_ANY}{_Q}(?P<bare>[\w.%-]{{1,100}}=[^\n\"'\\]{{3,8000}})",
    ),
    _shape(
        "secret",
        "--pass --pw --token --api --secret --access -pass -token -key -secret",
        r"(?<!\w)--?(?:[a-z0-9]{1,20}[_-]){0,4}(?:password|passwd|pass|passphrase|pw|token|api-?key"
        rf"|secret|secret-key|access-key)(?:{_GAP}|[\"'],[ \t]{{0,9}}(?=[\"']))"
        rf"(?!-|pass:|env:|file:|stdin|fd:){VALUE}",
    ),
    _shape(
        "password",
        "pass:",
        rf"-(?:pass|passin|passout)[ \t=]{{1,9}}{_Q}pass:(?P<bare>[^\s\"']{{1,400}})",
    ),
    _shape(
        "password",
        "-u --proxy-user -a",
        rf"[ \t](?:-u{_ANY}|(?:--user|--proxy-user|-a|--auth)[ \t=]{{1,9}}){_Q}"
        r"[^\s:\"'/\[]{1,200}:(?P<bare>[^\s\"'\\]{1,400})",
        "curl|http |https |xh |wget",
    ),
    _shape(
        "password",
        "-p",
        rf"[ \t]-p{_ANY}{VALUE}",
        "sshpass|docker login|podman login|buildah login|nerdctl login|oc login|az login",
    ),
    _shape("password", "-p", rf"[ \t]-p{VALUE}", "mysql|mariadb|7z |zip "),
    _shape("password", "-p", rf"[\"']-p(?P<bare>{BARE})", "mysql|mariadb"),
    _shape("password", "-p", rf"[ \t](?-i:-P){_GAP}{VALUE}", "zip |mosquitto_"),
    _shape("password", "-k", rf"[ \t]-k{_GAP}{VALUE}", "openssl enc|openssl aes|openssl des"),
    _shape(
        "password",
        "sudo",
        rf"(?:echo|printf){_GAP}{VALUE}[\"']?{_ANY}\|{_ANY}sudo{_GAP}(?:-[a-z]{{1,9}}{_GAP})?"
        r"(?-i:-[A-Za-z]{0,9}S)(?!\w)",
    ),
    _shape(
        "secret",
        "setenv",
        rf"setenv{_GAP}\w{{0,60}}(?:password|passwd|pass|pwd|token|secret|key){_GAP}{VALUE}",
    ),
    _shape("password", "obscure", rf"rclone{_GAP}obscure{_GAP}{VALUE}"),
    _shape("password", "-a", rf"[ \t]-a{_GAP}{VALUE}", "redis-cli|valkey-cli"),
    _shape("password", "-w", rf"[ \t]-w{_GAP}{VALUE}", "ldap"),
    _shape(
        "password",
        "htpasswd mosquitto_passwd",
        rf"(?:htpasswd|mosquitto_passwd){_GAP}-\w{{0,9}}b\w{{0,9}}{_GAP}(?:[^\s]{{1,200}}{_GAP}){{2}}{VALUE}",
    ),
    _shape(
        "password",
        "%",
        rf"[ \t]-U{_ANY}{_Q}[^\s%\"']{{1,100}}%(?P<bare>[^\s\"']{{1,200}})",
        "smbclient|rpcclient|net ",
    ),
    _shape("password", "login", rf"login{_GAP}\S{{1,200}}\s{{1,40}}password{_GAP}{VALUE}"),
    _shape(
        "password",
        "identified",
        rf"identified(?:{_GAP}with{_GAP}\w{{1,60}})?{_GAP}(?:by|as){_GAP}(?:password{_GAP})?{QUOTED}",
    ),
    _shape("password", "password", rf"(?<=[\w:][ \t])password{_GAP}{QUOTED}"),
    _shape("password", "requirepass masterauth", rf"(?:requirepass|masterauth){_GAP}{VALUE}"),
    _shape(
        "password",
        ":",
        r"^[\w.*-]{1,200}:(?:\d{4,5}|\*):[\w.*-]{1,100}:[\w.*-]{1,100}:(?P<bare>[^\s:]{3,200})$",
    ),
    _shape(
        "secret",
        "</",
        r"<(?:[\w.-]{1,40}:)?\w{0,40}(?:password|passwd|passphrase|secret|token|apikey)>"
        r"(?P<bare>[^<\n]{1,2000})</",
    ),
    _shape(
        "secret",
        "value=",
        r"(?:key|name)=[\"'][\w.:-]{0,60}(?:password|passwd|secret|token|api[_-]?key)[\"']"
        rf"{_GAP}value={QUOTED}",
    ),
    _shape(
        "registry login",
        "auth",
        rf"[\"']auth\\{{0,3}}[\"']{_ANY}:{_ANY}\\{{0,3}}[\"'](?P<bare>[A-Za-z0-9+/=]{{8,4000}})",
    ),
    _shape("client key", "key-data", rf"key-data:{_ANY}(?P<bare>[A-Za-z0-9+/=]{{16,8000}})"),
    _shape("url signature", "sig=", r"[?&;]sig=(?P<bare>[\w%+/=-]{20,400})"),
    _shape("url signature", "x-amz-signature=", r"x-amz-signature=(?P<bare>[0-9a-f]{32,128})"),
    _shape(
        "secret",
        "token is|secret is|key is|seed is|token ist|token lautet|key lautet",
        rf"(?:token|secret|api[ -]key|secret key|access key|seed)[*_`]{{0,3}}"
        rf"{_GAP}(?:is|ist|lautet)[ \t:]{{1,9}}[*_`\"']{{0,3}}(?P<bare>[\w+/=.-]{{16,400}})",
        is_secret=is_random,
    ),
    _shape(
        "pin",
        "pin is|pin ist|pin lautet|pin was",
        rf"(?<![\w-])pin{_GAP}(?:is|ist|lautet|was){_GAP}(?P<bare>\d{{4,12}})(?![\w.])",
    ),
    _shape(
        "password",
        "credentials|login|zugangsdaten",
        rf"(?:credentials|logins?|zugangsdaten)[*\"']{{0,3}}{_ANY}:{_GAP}[^\s/:]{{1,60}}{_ANY}[/:]{_ANY}"
        r"(?P<bare>[^\s,;]{3,200})",
        is_secret=is_chosen,
    ),
    _shape(
        "password",
        "pass",
        rf"(?<![\w-])(?-i:pass)\\{{0,3}}[\"']?:{_GAP}{VALUE}",
        is_secret=is_chosen,
    ),
    _shape(
        "recovery key",
        "unseal recovery",
        rf"(?:unseal|recovery){_GAP}key(?:{_GAP}\d{{1,2}})?:{_GAP}(?P<bare>[\w+/=-]{{16,200}})",
    ),
    _shape("totp seed", "otpauth", r"otpauth://[^\s\"']{0,400}?secret=(?P<bare>[A-Z2-7]{8,200}=*)"),
    _shape(
        "authorization",
        "authorization",
        rf"authorization{_Q}{_GAP}{_Q}(?:basic|bearer){_GAP}(?P<bare>[\w.~+/=-]{{4,8000}})",
    ),
    _shape("authorization", "auth plain", rf"auth plain{_GAP}(?P<bare>[A-Za-z0-9+/]{{8,400}}=*)"),
    _shape(
        "password",
        "auth",
        rf"(?:^|>){_ANY}(?-i:AUTH){_GAP}(?:\w{{1,60}}{_GAP})?{VALUE}$",
        is_secret=is_chosen,
    ),
    _shape(
        "registry login",
        "auth:",
        rf"(?<![\w-])auth:{_ANY}(?P<bare>[A-Za-z0-9+/]{{8,4000}}={{0,2}})",
        is_secret=is_encoded_login,
    ),
    _shape(
        "url password",
        "jdbc:oracle sqlplus",
        rf"(?:jdbc:oracle:\w{{1,9}}:|sqlplus{_GAP})[^\s/@]{{1,60}}/(?P<bare>[^\s/@]{{1,200}})@",
    ),
    _shape(
        "password",
        "-p",
        rf"[ \t]-p{_GAP}{VALUE}",
        "mongosh|mongo |mongodump|mongorestore|racadm|useradd|usermod",
    ),
    _shape("password", "-p", rf"[ \t](?-i:-P){_ANY}{VALUE}", "ipmitool|ipmi-|ipmipower"),
    _shape(
        "password",
        "-c -a -x",
        rf"[ \t](?-i:-[cAX]){_GAP}{VALUE}",
        "snmpwalk|snmpget|snmpbulk|snmpset|snmptable|snmptrap|snmpstatus",
    ),
    _shape(
        "password",
        "passwd cryptsetup --password-stdin",
        rf"(?:echo|printf){_GAP}(?:-[a-z]{{1,3}}{_GAP})?{VALUE}[\"']?{_ANY}\|[^|\n]{{0,200}}"
        r"(?:chpasswd|passwd[^|\n]{0,60}--stdin|--password-stdin|cryptsetup)(?!\w)",
    ),
    _shape(
        "password",
        "pw psk pass",
        rf"^[ \t]{{0,40}}(?:bindpw|rootpw|wpa-psk|psk|password|passphrase)[ \t]{{1,40}}{VALUE}$",
        is_secret=is_chosen,
    ),
    _shape(
        "secret",
        "aws_se",
        rf"(?:aws_secret_access_key|aws_session_token){_GAP}(?P<bare>[\w+/=-]{{16,2000}})",
    ),
    _shape(
        "password hash",
        "::: :[",
        r":(?P<bare>[0-9a-f]{32}:[0-9a-f]{32}):(?::|\[)",
    ),
    _shape("password", "static:", r"static:[^\s:]{1,100}:(?P<bare>\S{3,200})"),
    _shape(
        "password", "option", rf"option{_GAP}key{_GAP}'(?P<bare>[^'\n]{{8,63}})'", "", is_chosen
    ),
    _shape(
        "snmp community", "community string", rf"community string:?{_GAP}{VALUE}", "", is_chosen
    ),
    _shape(
        "password",
        "sha md5 aes des",
        rf"[ \t](?:SHA|MD5|AES|DES)[\d-]{{0,4}}{_GAP}{VALUE}",
        "createuser ",
    ),
    _shape("password", "set password", rf"set password{_GAP}\d{{1,3}}{_GAP}{VALUE}"),
    _shape("password", "password(", rf"={_ANY}password\({QUOTED}"),
    _shape(
        "password",
        "passwd",
        rf"(?:openssl{_GAP}passwd|mkpasswd)(?:{_GAP}-\S{{1,40}}){{0,5}}{_GAP}{VALUE}",
        is_secret=is_chosen,
    ),
    _shape(
        "seed phrase",
        "phrase",
        r"(?:seed|recovery|mnemonic|backup)[ _]phrase[\"']?[^\n\w]{1,9}"
        r"(?P<bare>(?:[a-z]{3,8}[ \t]){11,23}[a-z]{3,8})",
    ),
    _shape(
        "totp seed",
        "otp|mfa|2fa",
        rf"(?<![a-z])(?:totp|otp|mfa|2fa){_Q}{_ANY}[:=]{_ANY}{_Q}"
        r"(?-i:(?P<bare>[A-Z2-7]{16,64}))(?!\w)",
    ),
    _shape(
        "totp seed",
        "key",
        r"(?:authenticator|setup|totp|2fa)[ \w()]{0,20}key[^\n:]{0,20}:[ \t]{1,9}"
        r"(?P<bare>(?:[A-Z2-7]{4} ){3,15}[A-Z2-7]{4})(?!\w)",
    ),
    _shape(
        "secret",
        "</",
        r"(?:name|key)=[\"'][\w.:-]{0,60}(?:password|passwd|secret|token|api[_-]?key)[\"']"
        r"[^<>\n]{0,100}>(?P<bare>[^<\n]{1,2000})</",
    ),
    _shape("secret", "--from-literal", rf"--from-literal[= ]{_Q}[\w.-]{{1,100}}={VALUE}"),
    _shape(
        "password",
        "password",
        rf"[ \t](?:wifi-sec\.psk|password){_GAP}{VALUE}",
        "nmcli|iwctl|station ",
    ),
    _shape(
        "password",
        "insecure-password",
        rf"user{_GAP}\S{{1,60}}{_GAP}(?:insecure-)?password{_GAP}{VALUE}",
    ),
    _shape(
        "password",
        "~ +@",
        r"(?:^|[ \t])(?:set)?user[ \t]\S{1,60}[ \t][^\n]{0,200}?[ \t]?>(?P<bare>[^\s>]{3,200})[ \t]"
        r"(?=[^\n]{0,200}[~&+])",
    ),
    _shape(
        "snmp community",
        "community com2sec",
        rf"(?:(?:^|[ \t])r[ow]community6?{_GAP}|snmp-server{_GAP}community{_GAP}"
        rf"|com2sec6?{_GAP}(?:\S{{1,60}}{_GAP}){{2}}){VALUE}",
    ),
    _shape(
        "snmp community", "community", rf"snmp[\w-]{{0,20}}community{_Q}{_ANY}[:=]{_ANY}{VALUE}"
    ),
    _shape(
        "snmp community",
        "community:",
        rf"^[ \t]{{1,80}}(?:-[ \t])?community:{_GAP}{VALUE}",
        is_secret=is_chosen,
    ),
    _shape("password", "psk xauth eap", rf":{_GAP}(?:psk|xauth|eap|ntlm){_GAP}{QUOTED}"),
    _shape(
        "password",
        '"\t|" *',
        r"^\"?[\w@.*-]{1,60}\"?[ \t]{1,20}\"?[\w.*-]{1,60}\"?[ \t]{1,20}"
        r"\"(?P<bare>[^\"\s]{3,200})\"[ \t]{1,20}(?:\*|\d{1,3}(?:\.\d{1,3}){3})[ \t]{0,9}$",
    ),
    _shape(
        "key", "hex: ascii:", r"^\d{1,9}[ \t]+[\w-]{2,20}[ \t]+(?:HEX|ASCII):(?P<bare>\S{6,400})$"
    ),
    _shape(
        "password",
        "]: smtp",
        r"^(?:\[[\w.-]{1,200}\]|smtp[\w.-]{1,200})(?::\d{1,5})?[ \t]{1,20}[^\s:]{1,200}:"
        r"(?P<bare>\S{3,200})$",
    ),
    _shape("key", "secret", rf"secret{_GAP}\"(?P<bare>[A-Za-z0-9+/]{{16,200}}={{0,2}})\"{_ANY};"),
    _shape(
        "password hash",
        ":",
        r"^[\w.@-]{1,60}:(?-i:(?=[^\n]{0,12}\d)(?=(?:[^\n]{0,10}?[a-z][A-Z]){2})(?P<bare>[./A-Za-z0-9]{13}))$",
    ),
    _shape(
        "private key",
        '"kty',
        r"\"(?:d|p|q|dp|dq|qi|k)\\{0,3}\"[ \t]{0,9}:[ \t]{0,9}\\{0,3}\""
        r"(?P<bare>[\w-]{20,2000})\\{0,3}\"",
    ),
    _shape(
        "private key",
        "\toff|\t0x",
        r"(?:^|\t)(?P<bare>[A-Za-z0-9+/]{43}=)\t[A-Za-z0-9+/]{43}=\t\d{1,5}\t(?:off|0x)",
    ),
    _shape(
        "preshared key",
        "=\t|",
        r"(?:^|\t)[A-Za-z0-9+/]{43}=\t(?P<bare>[A-Za-z0-9+/]{43}=)\t(?:\[?[0-9a-f.:]{3,45}\]?:\d{1,5}|\(none\))\t",
    ),
    _shape(
        "secret",
        "define(",
        r"define\([ \t]{0,9}[\"']\w{0,60}(?:PASSWORD|PASS|_KEY|_SALT|SECRET|TOKEN)[\"'],"
        rf"[ \t]{{0,20}}{QUOTED}",
    ),
    _shape(
        "secret",
        "<string>",
        rf"<key>{_NAME}</key>\s{{0,40}}<string>(?P<bare>[^<\n]{{1,2000}})</",
    ),
    _shape(
        "secret",
        "env|arg|set -",
        rf"(?:^|[ \t])(?:env|arg|set{_GAP}-[a-z]{{1,6}}){_GAP}{_NAME}{_GAP}{VALUE}$",
    ),
    _shape(
        "secret",
        "value",
        rf"name\\{{0,3}}[\"']?:{_ANY}{_Q}{_NAME}{_Q},?\s{{1,80}}\\{{0,3}}[\"']?value\\{{0,3}}[\"']?:{_ANY}{VALUE}",
        is_secret=_is_no_number,
    ),
)


def _by_hint(patterns: Sequence[Shape | ProviderKey]) -> dict[str, list[int]]:
    """Map each hint to the numbers of its patterns, so that a text is searched for it once."""
    numbers: dict[str, list[int]] = {}
    for number, pattern in enumerate(patterns):
        for hint in pattern.hints:
            numbers.setdefault(hint, []).append(number)
    return numbers


def _hinted(by_hint: dict[str, list[int]], text: str) -> list[int]:
    return sorted({number for hint in by_hint if hint in text for number in by_hint[hint]})


SHAPES_BY_HINT = _by_hint(SHAPES)


def without_shapes(text: str, lowered: str) -> str:
    text = _without_prose(text, lowered)
    for number in _hinted(SHAPES_BY_HINT, lowered):
        text = _without(SHAPES[number], text)
    return text


def _without_prose(text: str, lowered: str) -> str:
    if not any(noun in lowered for noun in NOUNS):
        return text
    lines = text.split("\n")
    for number, line in enumerate(lowered.split("\n")):
        if any(noun in line for noun in NOUNS):
            for shape in PROSE:
                lines[number] = _without(shape, lines[number])
    return "\n".join(lines)


def _without(shape: Shape, text: str) -> str:
    def hide(found: re.Match[str]) -> str:
        group = "quoted" if found.groupdict().get("quoted") is not None else "bare"
        value = found[group]
        if is_placeholder(value) or (shape.programs and not _is_of_program(shape, found, value)):
            return found[0]
        if shape.is_secret and group == "bare" and not shape.is_secret(value):
            return found[0]
        return with_mark(found, group, shape.name)

    return shape.pattern.sub(hide, text)


def _is_of_program(shape: Shape, found: re.Match[str], value: str) -> bool:
    if value.isdecimal() and len(value) < SHORTEST_NUMBER:
        return False  # a port
    before = found.string[max(0, found.start() - FARTHEST_PROGRAM) : found.start() + 1]
    line = before[before.rfind("\n") + 1 :].lower()
    return any(program in line for program in shape.programs)


_CELL = (
    r"(?:[\w-]{1,30}[ _-])?(?:password|passwort|kennwort|passwd|passphrase|secret|token|pin|psk"
    r"|api[ _-]?key)"
)
HEADING = re.compile(
    rf"(?:^|[|,;\t])[ \"*]{{0,9}}{_CELL}[ \"*]{{0,40}}(?:[|,;\t\r]|$)", re.MULTILINE
)
SECRET_COLUMN = re.compile(rf"{_CELL}$", re.IGNORECASE)
DRAWN_NAME = re.compile(r"[\w .*-]{0,60}$")
COLUMN_NAME = re.compile(r"[\w.-]{1,40}$")
RULE = re.compile(r"[-+|=: \t]+$")
KEY_AND_VALUE = re.compile(
    r"^Key[ ]+Value[ ]*\n---[ ]+-----[^\n]*(?:\n[^\n]+){1,200}", re.MULTILINE
)
ROW = re.compile(r"^(?P<name>\S+)[ ]+(?P<bare>\S[^\n]*)$", re.MULTILINE)


def without_columns(text: str, lowered: str) -> str:
    """Redact columns of tables (Markdown, psql, CSV) and rows of Vault's tables."""
    if "key  " in lowered:
        text = KEY_AND_VALUE.sub(_hide_rows, text)
    if not HEADING.search(lowered):
        return text
    lines = text.split("\n")
    below = 0
    for number, line in enumerate(lines):
        separator = next((one for one in "|\t,;" if one in line), "")
        if number >= below and separator and HEADING.search(line.lower()):
            below = _hide_columns(lines, number, separator)
    return "\n".join(lines)


def _hide_columns(lines: list[str], heading: int, separator: str) -> int:
    """Redact the secret columns of the rows below a heading; return where the table ends."""
    names = [name.strip(' "*\r') for name in lines[heading].split(separator)]
    is_drawn = separator == "|"
    if not all((DRAWN_NAME if is_drawn else COLUMN_NAME).match(name) for name in names):
        return heading
    columns = [number for number, name in enumerate(names) if SECRET_COLUMN.match(name)]
    for number in range(heading + 1, len(lines)):
        cells = lines[number].split(separator)
        if RULE.match(lines[number]):
            continue
        if len(cells) != len(names):
            return number
        for column in columns:
            value = cells[column].strip(' "`\r')
            if is_secret_item(names[column] if is_drawn else "", value):
                cells[column] = cells[column].replace(value, mark(kind_of(names[column])))
        lines[number] = separator.join(cells)
    return len(lines)


def _hide_rows(found: re.Match[str]) -> str:
    """Redact the values of telling names in a table of names and values."""
    return ROW.sub(
        lambda row: (
            with_mark(row, "bare", kind_of(row["name"]))
            if names_a_secret(row["name"]) and not is_placeholder(row["bare"])
            else row[0]
        ),
        found[0],
    )


# A line number that a program printed before the line.
_NUMBER = r"(?:[ \t]{0,9}\d{1,6}[→\t:])?"
KIND_SECRET = re.compile(rf"{_NUMBER}(?P<indent>[ ]*(?:- )?)kind:[ ]*[\"']?Secret[\"']?\s*$")
YAML_LINE = re.compile(
    rf"{_NUMBER}(?P<indent>[ ]*(?:- )?)(?:(?P<key>[^\s:#\[][^\s:]{{0,252}}):(?:[ ]+|$))?"
    r"(?P<bare>.*)$"
)
JSON_KIND = re.compile(r"\\{0,3}\"kind\\{0,3}\"\s{0,40}:\s{0,40}\\{0,3}\"(?P<kind>\w+)")
# The second form is JSON inside a text of JSON.
JSON_DATA = re.compile(
    r"(?:\"(?:data|stringData)\"\s{0,40}:\s{0,40}\{(?P<bare>(?:[^{}\"]|\"(?:\\.|[^\"\\\n])*\")*)"
    r"|\\{1,3}\"(?:data|stringData)\\{1,3}\"\s{0,40}:\s{0,40}\{(?P<escaped>[^{}]*))\}"
)
JSON_VALUE = re.compile(
    r":\s{0,40}(?P<quote>\\{0,3}\")(?P<bare>(?:(?!(?P=quote))(?:\\.|[^\\]))+)(?P=quote)"
)
FARTHEST_KIND = 4000
DATA_MARK = mark("secret data")
BLOCK_MARK = re.compile(r"[|>][-+\d]{0,2}$|\{\}$")


def without_kubernetes_secrets(text: str) -> str:
    """Redact the data of Kubernetes objects of the kind `Secret`, in YAML and JSON."""
    if "Secret" not in text or "kind" not in text or "ata" not in text:
        return text
    if "kind: " in text:
        text = _without_yaml_data(text)
    return JSON_DATA.sub(_hide_json_data, text) if '"Secret' in text else text


def _without_yaml_data(text: str) -> str:
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if found := KIND_SECRET.match(line):
            column = len(found["indent"])
            is_first = found["indent"].endswith("- ")
            for at in [
                *([] if is_first else _data_beside(lines, range(number - 1, -1, -1), column)),
                *_data_beside(lines, range(number + 1, len(lines)), column),
            ]:
                _hide_mapping(lines, at + 1, column)
    return "\n".join(lines)


def _data_beside(lines: list[str], numbers: range, column: int) -> list[int]:
    """Return the lines with `data:` or `stringData:` in the same mapping as `kind:`."""
    found: list[int] = []
    for number in numbers:
        line = _yaml_line(lines[number])
        indent, is_item = len(line["indent"]), line["indent"].endswith("- ")
        is_end = lines[number].startswith("---") or (lines[number].strip() and indent < column)
        if is_end or (
            indent == column and (line["key"] == "kind" or (is_item and numbers.step > 0))
        ):
            break
        if indent == column and line["key"] in ("data", "stringData"):
            found.append(number)
        if indent == column and is_item:
            break
    return found


def _hide_mapping(lines: list[str], start: int, column: int) -> None:
    """Redact all values that are indented deeper than a column."""
    for number in range(start, len(lines)):
        line = _yaml_line(lines[number])
        value = line["bare"].strip().strip("\"'")
        if (value or line["key"]) and len(line["indent"]) <= column:
            return
        if value and not BLOCK_MARK.match(value) and not is_placeholder(value):
            lines[number] = f"{lines[number][: line.start('bare')]}{DATA_MARK}"


def _yaml_line(line: str) -> re.Match[str]:
    found = YAML_LINE.match(line)
    assert found is not None  # it matches every line
    return found


def _hide_json_data(found: re.Match[str]) -> str:
    text = found.string
    after = JSON_KIND.search(text, found.end(), found.end() + FARTHEST_KIND)
    if after and not any(brace in text[found.end() : after.start()] for brace in "{}"):
        kind = after["kind"]
    else:
        start = max(0, found.start() - FARTHEST_KIND)
        kind = ([""] + [one["kind"] for one in JSON_KIND.finditer(text, start, found.start())])[-1]
    return JSON_VALUE.sub(_hide_json_value, found[0]) if kind == "Secret" else found[0]


def _hide_json_value(found: re.Match[str]) -> str:
    return found[0] if is_redacted(found["bare"]) else with_mark(found, "bare", "secret data")


CARD = re.compile(
    r"[2-6](?<![\w.-].)\d{3}(?:(?P<gap>[ -]?)\d{4}(?P=gap)\d{4}(?P=gap)\d{4}"
    r"|(?P<wide>[ -]?)\d{6}(?P=wide)\d{4,5})(?![\w-]|\.\d)"
)
CARD_PREFIX = re.compile(
    r"4\d{15}$|5[1-5]\d{14}$|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}$|3[47]\d{13}$"
    r"|3(?:0[0-5]|[68]\d)\d{11}$|6(?:011|5\d\d|4[4-9]\d)\d{12}$|35(?:2[89]|[3-8]\d)\d{12}$|62\d{14}$"
)


def without_cards(text: str) -> str:
    """Redact numbers of payment cards."""
    return CARD.sub(lambda found: mark("card number") if is_card(found[0]) else found[0], text)


def is_card(number: str) -> bool:
    """Return True for a number with the prefix and the check digit of a payment card."""
    digits = number.replace(" ", "").replace("-", "")
    if not CARD_PREFIX.match(digits):
        return False
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


@dataclass(frozen=True, slots=True)
class ProviderKey:
    """Key or token with the published prefix of its provider.

    The table is our own: detect-secrets reports lines of files instead of the characters to
    redact, and gitleaks is a program in Go.
    """

    name: str
    hints: tuple[str, ...]
    """Every text that the pattern matches contains one of these; they are cheaper to find."""
    pattern: re.Pattern[str]


# The start of a word, also after a line end that is written as two characters.
START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"


def _key(name: str, hints: str, pattern: str) -> ProviderKey:
    return ProviderKey(name, tuple(hints.split()), re.compile(START + pattern, re.ASCII))


LONGEST_BEGUN = 500
# The rest of a key, as opposed to a word, after a part that is a valid key itself.
NO_WORD = re.compile(r"(?=[^\d]*\d)(?=[^A-Za-z]*[A-Za-z])\S{12,}")

PROVIDER_KEYS = (
    _key("anthropic key", "sk-ant-", r"sk-ant-[\w-]{8,}"),
    _key("openai key", "sk-", r"sk-(?:proj|svcacct|admin|None|or-v1|lf)-[\w-]{8,}"),
    _key("api key", "sk-", r"sk-(?=[\w-]{0,60}\d)[\w-]{20,}"),
    _key("aws key id", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}(?![0-9A-Za-z])"),
    _key("claude ops token", "cops_", r"cops_[A-Za-z0-9]{20,}"),
    _key("github token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9_]{16,}"),
    _key("github token", "github_pat_", r"github_pat_\w{16,}"),
    _key(
        "gitlab token",
        "glpat- gldt- glrt- glcbt- glptt- glft- glsoat- glagent- glimt- gloas- GR1348941",
        r"(?:gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|imt|oas)-|GR1348941)[\w.-]{16,}",
    ),
    _key("slack token", "xox", r"xox[abeoprs](?:\.xox[bp])?-[\w-]{10,}"),
    _key("slack token", "xapp-", r"xapp-\d-[\w-]{10,}"),
    _key(
        "webhook address",
        "hooks.slack.com/ discord webhook.office.com",
        r"(?:hooks\.slack\.com/(?:services|workflows|triggers)"
        r"|(?:discord|discordapp)\.com/api(?:/v\d+)?/webhooks"
        r"|[\w-]{1,60}\.webhook\.office\.com/webhookb2)/[\w@/.-]{16,}",
    ),
    _key("stripe key", "_live_ _test_", r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"),
    _key("webhook secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    _key("google key", "AIza", r"AIza[\w-]{35}"),
    _key("google token", "ya29.", r"ya29\.[\w-]{20,}"),
    _key("google client secret", "GOCSPX-", r"GOCSPX-[\w-]{20,}"),
    _key("npm token", "npm_", r"npm_[A-Za-z0-9]{30,}"),
    _key("pypi token", "pypi-", r"pypi-AgE[\w-]{30,}"),
    _key("rubygems key", "rubygems_", r"rubygems_[0-9a-f]{32,}"),
    _key("docker token", "dckr_", r"dckr_(?:pat|oat)_[\w-]{20,}"),
    _key("digitalocean token", "_v1_", r"do[opr]_v1_[0-9a-f]{32,}"),
    _key("telegram token", ":AA", r"(?:bot)?\d{8,10}:AA[\w-]{32,34}(?![\w-])"),
    _key("sendgrid key", "SG.", r"SG\.[\w-]{16,}\.[\w-]{16,}"),
    _key("twilio key", "SK", r"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    _key("mailgun key", "key-", r"key-[0-9a-f]{32}(?![0-9A-Za-z])"),
    _key("mailchimp key", "-us", r"[0-9a-f]{32}-us\d{1,2}(?![0-9A-Za-z])"),
    _key("hugging face token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _key("groq key", "gsk_", r"gsk_[A-Za-z0-9]{40,}"),
    _key("xai key", "xai-", r"xai-[A-Za-z0-9]{40,}"),
    _key("perplexity key", "pplx-", r"pplx-[A-Za-z0-9]{32,}"),
    _key("replicate token", "r8_", r"r8_[A-Za-z0-9]{30,}"),
    _key("vault token", "hvs. hvb. hvr.", r"hv[sbr]\.[\w-]{20,}"),
    _key("terraform token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
    _key("databricks token", "dapi", r"dapi[0-9a-f]{32}(?:-\d)?(?![0-9A-Za-z])"),
    _key("shopify token", "shp", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _key("square token", "sq0", r"sq0(?:atp|csp|idp)-[\w-]{22,}"),
    _key("grafana token", "glsa_ glc_", r"(?:glsa_[A-Za-z0-9]{32}_[0-9a-f]{8}|glc_[\w+/=]{32,})"),
    _key("sentry token", "sntry", r"sntry[su]_[\w+/=]{32,}"),
    _key("new relic key", "NRAK- NRJS- NRII-", r"NR(?:AK|JS|II)-[\w-]{16,}"),
    _key("heroku key", "HRKU-", r"HRKU-[\w-]{30,}"),
    _key("fly token", "fm1 fm2 fo1_", r"(?:fm[12][ar]?_[\w+/=-]{40,}|fo1_[\w-]{40,})"),
    _key("tailscale key", "tskey-", r"tskey-[a-z]{3,12}-[\w-]{16,}"),
    _key("supabase key", "sbp_ sb_secret_", r"(?:sbp_[0-9a-f]{40}|sb_secret_[\w-]{20,})"),
    _key("planetscale token", "pscale_", r"pscale_(?:tkn|pw|oauth)_[\w.-]{30,}"),
    _key("netlify token", "nfp_", r"nfp_[A-Za-z0-9]{36,}"),
    _key("pulumi token", "pul-", r"pul-[0-9a-f]{40}"),
    _key("postman key", "PMAK-", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    _key("linear key", "lin_", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    _key("notion key", "ntn_ secret_", r"(?:ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43})"),
    _key("figma token", "fig", r"fig[duo]r?_[\w-]{36,}"),
    _key("doppler token", "dp.", r"dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[\w-]{1,40}\.)?[\w-]{36,}"),
    _key("atlassian token", "ATATT3 ATCTT3 ATBB", r"(?:AT[AC]TT3|ATBB)[\w=-]{24,}"),
    _key("airtable token", "pat", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    _key("artifactory key", "AKCp", r"AKCp[A-Za-z0-9]{60,}"),
    _key("alibaba key id", "LTAI", r"LTAI[A-Za-z0-9]{16,26}(?![0-9A-Za-z])"),
    _key("azure client secret", "Q~", r"[\w.~-]{3}\dQ~[\w.~-]{31,34}"),
    _key("dropbox token", "sl.", r"sl\.(?:u\.)?[\w-]{100,}"),
    _key("buildkite token", "bkua_", r"bkua_[0-9a-f]{40}"),
    _key("circleci token", "CCIPAT_", r"CCIPAT_\w{20,}"),
    _key("cloudflare key", "v1.0-", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{140,}"),
    _key("docker swarm token", "SWMTKN-", r"SWMTKN-1-[0-9a-z]{40,}-[0-9a-z]{20,}"),
    _key("grafana key", "eyJrIjoi", r"eyJrIjoi[\w+/=-]{30,}"),
    _key("1password token", "ops_eyJ", r"ops_eyJ[\w-]{40,}"),
    _key("k3s token", "K10", r"K10[0-9a-f]{64}::(?:\w{1,40}:)?[\w.-]{8,}"),
    _key("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{30,}"),
    # Not inside a longer word, where each part would be read to the end.
    _key("json web token", "eyJ", r"(?<!-)(?<!_)eyJ[\w-]{8,}(?:\.[\w-]{8,}){1,4}(?:\.[\w-]*)?"),
    _key(
        "password hash",
        "$",
        r"\$(?:1|2[abxy]?|5|6|7|8|9|y|gy|apr1|argon2(?:id|i|d)|scrypt)\$[\w./$,=+-]{16,}",
    ),
    _key("password hash", "pbkdf2_ scrypt$", r"(?:pbkdf2_\w{3,10}|scrypt)\$\d+\$[\w./$+=]{16,}"),
    _key("password hash", "{S {s", r"\{[Ss]{1,2}(?:HA|ha)(?:256|512)?\}[\w+/=]{20,}"),
)


KEYS_BY_HINT = _by_hint(PROVIDER_KEYS)


def without_provider_keys(text: str) -> str:
    for number in _hinted(KEYS_BY_HINT, text):
        key = PROVIDER_KEYS[number]
        text = key.pattern.sub(mark(key.name), text)
    return text


def completed_by(before: str, after: str) -> tuple[str, int]:
    """Find a key that starts in `before` and ends in `after`: its name and length in `after`."""
    if not before or not after:
        return "", 0
    begun, rest = before[-LONGEST_BEGUN:].split()[-1], after.split(maxsplit=1)[0]
    joined, place = begun + rest, len(begun)
    for key in (PROVIDER_KEYS[number] for number in _hinted(KEYS_BY_HINT, joined)):
        for found in key.pattern.finditer(joined):
            if found.start() < place < found.end() and _belongs_to_it(key, found, place):
                return key.name, found.end() - place
    return "", 0


def _belongs_to_it(key: ProviderKey, found: re.Match[str], place: int) -> bool:
    """Return False if the key was complete in the first text, and a word follows it."""
    was_whole = key.pattern.fullmatch(found.string, found.start(), place)
    return not was_whole or bool(NO_WORD.match(found.string, place, found.end()))


PRIVATE_KEY = "private key"
MARK = mark(PRIVATE_KEY)
HINT = "PRIVATE "
EDGE = re.compile(
    r"-----(?P<edge>BEGIN|END) (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"|PuTTY-User-Key-File-\d|(?P<putty_end>Private-MAC: ?[0-9a-f]*)"
)
HINTS = (HINT, "PuTTY-User-Key-File-")
# Characters of a key, also with line ends written as two characters.
OF_A_KEY = re.compile(r"(?:\\[nr]|[\sA-Za-z0-9+/=:,>-])*")
_LINE_END = r"(?=[ \t\r]*(?:\n|$))"
LINES_OF_A_KEY = re.compile(
    rf"(?:[A-Za-z0-9+/=]{{16,80}}|[A-Za-z0-9+/]{{1,80}}={{1,2}}){_LINE_END}"
    rf"(?:\s+[A-Za-z0-9+/=]{{1,80}}{_LINE_END})*"
)
HEADLESS = re.compile(r"[A-Za-z0-9+/=\s\\]")
BODY_HINTS = (
    *("b3BlbnNzaC1rZXktdjE", "IBAAKC", "IBAAKB", "IBADANBgkqhkiG9w", "BgkqhkiG9w0BBQ0"),
    *("GByqGSM49", "MHcCAQEE", "MDECAQEE", "AgEBBD", "AgEBBEI", "AwBQYDK2V", "EwBQYDK2V", "IBAzCC"),
)
# OpenSSH; then the first bytes of PKCS#1, PKCS#8, PKCS#12 and SEC 1, which contain lengths.
BODY = re.compile(
    r"(?:b3BlbnNzaC1rZXktdjE|MII[\w+/]{2}[AQgw]IB(?:AAK[BC]|ADANBgkqhkiG9w|AzCC)"
    r"|MII[\w+/]{5}BgkqhkiG9w0BBQ0|MI[GH][\w+/]AgEAM[\w+/]{0,4}GByqGSM49"
    r"|(?:MHcCAQEE|MDECAQEE|MI[GH][\w+/]AgEBB[DE])|(?:MC4CAQ|MFECAQ)[AE]wBQYDK2V)[A-Za-z0-9+/]{8,}={0,2}"
)
BODY_LINE = re.compile(
    r"(?:\r?\n|(?:\\r)?\\n)(?:[ \t]{0,9}\d{1,6}[→\t: ])?[ \t+>|-]{0,80}"
    r"(?P<line>[A-Za-z0-9+/]{1,80}={0,2}|={1,2})(?=\s|\\|\"|$)"
)


def without_key_blocks(text: str) -> str:
    """Redact private keys in one pass, also if their beginning or end is missing."""
    if any(hint in text for hint in BODY_HINTS):
        text = _without_bodies(text)
    if not any(hint in text for hint in HINTS):
        return text
    pieces: list[str] = []
    done, begun = 0, None
    for edge in EDGE.finditer(text):
        is_end = edge["edge"] == "END" or edge["putty_end"] is not None
        if begun is None and is_end:
            if edge["edge"]:
                pieces += [text[done : _start_of_rest(text, done, edge.start())], MARK]
                done = edge.end()
        elif begun is None:
            pieces.append(text[done : edge.start()])
            begun = edge
        elif is_end:
            pieces.append(MARK)
            done, begun = edge.end(), None
        else:
            # The previous key was cut off.
            done = _end_of_cut(text, begun.end(), edge.start())
            pieces += [MARK, text[done : edge.start()]]
            begun = edge
    if begun is not None:
        pieces.append(MARK)
        done = _end_of_cut(text, begun.end(), len(text))
    return "".join([*pieces, text[done:]])


def _without_bodies(text: str) -> str:
    """Redact the base64 of private keys whose head is missing."""
    pieces: list[str] = []
    done = 0
    while found := BODY.search(text, done):
        pieces += [text[done : found.start()], MARK]
        done, width = found.end(), len(found[0])
        # All lines but the last have the same length.
        while (line := BODY_LINE.match(text, done)) and len(line["line"]) <= width:
            done = line.end()
            if len(line["line"]) < width:
                break
    return "".join([*pieces, text[done:]])


def is_left_open(text: str) -> bool:
    """Return True if a private key starts in the text and does not end."""
    if not any(hint in text for hint in HINTS):
        return False
    *_, last = [None, *EDGE.finditer(text)]
    return last is not None and last["edge"] != "END" and last["putty_end"] is None


def length_of_lines(text: str) -> int:
    """Return the length of the lines of a private key at the start of a text."""
    found = LINES_OF_A_KEY.match(text)
    return len(found[0]) if found else 0


def _end_of_cut(text: str, start: int, limit: int) -> int:
    found = OF_A_KEY.match(text, start, limit)
    return start + len(found[0].rstrip()) if found else start


def _start_of_rest(text: str, lowest: int, end: int) -> int:
    """Return the start of the lines of a key without a header."""
    start = end
    while start > lowest and HEADLESS.match(text, start - 1):
        start -= 1
    # Skip prose before the key: lines of a key have no spaces.
    lines = text[start:end].split("\n")
    kept = 0
    while lines and (" " in lines[0].strip() or not lines[0].strip()):
        kept += len(lines.pop(0)) + 1
    return min(start + kept, end)


# Values that the installation knows.

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
SMALLEST_NUMBER = 10_000
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


Search = Callable[[str], str]


def redacted_data(value: Any) -> Any:
    """Redact all texts of a JSON value, also by the names of their keys."""
    known = known_here()  # one lookup for all texts
    # Lists repeat their keys and many of their texts: each is searched once.
    return _redacted_data(value, cache(lambda text: _redacted(text, known)))


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


def _redacted_data(value: Any, search: Search) -> Any:
    if isinstance(value, str):
        return search(value)
    if isinstance(value, list):
        return [_redacted_data(item, search) for item in value]
    if isinstance(value, dict):
        return {
            _redacted_key(key, search): _redacted_under(key, item, value, search)
            for key, item in value.items()
        }
    return value


def _redacted_key(key: Any, search: Search) -> Any:
    is_long = isinstance(key, str) and len(key) >= SHORTEST_KEY_WITH_SECRET
    return search(key) if is_long else key


def _redacted_under(key: Any, value: Any, around: dict[Any, Any], search: Search) -> Any:
    """Redact a value of an object by its key, and by the other values of the object."""
    if key in ("data", "stringData") and around.get("kind") == "Secret":
        return _hidden_data(value)
    if not isinstance(key, str) or not isinstance(value, str | list | int):
        return _redacted_data(value, search)
    if isinstance(value, list):
        is_named = NAMES_A_LIST.search(key) is not None
        return [_redacted_item(key if is_named else "", item, search) for item in value]
    if isinstance(value, int):
        is_secret = kind_of(key) == "password" and names_a_secret(key) and value >= SMALLEST_NUMBER
        return mark(kind_of(key)) if is_secret else value
    if key in PROTOCOL_KEYS and PROTOCOL_VALUE.fullmatch(value):
        return value
    # The environment of a container: {"name": "DB_PASSWORD", "value": "…"}.
    name = around.get("name") if key == "value" else key
    if isinstance(name, str) and names_a_secret(name) and not is_placeholder(value):
        return mark(kind_of(name))
    return search(value)


def _redacted_item(name: str, item: Any, search: Search) -> Any:
    if name and isinstance(item, str) and is_secret_item(name, item):
        return mark(kind_of(name))
    return _redacted_data(item, search)


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
        ("CLAUDEOPS_METRICS_TOKEN", settings.CLAUDEOPS_METRICS_TOKEN),
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
