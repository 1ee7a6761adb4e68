"""Filters of every tier before one engine, and clients that speak to them."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from escalation.sandbox.docker_filter import DockerFilter
from escalation.sandbox.docker_rules import DockerEffect
from sessions_app.models import Change

DOCKER = shutil.which("docker") or "docker"


@contextmanager
def filters_before(engine: Path, **options: Any) -> Iterator[Callable[[int], Path]]:
    """Gives what opens the socket that a tier gets."""
    with ExitStack() as stack:

        def at(level: int) -> Path:
            path = engine.with_name(f"tier{level}.sock")
            made = DockerFilter(path, engine, level, **{"hidden": ("/srv/ops",), **options})
            return stack.enter_context(made.serving())

        yield at


@dataclass
class Judge:
    """Counts effects by container as cooldowns do, and asks for each one that is left."""

    restarts: int = 2
    redeployments: int = 1
    approves: bool = True
    effects: list[DockerEffect] = field(default_factory=list)
    asked: list[DockerEffect] = field(default_factory=list)
    _used: Counter[tuple[str, str]] = field(default_factory=Counter)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, effect: DockerEffect, client: socket.socket) -> str:
        limits = {Change.Kind.RESTART: self.restarts, Change.Kind.REDEPLOY: self.redeployments}
        with self._lock:
            self.effects.append(effect)
            if effect.counted not in limits:
                return ""
            if self._used[effect.counted, effect.service] >= limits[effect.counted]:
                return f"cooldown: {effect.service}"
            self.asked.append(effect)
            if not self.approves:
                return "rejected"
            self._used[effect.counted, effect.service] += 1
        return ""

    def forget(self) -> None:
        """Begins anew, as after a cooldown."""
        self._used.clear()
        self.asked.clear()

    @property
    def kinds(self) -> list[str]:
        return [f"{effect.kind} {effect.verb} {effect.service}" for effect in self.effects]


def docker(path: Path, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {"DOCKER_HOST": f"unix://{path}", "HOME": str(path.parent), "PATH": "/usr/bin"}
    return subprocess.run(
        [DOCKER, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        **options,
    )


def curl(path: Path, line: str, body: object = None) -> int:
    """Returns the status of a request like `POST /containers/web/restart`."""
    method, target = line.split(" ", 1)
    sent = [] if body is None else ["--data", json.dumps(body)]
    command = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", "--path-as-is", "-g"]
    result = subprocess.run(
        [*command, "--unix-socket", str(path), "-X", method, *sent, f"http://docker{target}"],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return int(result.stdout)
