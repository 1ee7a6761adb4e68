"""The meaning of one simple command.

A grammar of `programs/` reads one argument vector and returns an `Understanding`, or None if it
cannot say what would happen. `decision.py` combines them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field

from sessions_app import tiers

Word = str | None
"""One word of a command after quoting and expansion; None if only the shell knows its value."""

LOOK, SAFE, FULL = tiers.LOOK, tiers.SAFE, tiers.FULL
"""The lowest tier that may do something."""
NEVER = sys.maxsize
"""Above the number of every tier."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    """A command inside a command: `sudo …`, `sh -c '…'`, `ssh host …`, `xargs …`."""

    argv: tuple[Word, ...] = ()
    text: Word = ""
    """Text for a shell; empty if `argv` is given."""
    from_stdin: bool = False
    """The text comes from standard input: `bash <<EOF`, `… | sh`."""
    same_shell: bool = False
    """It runs in the surrounding shell (`eval`, `trap`), which can change its variables."""
    posix: bool = False
    """The shell may not be bash: syntax that differs is not understood."""
    elsewhere: bool = False
    """It runs on another host or in a container, outside of any sandbox."""
    on_host: bool = False
    """Its wrapper (sudo, su …) cannot work in a sandbox and runs on the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Understanding:
    """One simple command, understood."""

    action: str
    """Program and verb without global options, aliases and paths: "docker restart", "cat"."""
    arguments: tuple[Word, ...] = ()
    """The words after the action."""
    level: int = LOOK
    grants: frozenset[str] = field(default_factory=frozenset)
    """Grants that it needs: "docker", "network", "host" …"""
    writes: tuple[Word, ...] = ()
    """Paths that it writes or removes; None for a computed path. Writing needs Tier 2, except in
    the /tmp of the sandbox; `level` is for other effects."""
    inner: tuple[Inner, ...] = ()
    runs_unseen: bool = False
    """It may run programs that files name (git's filters and hooks), so it gets no grants."""
    needs_agent: bool = False
    """It sends any files by ssh, or runs programs that files name: it may use the operator's
    ssh-agent, but no keys."""
    sends_files: bool = False
    """It sends files directly: not even Tier 3 may run it with keys."""
    sends_input: bool = False
    """It sends its standard input to another host."""
    why: str = ""
    """Its effect for a level over LOOK, as in "restarts a container"."""
