"""RunPaths for tests, and the users as which a sandbox is tested."""

from __future__ import annotations

import ctypes
import os
import pickle
import pwd
import shutil
import subprocess
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from escalation.sandbox import bubblewrap
from escalation.sandbox.bubblewrap import SandboxNotMade
from escalation.sandbox.command_runner import TRIES, memory_file
from escalation.sandbox.command_sandbox import CommandSandboxes, clean_environment
from escalation.sandbox.layout import RunPaths
from escalation.sandbox.limits import SandboxLimits
from escalation.sandbox.setup import write_client

ORDINARY_USER = "nobody"
IS_ROOT = os.getuid() == 0
PATH = "/usr/local/bin:/usr/bin:/bin"
PR_SET_DUMPABLE = 4
AS_THE_RUNNER: dict[str, Any] = {
    "stdin": subprocess.DEVNULL,
    "capture_output": True,
    "text": True,
    "errors": "replace",
    "timeout": 60,
    "check": False,
    "cwd": "/",
}


def people() -> list[str]:
    """Return the users for the tests: root and an ordinary user, or only the current one."""
    me = pwd.getpwuid(os.getuid()).pw_name
    return [me, ORDINARY_USER] if me == "root" else [me]


@dataclass(frozen=True)
class Host:
    """A directory with the files around a run, owned by the user who runs it."""

    root: Path
    user: str

    def paths(self, **changes: Any) -> RunPaths:
        fields: dict[str, Any] = {
            "workdir": self.root / "system",
            "config_directory": self.root / "state/config",
            "temp_directory": self.root / "state/tmp",
            "run_directory": self.root / "state/run",
            "operator_home": self.root / "home",
            "tool_environment": clean_environment({"PATH": PATH}, mark="session-test"),
            "hidden": (self.root / "state", self.root / "code"),
            "other_watches": (self.root / "other",),
        }
        return RunPaths(**{**fields, **changes})

    def call(
        self, argv: Sequence[str], environment: dict[str, str], **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run it as the user of this host."""
        person = pwd.getpwnam(self.user)
        as_user: dict[str, Any] = {
            "user": person.pw_uid,
            "group": person.pw_gid,
            "extra_groups": [],
        }
        return subprocess.run(
            argv,
            env=environment,
            **AS_THE_RUNNER,
            **({**as_user, "extra_groups": []} if IS_ROOT else {}),
            **options,
        )

    def bash(
        self, command: str, grant: str = "", *, limits: SandboxLimits | None = None, **changes: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a text in the sandbox of a Bash call, or in that of a program with a grant.

        No shim is served. Retried as the command runner does, because sockets of other tests
        disappear.
        """
        paths = self.paths(**changes)

        def run() -> subprocess.CompletedProcess[str]:
            return _tried(command, grant, paths, limits or SandboxLimits())

        return as_user(self.user, run) if IS_ROOT and self.user != "root" else run()


def _tried(
    command: str, grant: str, paths: RunPaths, limits: SandboxLimits
) -> subprocess.CompletedProcess[str]:
    write_client(paths.run_directory)
    paths.calls.mkdir(exist_ok=True)
    socket = paths.calls / "nobody-listens.sock"
    socket.touch()
    for left in reversed(range(TRIES)):
        boxes = CommandSandboxes(paths, limits)
        cwd = str(paths.workdir)
        try:
            sandbox = boxes.for_program(grant, cwd) if grant else boxes.for_text(socket, cwd)
        except SandboxNotMade:
            if left:
                continue
            raise
        with memory_file(sandbox.system_calls) as calls:
            said = subprocess.run(
                [*sandbox.argv, "--seccomp", str(calls), "--", "/bin/bash", "-c", command],
                env=dict(sandbox.environment),
                pass_fds=(calls, *sandbox.descriptors),
                **AS_THE_RUNNER,
            )
        if not said.stderr.startswith("bwrap: Can't"):
            break
    return said


def as_user(name: str, act: Callable[[], Any]) -> Any:
    """Call a function in a process of another user, and return its result."""
    person = pwd.getpwnam(name)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(person.pw_gid)
            os.setuid(person.pw_uid)
            # As in a process that this user started: others of the same user can read it.
            ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)
            bubblewrap.forget_namespaces()
            result = act()
        except BaseException:
            result = RuntimeError(traceback.format_exc())
        with open(writing, "wb") as pipe:
            pickle.dump(result, pipe)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        result = pickle.load(pipe)  # noqa: S301 (made above)
    os.waitpid(child, 0)
    if isinstance(result, RuntimeError):
        raise result
    return result


@contextmanager
def new_host(user: str) -> Iterator[Host]:
    """Create a host in a directory that an ordinary user can read and no sandbox hides."""
    around = "/srv" if IS_ROOT else "/var/tmp"
    root = Path(tempfile.mkdtemp(prefix="claudeops rööm-", dir=around))
    try:
        for name in (
            *("system", "state/config", "state/tmp", "state/run/shared-tmp", "home/.ssh", "other"),
        ):
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
