"""Secrets told by the syntax around them: addresses, headers, options of programs, SQL, XML. Pure.

Each pattern begins with fixed words and reads a bounded number of characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sessions_app.reading.named_secrets import QUOTED, VALUE, says_nothing, with_mask

FARTHEST_PROGRAM = 1000
SHORTEST_NUMBER = 6


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    hints: tuple[str, ...]
    """Lower case; one of them is in every text that the pattern can match."""
    pattern: re.Pattern[str]
    """Its group `bare` or `quoted` is the secret."""
    programs: tuple[str, ...] = ()
    """One of them must stand before it in the same line: `-p` means something else elsewhere."""


def _shape(name: str, hints: str, pattern: str, programs: str = "") -> Shape:
    compiled = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return Shape(name, tuple(hints.split()), compiled, tuple(filter(None, programs.split("|"))))


_Q = r"(?:\\{0,3}[\"'])?"
_GAP = r"[ \t]{1,9}"
_ANY = r"[ \t]{0,9}"

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
        "--pass --token --api --secret --access -pass -token -key -secret",
        r"(?<!\w)--?(?:[a-z0-9]{1,20}[_-]){0,4}(?:password|passwd|pass|passphrase|token|api-?key"
        rf"|secret|secret-key|access-key){_GAP}(?!-|pass:|env:|file:|stdin|fd:){VALUE}",
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
        "htpasswd",
        rf"htpasswd{_GAP}-\w{{0,9}}b\w{{0,9}}{_GAP}(?:[^\s]{{1,200}}{_GAP}){{2}}{VALUE}",
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
    _shape("password", "password", rf"\w{_GAP}password{_GAP}{QUOTED}"),
    _shape("password", "requirepass masterauth", rf"(?:requirepass|masterauth){_GAP}{VALUE}"),
    _shape(
        "password",
        ":",
        r"^[\w.*-]{1,200}:(?:\d{4,5}|\*):[\w.*-]{1,100}:[\w.*-]{1,100}:(?P<bare>[^\s:]{3,200})$",
    ),
    _shape(
        "secret",
        "</",
        r"<(?:[\w.-]{1,40}:)?\w{0,40}(?:password|passwd|secret|token|apikey)>"
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
)


def without_told(text: str, lowered: str) -> str:
    for shape in SHAPES:
        if any(hint in lowered for hint in shape.hints):
            text = _without(shape, text)
    return text


def _without(shape: Shape, text: str) -> str:
    def hide(found: re.Match[str]) -> str:
        group = "quoted" if found.groupdict().get("quoted") is not None else "bare"
        value = found[group]
        if says_nothing(value) or (shape.programs and not _is_of_program(shape, found, value)):
            return found[0]
        return with_mask(found, group, shape.name)

    return shape.pattern.sub(hide, text)


def _is_of_program(shape: Shape, found: re.Match[str], value: str) -> bool:
    if value.isdecimal() and len(value) < SHORTEST_NUMBER:
        return False  # a port
    before = found.string[max(0, found.start() - FARTHEST_PROGRAM) : found.start() + 1]
    line = before[before.rfind("\n") + 1 :].lower()
    return any(program in line for program in shape.programs)
