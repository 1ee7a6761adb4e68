"""Environment variables with the credentials and addresses of the model's API.

The environments of the CLI, of commands and of drills, the API proxy, redaction and the settings
page read this table.
"""

from __future__ import annotations

from dataclasses import dataclass

API_KEY = "ANTHROPIC_API_KEY"
BASE_URL = "ANTHROPIC_BASE_URL"
CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
BEDROCK, VERTEX = "CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX"


@dataclass(frozen=True, kw_only=True, slots=True)
class Credential:
    name: str
    login: str = ""
    """Name of the login method; empty if the variable is only a part of one."""
    cloud: str = ""
    """Variable that selects the cloud. If it is set, the CLI signs its requests itself and gets
    this variable."""
    is_secret: bool = False
    """The value is redacted wherever text is stored or displayed."""
    is_proxied: bool = False
    """Used by the API proxy. The CLI never gets it, even if `CLAUDEOPS_PASS_ENV` names it."""
    is_optional: bool = False
    """Used only if `CLAUDEOPS_PASS_ENV` names it."""
    is_bearer: bool = True
    """Sent as `Authorization: Bearer` instead of `x-api-key`."""


# In the order in which the CLI prefers the login methods.
TABLE = (
    Credential(name=BEDROCK, login="Bedrock", cloud=BEDROCK),
    Credential(name=VERTEX, login="Vertex", cloud=VERTEX),
    Credential(
        name="ANTHROPIC_AUTH_TOKEN",
        login="a token for a proxy of your own",
        is_secret=True,
        is_proxied=True,
    ),
    Credential(name=API_KEY, login="an API key", is_secret=True, is_proxied=True, is_bearer=False),
    Credential(
        name="CLAUDE_CODE_OAUTH_TOKEN", login="a subscription", is_secret=True, is_proxied=True
    ),
    Credential(name=BASE_URL, is_proxied=True),
    Credential(name=CUSTOM_HEADERS, is_secret=True, is_proxied=True, is_optional=True),
    Credential(name="AWS_REGION", cloud=BEDROCK),
    Credential(name="AWS_DEFAULT_REGION", cloud=BEDROCK),
    Credential(name="AWS_PROFILE", cloud=BEDROCK),
    Credential(name="AWS_ACCESS_KEY_ID", cloud=BEDROCK),
    Credential(name="AWS_SECRET_ACCESS_KEY", cloud=BEDROCK, is_secret=True),
    Credential(name="AWS_SESSION_TOKEN", cloud=BEDROCK, is_secret=True),
    Credential(name="AWS_BEARER_TOKEN_BEDROCK", cloud=BEDROCK, is_secret=True),
    Credential(name="ANTHROPIC_BEDROCK_BASE_URL", cloud=BEDROCK),
    Credential(name="ANTHROPIC_VERTEX_PROJECT_ID", cloud=VERTEX),
    Credential(name="CLOUD_ML_REGION", cloud=VERTEX),
    Credential(name="GOOGLE_APPLICATION_CREDENTIALS", cloud=VERTEX),
    Credential(name="GOOGLE_CLOUD_PROJECT", cloud=VERTEX),
    Credential(name="ANTHROPIC_VERTEX_BASE_URL", cloud=VERTEX),
)
HIDDEN_FROM_COMMANDS = ("ANTHROPIC_", "CLAUDE_")
"""Prefixes of variables that commands of the agent do not get."""
HIDDEN_BY_CLOUD = {
    BEDROCK: ("AWS_",),
    VERTEX: ("GOOGLE_", "GCLOUD_", "CLOUD_ML_", "CLOUDSDK_", "VERTEX_"),
}
"""Additional prefixes while the CLI signs its requests to a cloud."""

LOGINS = {row.name: row.login for row in TABLE if row.login}
CLOUDS = {name: words for name, words in LOGINS.items() if name in HIDDEN_BY_CLOUD}
KEYS = {row.name: row for row in TABLE if row.login and row.is_proxied}
WITHHELD_FROM_CLI = tuple(row.name for row in TABLE if row.login or row.is_proxied)
SECRETS = tuple(row.name for row in TABLE if row.is_secret)
SHOWN = (*LOGINS, BASE_URL)
"""Variables on the settings page; the values of secrets are hidden."""


def signed_with(switch: str) -> tuple[str, ...]:
    """Return the variables that the CLI needs to sign requests to a cloud."""
    return tuple(row.name for row in TABLE if row.cloud == switch and row.name != switch)
