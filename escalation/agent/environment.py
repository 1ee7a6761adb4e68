"""What the CLI and its tools see of the environment: a short list, and what the operator names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from django.conf import settings

from escalation.agent.process import Traces

# Without these no program is found and no text is readable; the rest stays outside.
ALWAYS_PASSED = ("PATH", "LANG", "LC_ALL", "TZ")
RUN_MARK = "CLAUDEOPS_RUN"

# With what the CLI signs its requests itself, when it is told to by the first of each.
SIGNED_BY_THE_CLI = {
    "CLAUDE_CODE_USE_BEDROCK": (
        *("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID"),
        *("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK"),
        "ANTHROPIC_BEDROCK_BASE_URL",
    ),
    "CLAUDE_CODE_USE_VERTEX": (
        *("ANTHROPIC_VERTEX_PROJECT_ID", "CLOUD_ML_REGION", "GOOGLE_APPLICATION_CREDENTIALS"),
        *("GOOGLE_CLOUD_PROJECT", "ANTHROPIC_VERTEX_BASE_URL"),
    ),
}
# Each is a way to log in, and what it is, in words.
CREDENTIALS = {
    "ANTHROPIC_API_KEY": "an API key",
    "ANTHROPIC_AUTH_TOKEN": "a token for a proxy of your own",
    "CLAUDE_CODE_OAUTH_TOKEN": "a subscription",
    "CLAUDE_CODE_USE_BEDROCK": "Bedrock",
    "CLAUDE_CODE_USE_VERTEX": "Vertex",
}
# How the API is found and opened. Nothing of it reaches the CLI by itself: see `run/walls`.
ALWAYS_LOGIN = (*CREDENTIALS, "ANTHROPIC_BASE_URL")
MORE_OF_LOGIN = (*CREDENTIALS, "ANTHROPIC_BASE_URL", "ANTHROPIC_CUSTOM_HEADERS")
WAY_TO_API = (
    *("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"),
    "NODE_EXTRA_CA_CERTS",
)
NO_CREDENTIALS = (
    "No API key is configured: only drills can run. Set ANTHROPIC_API_KEY in the environment or in "
    ".env and start again; docs/credentials.md has the other ways to log in."
)


def has_credentials(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in CREDENTIALS)


def credentials_configured() -> bool:
    """Whether a real run of this installation could log in."""
    return has_credentials(login_from(os.environ, settings.CLAUDEOPS_PASS_ENV))


def login_from(surroundings: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """The way to the API and what opens it, as far as the operator lets it be used."""
    signed = (
        name
        for switch, names in SIGNED_BY_THE_CLI.items()
        if surroundings.get(switch)
        for name in names
    )
    names = (*ALWAYS_LOGIN, *WAY_TO_API, *signed, *(n for n in named if n in MORE_OF_LOGIN))
    return {name: surroundings[name] for name in names if surroundings.get(name)}


def credential_in(login: Mapping[str, str]) -> str:
    """Which of them it is, in words; empty where there is none. The CLI signs before it sends a
    key, and prefers a token to a key."""
    order = (*SIGNED_BY_THE_CLI, "ANTHROPIC_AUTH_TOKEN", *CREDENTIALS)
    found = next((name for name in order if login.get(name)), "")
    return f"{found}: {CREDENTIALS[found]}" if found else ""


def cli_environment(
    surroundings: Mapping[str, str],
    *,
    home: Path,
    config_directory: Path,
    api_retries: int,
    also_pass: Iterable[str] = (),
    traces: Traces = Traces(),  # noqa: B008 (frozen: nothing can be shared by mistake)
) -> dict[str, str]:
    """Without the login: whoever starts a CLI adds how it reaches its API, and its shell prefix."""
    passed = {
        name: surroundings[name]
        for name in (*ALWAYS_PASSED, *also_pass)
        if surroundings.get(name) and name not in MORE_OF_LOGIN
    }
    return {
        "HOME": str(home),
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        **passed,
        "CLAUDE_CONFIG_DIR": str(config_directory),
        "CLAUDE_CODE_MAX_RETRIES": str(api_retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
        "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
        "DISABLE_AUTOUPDATER": "1",
        **({RUN_MARK: traces.mark} if traces.mark else {}),
    }
