"""A run's place for tests, and the people as whom a room is tried."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from escalation.rooms.limits import Limits
from escalation.rooms.place import Operator, RunPlace
from escalation.rooms.tool_environment import clean_environment
from escalation.rooms.tool_room import ToolRooms
from escalation.rooms.tool_runner import TRIES

ORDINARY_USER = "nobody"
IS_ROOT = os.getuid() == 0
PATH = "/usr/local/bin:/usr/bin:/bin"


def people() -> list[str]:
    """Root tries each room as an ordinary user too; anybody else only as who they are."""
    me = pwd.getpwuid(os.getuid()).pw_name
    return [me, ORDINARY_USER] if me == "root" else [me]


@dataclass(frozen=True)
class Host:
    """A directory with what a run has around it, owned by the one who runs it."""

    root: Path
    user: str

    def place(self, **changes: Any) -> RunPlace:
        fields: dict[str, Any] = {
            "workdir": self.root / "system",
            "config_directory": self.root / "state/config",
            "temp_directory": self.root / "state/tmp",
            "run_directory": self.root / "state/run",
            "operator": Operator(home=self.root / "home"),
            "tool_environment": clean_environment({"PATH": PATH}, mark="session-test"),
            "hidden": (self.root / "state", self.root / "code"),
            "other_watches": (self.root / "other",),
        }
        return RunPlace(**{**fields, **changes})

    def call(
        self, argv: Sequence[str], environment: dict[str, str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run it as this host's user."""
        person = pwd.getpwnam(self.user)
        as_user: dict[str, Any] = {
            "user": person.pw_uid,
            "group": person.pw_gid,
            "extra_groups": [],
        }
        return subprocess.run(
            argv,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
            cwd="/",
            **({**as_user, "extra_groups": []} if IS_ROOT else {}),
            **options,
        )

    def bash(
        self, command: str, *doors: str, limits: Limits | None = None, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """One command in a tool room of this host.

        Tried again as the tool runner does: sockets of other tests come and go.
        """
        place = self.place(**changes)
        for _ in range(TRIES):
            room = ToolRooms(place, limits or Limits()).room_for(doors, str(place.workdir))
            said = self.call([*room.argv, "/bin/bash", "-c", command], dict(room.environment))
            if not said.stderr.startswith("bwrap: Can't"):
                break
        return said


@contextmanager
def new_host(user: str) -> Iterator[Host]:
    """Where an ordinary user can go and, if we may, where a room hides nothing by itself."""
    around = "/srv" if IS_ROOT else "/var/tmp"
    root = Path(tempfile.mkdtemp(prefix="claudeops rööm-", dir=around))
    try:
        for name in ("system", "state/config", "state/tmp", "state/run", "home/.ssh", "other"):
            (root / name).mkdir(parents=True)
        (root / "code").mkdir()
        (root / "system/readme.txt").write_text("hello\n")
        (root / "state/secret.txt").write_text("the secret key\n")
        (root / "code/manage.py").write_text("print()\n")
        (root / "other/notes.txt").write_text("of another watch\n")
        (root / "home/.bashrc").write_text("echo from the bashrc\n")
        person = pwd.getpwnam(user)
        if IS_ROOT:
            for path in (root, *root.rglob("*")):
                os.chown(path, person.pw_uid, person.pw_gid)
        yield Host(root, user)
    finally:
        shutil.rmtree(root)
