"""Environment variables for each understood command.

They keep programs from starting others: a pager, hooks of a repository, a module in the working
directory with the name of a module of Python.
"""

from __future__ import annotations

GIT_SETTINGS = {
    # In a sandbox files may have another owner, and git would refuse to read them.
    "safe.directory": "*",
    "core.hooksPath": "/dev/null",
    "core.fsmonitor": "false",
    "core.pager": "cat",
    "core.alternateRefsCommand": "true",
    "credential.helper": "",
    "push.gpgSign": "false",
    "commit.gpgSign": "false",
    "push.recurseSubmodules": "no",
    "fetch.recurseSubmodules": "false",
    "submodule.recurse": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
}


def understood_environment() -> dict[str, str]:
    """Return settings for git. Filters and drivers of `.gitattributes` cannot be switched off: see
    `Understanding.runs_unseen`."""
    numbered = list(enumerate(GIT_SETTINGS.items()))
    return {
        "PAGER": "cat",
        "MANPAGER": "cat",
        "SYSTEMD_PAGER": "cat",
        "GH_PAGER": "cat",
        "LESSSECURE": "1",
        "PYTHONSAFEPATH": "1",
        "GIT_PAGER": "cat",
        "GIT_EDITOR": "true",
        "GIT_ASKPASS": "",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_SSH_COMMAND": "ssh",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:file",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_COUNT": str(len(numbered)),
        **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _value) in numbered},
        **{f"GIT_CONFIG_VALUE_{index}": value for index, (_key, value) in numbered},
    }
