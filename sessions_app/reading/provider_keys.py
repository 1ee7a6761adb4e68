"""What the keys and tokens of the usual providers look like: by their own prefixes. Pure.

Our own table, from the prefixes that the providers publish. Of the scanners that have such tables,
detect-secrets says on which line of a file a secret may be, not what to hide in a stream, and
brings an HTTP client along; gitleaks is a program in Go.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProviderKey:
    name: str
    hints: tuple[str, ...]
    """One of these is in every text that the pattern can match: finding them is much cheaper."""
    pattern: re.Pattern[str]


# At the start of a word; a line end that is written as two characters also ends the word before.
START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"


def _key(name: str, hints: str, pattern: str) -> ProviderKey:
    return ProviderKey(name, tuple(hints.split()), re.compile(START + pattern, re.ASCII))


LONGEST_BEGUN = 500
# The rest of a key whose beginning could be a whole one, and no word.
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
    # Not within a word that goes on: each of its parts would be read to the end of them all.
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
    """The key that begins in one text and ends in the next: its name, and its length in that."""
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
    """What was whole before is masked, and the word after it is the next sentence's."""
    was_whole = key.pattern.fullmatch(found.string, found.start(), place)
    return not was_whole or bool(NO_WORD.match(found.string, place, found.end()))
