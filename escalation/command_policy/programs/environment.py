"""Variables that the grammars count on: set for each command that was understood.

Without them a program would start others of its own choice: a pager, a repository's hooks, a module
that lies in the working directory under the name of one of Python's.
"""

from __future__ import annotations

GIT_SETTINGS = {
    # Files in a room may seem to belong to somebody else, at which git would refuse to read them.
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
    """Filters and drivers that `.gitattributes` names cannot be switched off this way: see
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
        "GIT_ALLOW_PROTOCOL": "https:http:ssh",
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_CONFIG_COUNT": str(len(numbered)),
        **{f"GIT_CONFIG_KEY_{index}": key for index, (key, _value) in numbered},
        **{f"GIT_CONFIG_VALUE_{index}": value for index, (_key, value) in numbered},
    }
