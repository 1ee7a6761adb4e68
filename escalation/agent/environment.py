"""What the CLI and its tools see of the environment: a short list, and what the operator names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from django.conf import settings

from escalation.agent.process import Traces

# Without these no program is found and no text is readable; the rest stays outside.
ALWAYS_PASSED = ("PATH", "LANG", "LC_ALL", "TZ", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL")

# Every tool starts through this program; see there.
TOOL_SHELL = Path(__file__).parent / "tool_shell"
RUN_MARK, TOOL_LOG = "CLAUDEOPS_RUN", "CLAUDEOPS_TOOL_LOG"

# Any of these lets the CLI log in; all but the first reach it only if the operator names them.
CREDENTIALS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "CLAUDE_CODE_OAUTH_TOKEN",
    "CLAUDE_CODE_USE_BEDROCK",
    "CLAUDE_CODE_USE_VERTEX",
)
NO_CREDENTIALS = (
    "No API key is configured: only drills can run. Set ANTHROPIC_API_KEY in the environment or in "
    ".env and start again."
)


def has_credentials(environment: Mapping[str, str]) -> bool:
    return any(environment.get(name) for name in CREDENTIALS)


def credentials_configured() -> bool:
    """Whether a real run of this installation could log in."""
    passed = (*ALWAYS_PASSED, *settings.CLAUDEOPS_PASS_ENV)
    return has_credentials({name: os.environ.get(name, "") for name in passed})


def cli_environment(
    surroundings: Mapping[str, str],
    *,
    home: Path,
    config_directory: Path,
    api_retries: int,
    also_pass: Iterable[str] = (),
    traces: Traces = Traces(),  # noqa: B008 (frozen: nothing can be shared by mistake)
) -> dict[str, str]:
    passed = {
        name: surroundings[name] for name in (*ALWAYS_PASSED, *also_pass) if surroundings.get(name)
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
        "CLAUDE_CODE_SHELL_PREFIX": str(TOOL_SHELL),
        **({RUN_MARK: traces.mark} if traces.mark else {}),
        **({TOOL_LOG: str(traces.tool_log)} if traces.tool_log else {}),
    }
