"""Which container is meant by an id, or by the beginning of one: asked of the engine itself.

One that is named now by its id and now by its name would be restarted twice as often as it may be.
"""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterable, Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from escalation.rooms.unix_socket import connect_to

LOOK_UP_SECONDS = 2.0
MAX_BYTES = 8 * 1024 * 1024
LIST = "/containers/json?all=1"
_ID = re.compile(r"[0-9a-f]{1,64}")


def may_be_id(word: str) -> bool:
    return bool(_ID.fullmatch(word))


def names_of(engine: Path | None, words: Iterable[str]) -> dict[str, str]:
    """The names of those words that are ids. An engine that does not answer knows none, and then
    the words stand for themselves."""
    ids = sorted(filter(may_be_id, set(words)))
    if engine is None or not ids:
        return {}
    try:
        containers = _listed(engine)
    except (OSError, ValueError, HTTPException):
        return {}
    found = {word: name_behind(word, containers) for word in ids}
    return {word: name for word, name in found.items() if name}


def name_behind(word: str, containers: Mapping[str, str]) -> str:
    """As the engine understands a word: a name, or else the beginning of one id alone. Pure: the
    containers are given as ids by their names."""
    if word in containers:
        return word
    meant = [name for name, number in containers.items() if number.startswith(word)]
    return meant[0] if len(meant) == 1 else ""


class _EngineConnection(HTTPConnection):
    def __init__(self, engine: Path) -> None:
        super().__init__("docker", timeout=LOOK_UP_SECONDS)
        self._engine = engine

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(LOOK_UP_SECONDS)
        connect_to(self.sock, self._engine)


def _listed(engine: Path) -> dict[str, str]:
    with closing(_EngineConnection(engine)) as connection:
        connection.request("GET", LIST)
        answer = connection.getresponse()
        if answer.status != 200:
            raise ValueError(f"the engine answers {answer.status}")
        rows = json.loads(answer.read(MAX_BYTES))
    if not isinstance(rows, list):
        raise ValueError("the engine lists no containers")
    return {
        name.removeprefix("/"): row["Id"]
        for row in rows
        if isinstance(row, dict) and isinstance(row.get("Id"), str)
        for name in row.get("Names") or ()
        if isinstance(name, str) and "/" not in name.removeprefix("/")
    }
