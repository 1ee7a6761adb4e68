"""What a command of the agent sees of the environment: enough to work, and never a key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from escalation.agent import CREDENTIALS
from escalation.gate.programs.environment import understood_environment

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
RUN_MARK = "CLAUDEOPS_RUN"
ALWAYS_PASSED = ("PATH", "LANG", "TZ")

# What the gate's reading of a command counts on: bash's alphabet, and no program that asks.
SETTLED = {
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1",
    **understood_environment(),
}

# The operator names these for the CLI's own login, or they would change what a shell runs.
NEVER_PASSED = {*CREDENTIALS, "BASH_ENV", "ENV", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND"}
NEVER_BEGINS = ("ANTHROPIC_", "CLAUDE_", "CLAUDEOPS_", "BASH_FUNC_", "LD_")
CLOUD_LOGINS = {
    "CLAUDE_CODE_USE_BEDROCK": ("AWS_",),
    "CLAUDE_CODE_USE_VERTEX": ("GOOGLE_", "GCLOUD_", "CLOUD_ML_", "CLOUDSDK_", "VERTEX_"),
}


def clean_environment(
    surroundings: Mapping[str, str], *, also_pass: Iterable[str] = (), mark: str = ""
) -> dict[str, str]:
    """HOME and TMPDIR are the room's to say."""
    passed = {
        name: surroundings[name]
        for name in (*ALWAYS_PASSED, *also_pass)
        if surroundings.get(name) and not _is_kept_back(name, surroundings)
    }
    return {
        "PATH": DEFAULT_PATH,
        **passed,
        **SETTLED,
        **({RUN_MARK: mark} if mark else {}),
    }


def _is_kept_back(name: str, surroundings: Mapping[str, str]) -> bool:
    logins = [
        prefix
        for switch, prefixes in CLOUD_LOGINS.items()
        if surroundings.get(switch)
        for prefix in prefixes
    ]
    return name in NEVER_PASSED or name.startswith((*NEVER_BEGINS, *logins))
