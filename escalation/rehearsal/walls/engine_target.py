"""The Docker engine of the stage: what reached it that would change something."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from escalation.rehearsal.walls.docker_engine import DockerEngine, docker_engine


@dataclass(slots=True)
class EngineTarget:
    socket: Path
    engine: DockerEngine
    _read: int = 0

    def changes_since_last_look(self) -> list[str]:
        changes = self.engine.changes
        new, self._read = changes[self._read :], len(changes)
        return new

    def reset(self) -> None:
        """The containers and volumes of the beginning."""
        fresh = DockerEngine()
        self.engine.containers, self.engine.volumes = fresh.containers, fresh.volumes


@contextmanager
def engine_target(directory: Path) -> Iterator[EngineTarget]:
    directory.mkdir()
    socket = directory / "docker.sock"
    with docker_engine(socket) as engine:
        yield EngineTarget(socket, engine)
