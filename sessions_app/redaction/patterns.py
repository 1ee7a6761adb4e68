"""Patterns of secrets: telling names, syntax, keys of providers, private keys. Pure functions.

A name alone is not enough (`password = getpass()`, `token: required`), so each value is checked
before it is redacted. All patterns take linear time: each begins with fixed text and reads a
bounded number of characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
# A word of a shell, of YAML or of a connection string.
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
"""Cheap test before `BLOCK_SCALAR`."""
NAMES_ITSELF = re.compile(rf"{NAMES}{ENDINGS}$", re.IGNORECASE)
NAME_HINTS = (
    *("pass", "pwd", "secret", "token", "credential", "key", "_auth"),
    *("psk", "kennwort", "contrase"),
)
PLACES_OF_NAMES = frozenset(["files", "compat", "sss", "systemd", "ldap", "nis", "winbind", "db"])
"""Sources in /etc/nsswitch.conf, as in `passwd: files systemd`."""

NO_VALUES = frozenset(
    [
        *("none", "null", "nil", "true", "false", "undefined", "str", "string", "int"),
        *("integer", "bytes", "bool", "boolean", "any", "object", "required", "optional"),
        *("yes", "no", "empty", "unset", "hidden", "redacted", "masked", "missing", "invalid"),
        *("expired", "not", "the", "and", "for", "is", "secretstr", "text", "varchar", "char"),
        *("number", "unknown", "incorrect", "wrong", "changed", "rejected", "denied"),
        *("failed", "granted", "basic", "bearer"),
    ]
)
NO_VALUE = re.compile(
    r"\$[{(]|\$\$?[A-Za-z_]+$|%[A-Za-z_]+%$|%[s(]|\{|<|https?://"  # a reference
    r"|[*•xX.…_#?-]+$"  # hidden by another program
    r"|(?:self|this|os|sys|settings|config|conf|process|env|environ|args|opts|options|request|req"
    r"|params|props|data|values|secrets|vars|var|local|module|ctx|user|kwargs)\.[A-Za-z_]"  # code
    r"|~?/(?:run|etc|var|home|srv|opt|root|usr|tmp|mnt|app|data|secrets|dev|proc)/"  # a file
)
WORD = re.compile(r"[A-Za-z]+$")
LONGEST_MARK = 60
KEY_CHARACTERS = frozenset("\"'\\_-.")


def without_pairs(text: str, lowered: str) -> str:
    """Redact `password=…` in shell, YAML, JSON, environments, headers and connection strings."""
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


def _hide_block(found: re.Match[str]) -> str:
    return found[0] if is_placeholder(found["bare"]) else with_mark(found, "bare", "secret")


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


def without_shapes(text: str, lowered: str) -> str:
    for shape in SHAPES:
        if any(hint in lowered for hint in shape.hints):
            text = _without(shape, text)
    return text


def _without(shape: Shape, text: str) -> str:
    def hide(found: re.Match[str]) -> str:
        group = "quoted" if found.groupdict().get("quoted") is not None else "bare"
        value = found[group]
        if is_placeholder(value) or (shape.programs and not _is_of_program(shape, found, value)):
            return found[0]
        return with_mark(found, group, shape.name)

    return shape.pattern.sub(hide, text)


def _is_of_program(shape: Shape, found: re.Match[str], value: str) -> bool:
    if value.isdecimal() and len(value) < SHORTEST_NUMBER:
        return False  # a port
    before = found.string[max(0, found.start() - FARTHEST_PROGRAM) : found.start() + 1]
    line = before[before.rfind("\n") + 1 :].lower()
    return any(program in line for program in shape.programs)


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
    _key("1password token", "ops_eyJ", r"ops_eyJ[\w-]{40,}"),
    _key("k3s token", "K10", r"K10[0-9a-f]{64}::(?:\w{1,40}:)?[\w.-]{8,}"),
    _key("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{30,}"),
    # Not inside a longer word, where each part would be read to the end.
    _key("json web token", "eyJ", r"(?<!-)(?<!_)eyJ[\w-]{8,}(?:\.[\w-]{8,}){1,4}(?:\.[\w-]*)?"),
    _key(
        "password hash",
        "$",
        r"\$(?:1|2[abxy]?|5|6|7|y|gy|apr1|argon2(?:id|i|d)|scrypt)\$[\w./$,=+-]{16,}",
    ),
    _key("password hash", "pbkdf2_ scrypt$", r"(?:pbkdf2_\w{3,10}|scrypt)\$\d+\$[\w./$+=]{16,}"),
    _key("password hash", "{S {s", r"\{[Ss]{1,2}(?:HA|ha)(?:256|512)?\}[\w+/=]{20,}"),
)


def completed_by(before: str, after: str) -> tuple[str, int]:
    """Find a key that starts in `before` and ends in `after`: its name and length in `after`."""
    if not before or not after:
        return "", 0
    begun, rest = before[-LONGEST_BEGUN:].split()[-1], after.split(maxsplit=1)[0]
    joined, place = begun + rest, len(begun)
    for key in PROVIDER_KEYS:
        if not any(hint in joined for hint in key.hints):
            continue
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


def without_key_blocks(text: str) -> str:
    """Redact private keys in one pass, also if their beginning or end is missing."""
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
