"""Where one run takes place: all that its rooms are built from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from escalation.gate.doors import Doors

CLIENT_NAME, SOCKET_NAME = "tool-client", "tools.sock"


@dataclass(frozen=True, kw_only=True, slots=True)
class Operator:
    """What belongs to whoever started the supervisor, and is lent to single commands by a door."""

    home: Path
    ssh_agent: Path | None = None
    """The socket in SSH_AUTH_SOCK."""
    kubeconfigs: tuple[Path, ...] = ()
    """The files in KUBECONFIG; without them `~/.kube`."""

    @property
    def has_agent(self) -> bool:
        return self.ssh_agent is not None and self.ssh_agent.is_socket()

    @classmethod
    def of(cls, environment: Mapping[str, str], home: Path) -> Operator:
        agent = environment.get("SSH_AUTH_SOCK", "")
        files = [name for name in environment.get("KUBECONFIG", "").split(":") if name]
        return cls(
            home=home,
            ssh_agent=Path(agent) if agent else None,
            kubeconfigs=tuple(Path(name) for name in files),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlace:
    workdir: Path
    config_directory: Path
    """The CLI's own, for this run: the one thing that it may always write."""
    temp_directory: Path
    """The CLI's TMPDIR, on the host: its tools' output and their last directory pass here."""
    run_directory: Path
    """Holds the client program and the tool runner's socket. Nothing in a room writes here."""
    operator: Operator
    tool_environment: Mapping[str, str]
    """What a command sees; `tool_environment.clean_environment` makes it."""
    hidden: tuple[Path, ...] = ()
    """State, code, prompts: hidden even where the working directory holds them."""
    other_watches: tuple[Path, ...] = ()
    """Their directories: hidden, unless they lie inside what this watch names."""
    doors: Doors = field(default_factory=Doors)
    writable: bool = False
    """From Tier 2 on, and not in a dry run: the working directory and `doors.writable`."""
    rooms: bool = True
    """Without rooms an allowed command runs on the host, and nothing else runs at all."""
    docker_socket: Path | None = None
    """The filter's, never the engine's own."""
    mark: str = ""
    tool_log: Path | None = None
    """Where commands that run on the host are written down, for whoever must end them."""

    def is_own_ground(self, directory: str) -> bool:
        """Whether it lies in what this run works on, links resolved."""
        real = Path(os.path.realpath(directory))
        own = (self.workdir, *map(Path, self.doors.writable))
        return any(real.is_relative_to(os.path.realpath(place)) for place in own)

    @property
    def client(self) -> Path:
        return self.run_directory / CLIENT_NAME

    @property
    def socket(self) -> Path:
        return self.run_directory / SOCKET_NAME
