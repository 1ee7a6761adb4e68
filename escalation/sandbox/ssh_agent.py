"""The ssh-agent with the operator's keys, which stays outside every sandbox.

A sandbox that runs ssh gets the socket of the agent. It can use the keys there and not read them.
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from escalation.sandbox.broker import companion

SOCKET = "agent.sock"
ASK_SECONDS = 10.0
# Servers count the keys that they are offered, so those that ssh itself tries come first.
FIRST_KEYS = ("id_rsa", "id_ecdsa", "id_ecdsa_sk", "id_ed25519", "id_ed25519_sk")


@dataclass(frozen=True, kw_only=True, slots=True)
class SshAgent:
    socket: Path | None
    """None if there is no agent, or no key that it could hold."""
    notes: tuple[str, ...] = ()
    """Keys that were not loaded, and what to do about them."""


@contextmanager
def supervisor_ssh_agent(
    environment: Mapping[str, str], keys: Path, directory: Path
) -> Iterator[SshAgent]:
    """Give the operator's own agent if it holds keys; otherwise start one for the block.

    `keys` is the operator's `~/.ssh`; `directory` is private, and holds the socket of an agent that
    is started.
    """
    own = environment.get("SSH_AUTH_SOCK", "")
    if own and _holds_keys(own):
        yield SshAgent(socket=Path(own))
        return
    files = private_keys(keys)
    if not files:
        yield SshAgent(socket=None, notes=(f"There is no private key in {keys}.",))
        return
    start = companion(["ssh-agent", "-D", "-a", SOCKET], directory, _environment(environment))
    with ExitStack() as stack:
        try:
            stack.enter_context(start)
        except ChildProcessError as problem:
            yield SshAgent(socket=None, notes=(f"{problem}",))
        else:
            yield _loaded(environment, files, directory)


def private_keys(directory: Path) -> list[Path]:
    """Return the files with a private key, whatever their names."""
    try:
        files = [path for path in sorted(directory.iterdir()) if path.is_file()]
    except OSError:
        return []
    found = [path for path in files if b"PRIVATE KEY-----" in _first_line(path)]
    return sorted(found, key=lambda path: path.name not in FIRST_KEYS)


def _first_line(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.readline(200)
    except OSError:
        return b""


def _loaded(environment: Mapping[str, str], files: list[Path], directory: Path) -> SshAgent:
    notes = []
    for file in files:
        result = _ssh_add(environment, SOCKET, str(file), cwd=directory)
        if result is None or result.returncode:
            notes.append(_note(file, result.stderr if result else ""))
    has_keys = len(notes) < len(files)
    return SshAgent(socket=directory / SOCKET if has_keys else None, notes=tuple(notes))


def _note(file: Path, complaint: str) -> str:
    if "passphrase" in complaint:
        return (
            f"{file} has a passphrase and was not loaded: add it to an agent, and start the worker "
            "with its SSH_AUTH_SOCK."
        )
    reason = complaint.strip().replace("@", "").replace("\n", " ") or "ssh-add did not answer"
    return f"{file} was not loaded: {reason}"


def _holds_keys(socket_path: str) -> bool:
    result = _ssh_add({}, socket_path, "-l")
    return result is not None and result.returncode == 0


def _ssh_add(
    environment: Mapping[str, str], socket_path: str, word: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str] | None:
    """Run ssh-add without a terminal, where it cannot ask; None if it does not answer."""
    try:
        return subprocess.run(
            ["ssh-add", word],
            env={**_environment(environment), "SSH_AUTH_SOCK": socket_path},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_SECONDS,
            start_new_session=True,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    path = environment.get("PATH", "/usr/local/bin:/usr/bin:/bin")
    return {"PATH": path, "SSH_ASKPASS_REQUIRE": "never"}


# Who a host is.

LONGEST_HOST = 500


def ssh_host(name: str, config: Path | None = None) -> str:
    """Return the known keys of a host, as `type:digest` by blanks, or an empty string.

    Its name, its address and an alias of the configuration have the same keys. `config` stands for
    the configuration of this account and of this host.
    """
    chosen = ["-F", str(config)] if config else []
    settings = dict(
        line.split(" ", 1)
        for line in _said(["ssh", *chosen, "-G", "--", name]).splitlines()
        if " " in line
    )
    known = settings.get("hostkeyalias") or settings.get("hostname", "")
    if not known:
        return ""
    if settings.get("port", "22") != "22" and "hostkeyalias" not in settings:
        known = f"[{known}]:{settings['port']}"
    files = f"{settings.get('userknownhostsfile', '')} {settings.get('globalknownhostsfile', '')}"
    keys: set[str] = set()
    for file in files.split():
        said = _said(["ssh-keygen", "-F", known, "-f", str(Path(file).expanduser())])
        for line in said.splitlines():
            words = line.split()
            if line.startswith("@"):
                return ""  # an authority vouches for many hosts
            if len(words) >= 3 and not line.startswith("#"):
                digest = hashlib.sha256(words[2].encode()).hexdigest()[:16]
                keys.add(f"{words[1]}:{digest}")
    found = " ".join(sorted(keys))
    return found if len(found) <= LONGEST_HOST else ""


def _said(words: list[str]) -> str:
    try:
        ended = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ASK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return ended.stdout if ended.returncode == 0 else ""
