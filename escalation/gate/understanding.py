"""What a command was understood to be: the words between those who read commands and who decides.

A program's grammar (`programs/`) reads one argument vector and answers with an `Understanding`, or
with None where it cannot say what would happen. The decision puts those together.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Word = str | None
"""One word of a command after quoting and expansion; None where only the running shell knows it."""

LOOK, SAFE, FULL, NEVER = 1, 2, 3, 4
"""The lowest tier that may do something. NEVER: no tier may, whoever asks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inner:
    """A command inside a command: `sudo …`, `sh -c '…'`, `ssh host …`, `xargs …`."""

    argv: tuple[Word, ...] = ()
    text: Word = ""
    """Shell text, for what is handed to a shell; empty where `argv` is given."""
    from_stdin: bool = False
    """Its text is what the command reads on its standard input: `bash <<EOF`, `… | sh`."""
    same_shell: bool = False
    """It runs in the shell around it (`eval`, `trap`): a trap there can change its variables."""
    posix: bool = False
    """A shell that may know less than bash reads the text: what they read differently is not
    understood. Always so elsewhere."""
    elsewhere: bool = False
    """It runs on another host or in a container, where no room of ours holds it."""
    on_host: bool = False
    """Its wrapper (sudo, su …) cannot work in a room: it has to run on the host itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Understanding:
    """One simple command, understood."""

    action: str
    """Program and verb in their plain form, without global options, aliases and paths: "docker
    restart", "git push", "cat". A wrapper's own name ("timeout") where it does nothing itself."""
    arguments: tuple[Word, ...] = ()
    """What stands after the action, as written."""
    level: int = LOOK
    doors: frozenset[str] = field(default_factory=frozenset)
    """Doors without which it cannot do its work: "docker", "network", "host" …"""
    writes: tuple[Word, ...] = ()
    """Paths that it writes or removes, as written; None where that is computed. Writing needs
    Tier 2 by itself, except in the room's own /tmp: `level` is for what a command does besides."""
    inner: tuple[Inner, ...] = ()
    runs_unseen: bool = False
    """It may run programs that files name (git's filters and hooks): no door may be open beside
    it."""
    needs_agent: bool = False
    """It sends files of choice by ssh, or runs what files name beside it: the operator's agent may
    be there for it, but not a key that could be one of those files."""
    sends_files: bool = False
    """So directly that not even Tier 3 may do it with keys in reach."""
    sends_input: bool = False
    """What it reads on its standard input goes to the other side."""
    why: str = ""
    """For a level over LOOK: what it would do, as in "restarts a container"."""
