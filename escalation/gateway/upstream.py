"""Where the real API is and what opens it, out of the operator's environment."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

from escalation.errors import CannotRun, WhyNot

VENDOR = "https://api.anthropic.com"
# In the order in which the CLI itself prefers them.
KEY_VARIABLES = ("ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
SIGNED_ELSEWHERE = {
    "CLAUDE_CODE_USE_BEDROCK": "Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Vertex",
    "CLAUDE_CODE_USE_FOUNDRY": "Foundry",
}
# Everything by which a key could reach the CLI past the gateway.
HELD_BACK = (*KEY_VARIABLES, "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS")


@dataclass(frozen=True, kw_only=True, slots=True)
class Address:
    host: str
    port: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Proxy:
    address: Address
    headers: dict[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Upstream:
    address: Address
    secure: bool
    prefix: str = ""
    """The path of the base URL, without a slash at its end."""
    variable: str
    """By which variable the CLI is told its token: it behaves as with the real one."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Put on every request: the key, and what the operator adds. Never shown."""
    proxy: Proxy | None = None
    no_proxy: str = ""
    """Where the operator wants no proxy: the CLI needs it to find the gateway."""
    extra_certificates: str = ""
    """A file with authorities besides the system's own, as the CLI knows them."""


def why_key_is_inside(environment: Mapping[str, str]) -> str:
    """Why no gateway can stand between, in words for a page; empty where one can."""
    for variable, name in SIGNED_ELSEWHERE.items():
        if environment.get(variable):
            return (
                f"the key is inside: requests to {name} are signed by the CLI itself ({variable})"
            )
    if not any(environment.get(variable) for variable in KEY_VARIABLES):
        return "no key is configured that a gateway could hold"
    return ""


def upstream_from(environment: Mapping[str, str]) -> Upstream | None:
    """None where `why_key_is_inside` has a reason; CannotRun for a value that cannot be used."""
    if why_key_is_inside(environment):
        return None
    base = environment.get("ANTHROPIC_BASE_URL") or VENDOR
    url = _url("ANTHROPIC_BASE_URL", base)
    variable = next(name for name in KEY_VARIABLES if environment.get(name))
    address = _address(url)
    return Upstream(
        address=address,
        secure=url.scheme == "https",
        prefix=url.path.rstrip("/"),
        variable=variable,
        headers={**_credential(variable, environment[variable]), **_custom_headers(environment)},
        proxy=_proxy(environment, url.scheme, address),
        no_proxy=no_proxy(environment),
        extra_certificates=environment.get("NODE_EXTRA_CA_CERTS", ""),
    )


def _unusable(message: str) -> CannotRun:
    return CannotRun(message, WhyNot.WAY_TO_THE_API)


def _credential(variable: str, value: str) -> dict[str, str]:
    value = value.strip()
    if not value.isascii() or not value.isprintable():
        raise _unusable(f"{variable} holds characters that no header can carry: set it again.")
    if variable == "ANTHROPIC_API_KEY":
        return {"x-api-key": value}
    return {"authorization": f"Bearer {value}"}


def _custom_headers(environment: Mapping[str, str]) -> dict[str, str]:
    """One `Name: value` a line, as the CLI reads them; a line without a colon is none."""
    lines = environment.get("ANTHROPIC_CUSTOM_HEADERS", "").splitlines()
    pairs = (line.partition(":") for line in lines if ":" in line)
    named = {name.strip().lower(): value.strip() for name, _colon, value in pairs}
    if any(
        not (name.isascii() and name.replace("-", "").replace("_", "").isalnum())
        or not (value.isascii() and (value.isprintable() or not value))
        for name, value in named.items()
    ):
        raise _unusable("ANTHROPIC_CUSTOM_HEADERS: one `Name: value` a line, in ASCII.")
    return named


def _proxy(environment: Mapping[str, str], scheme: str, address: Address) -> Proxy | None:
    name = f"{scheme}_proxy"
    value = environment.get(name) or environment.get(name.upper())
    if not value or _is_excepted(address, no_proxy(environment)):
        return None
    url = _url(name.upper(), value if "://" in value else f"http://{value}")
    if url.scheme != "http":
        raise _unusable(f"{name.upper()}: only a proxy that is spoken to by http:// can be used.")
    headers = {}
    if url.username is not None:
        pair = f"{unquote(url.username)}:{unquote(url.password or '')}"
        headers["Proxy-Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(address=_address(url), headers=headers)


def no_proxy(environment: Mapping[str, str]) -> str:
    """The operator's exceptions from the proxy."""
    return environment.get("no_proxy") or environment.get("NO_PROXY") or ""


def _is_excepted(address: Address, exceptions: str) -> bool:
    for word in exceptions.lower().replace(",", " ").split():
        name = word.removesuffix(f":{address.port}").removeprefix("*").lstrip(".")
        if word == "*" or address.host == name or (name and address.host.endswith(f".{name}")):
            return True
    return False


def _url(variable: str, value: str) -> SplitResult:
    """The value itself is not repeated: it may hold a password."""
    try:
        url = urlsplit(value.strip())
        usable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
        usable = usable and url.path.isascii() and (url.path + "x").isprintable()
    except ValueError:
        usable = False
    if not usable:
        raise _unusable(f"{variable} is no address: write http://host:port or https://host.")
    return url


def _address(url: SplitResult) -> Address:
    assert url.hostname is not None
    return Address(host=url.hostname, port=url.port or (443 if url.scheme == "https" else 80))
