"""Which containers of an engine are Claude Ops itself: its own, and those of its compose project.

The engine is asked, because a container has a name, an id and every beginning of that id. A
container that nobody can tell is treated as ours: a wall that does not know is closed.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote

from escalation.rooms.docker_request import NotClear

PROJECT = "com.docker.compose.project"
ASK_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Ours:
    """What the engine says of our own container."""

    id: str
    project: str = ""
    sources: frozenset[str] = frozenset()
    """The volumes by name, and the host's directories, in which our places lie."""


class OwnContainers:
    """`name` is the beginning of our container's id, or empty where we run in none; `places` are
    ours as they are called in it."""

    def __init__(
        self, name: str, places: tuple[str, ...], connected: Callable[[], socket.socket]
    ) -> None:
        self._name = name
        self._places = places
        self._connected = connected
        self._lock = threading.Lock()
        self._known: Ours | None = None

    def holds(self, container: str) -> bool:
        """Whether this name or id means one of ours; NotClear where the engine does not say."""
        ours = self._ours() if self._name else None
        found = self._inspected(container) if ours else None
        if ours is None or found is None:
            return False
        return found.get("Id") == ours.id or _is_in_project(found, ours)

    def has_source(self, source: str) -> bool:
        """A volume's name, or a directory of the host: its path there is another than here."""
        ours = self._ours() if self._name else None
        if ours is None:
            return False
        if source.startswith("/"):
            return any(_touch(source, own) for own in ours.sources if own.startswith("/"))
        in_project = bool(ours.project) and source.startswith(f"{ours.project}_")
        return source in ours.sources or in_project

    def _ours(self) -> Ours | None:
        """None where the engine does not know us: it is another host's."""
        with self._lock:
            if self._known is None and (found := self._inspected(self._name)):
                self._known = _ours(found, self._places)
            return self._known

    def _inspected(self, container: str) -> dict[str, Any] | None:
        try:
            wire = self._connected()
            wire.settimeout(ASK_SECONDS)
            connection = HTTPConnection("docker")
            connection.sock = wire
            with wire:
                connection.request("GET", f"/containers/{quote(container, safe='')}/json")
                answer = connection.getresponse()
                content = answer.read()
            if answer.status == 404:
                return None
            found = json.loads(content)
        except (OSError, HTTPException, ValueError) as problem:
            raise NotClear(f"the engine does not say which container this is ({problem})") from None
        if answer.status != 200 or not isinstance(found, dict) or not found.get("Id"):
            raise NotClear("the engine does not say which container this is")
        return found


def _ours(found: dict[str, Any], places: tuple[str, ...]) -> Ours:
    mounts = [
        mount
        for mount in found.get("Mounts") or []
        if any(_touch(str(mount.get("Destination")), place) for place in places)
    ]
    sources = {str(mount.get("Name") or mount.get("Source") or "") for mount in mounts}
    return Ours(id=str(found["Id"]), project=_project(found), sources=frozenset(sources - {""}))


def _touch(one: str, other: str) -> bool:
    """One lies in the other, or is it."""
    first, second = (f"{os.path.normpath('/' + path.lstrip('/'))}/" for path in (one, other))
    return first.startswith(second) or second.startswith(first)


def _project(found: dict[str, Any]) -> str:
    labels = (found.get("Config") or {}).get("Labels") or {}
    return str(labels.get(PROJECT) or "")


def _is_in_project(found: dict[str, Any], ours: Ours) -> bool:
    return bool(ours.project) and _project(found) == ours.project
