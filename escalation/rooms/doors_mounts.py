"""What an open door puts into a command's room: mounts, variables, and what is not taken away."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from escalation.gate import doors
from escalation.rooms.layout import Mount, Private, Shown
from escalation.rooms.lookup import hiding, is_reachable, showing
from escalation.rooms.place import RunPlace

DOCKER_SOCKETS = ("/run/docker.sock", "/var/run/docker.sock")
BUSES = ("/run/systemd", "/run/dbus", "/run/log/journal", "/var/log/journal")
USER_BUSES = ("bus", "systemd")
SSH_SETTINGS = "/etc/ssh/ssh_config.d"
SSH_FILES = ("config", "known_hosts", "known_hosts2")
LOGINS, LOGINS_BYTES = "/run/claudeops-logins", 65536
CLUSTER_LOGINS = ("/etc/rancher/k3s/k3s.yaml", "/etc/kubernetes/admin.conf")


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()


def opened(names: Iterable[str], place: RunPlace, hidden: list[Mount]) -> Opened:
    """All that the named doors put into the room; a door to what is not there puts in nothing."""
    found = [_BEHIND[name](place, hidden) for name in sorted(names) if name in _BEHIND]
    return Opened(
        mounts=tuple(mount for each in found for mount in each.mounts),
        environment=tuple(pair for each in found for pair in each.environment),
    )


def _docker(place: RunPlace, hidden: list[Mount]) -> Opened:
    """The filter in the engine's usual places. Without a filter there is no way to the engine."""
    if place.docker_socket is None:
        return Opened()
    source = os.path.realpath(place.docker_socket)
    places = {
        os.path.join(os.path.realpath(Path(path).parent), "docker.sock") for path in DOCKER_SOCKETS
    }
    return Opened(
        mounts=tuple(Shown(path=path, source=source) for path in sorted(places)),
        environment=(("DOCKER_HOST", f"unix://{DOCKER_SOCKETS[0]}"),),
    )


def _ssh(place: RunPlace, hidden: list[Mount]) -> Opened:
    return _by_ssh(place, [place.operator.home / ".ssh"], hidden)


def _agent(place: RunPlace, hidden: list[Mount]) -> Opened:
    """No key: only what says which host is which, and which of the agent's keys is for it."""
    directory = place.operator.home / ".ssh"
    public = (*(directory / name for name in SSH_FILES), *sorted(directory.glob("*.pub")))
    return _by_ssh(place, [path for path in public if not path.is_symlink()], hidden)


def _by_ssh(place: RunPlace, paths: Iterable[Path], hidden: list[Mount]) -> Opened:
    mounts: list[Mount] = [*_shown(paths, hidden)]
    environment: tuple[tuple[str, str], ...] = ()
    if agent := place.operator.ssh_agent:
        mounts += showing(agent, hidden)
        environment = (("SSH_AUTH_SOCK", str(agent)),)
    if os.getuid() != 0:
        # Root's files seem to be nobody's in the room, and ssh refuses such an included file.
        mounts += hiding([SSH_SETTINGS])
    return Opened(mounts=tuple(mounts), environment=environment)


def _bus(place: RunPlace, hidden: list[Mount]) -> Opened:
    """The system's, and the operator's own; the rest of /run/user stays hidden."""
    own = Path(f"/run/user/{os.getuid()}")
    paths = (*map(Path, BUSES), *(own / name for name in USER_BUSES))
    environment = (("XDG_RUNTIME_DIR", str(own)),) if own.is_dir() else ()
    return Opened(mounts=tuple(_shown(paths, hidden)), environment=environment)


def _kube(place: RunPlace, hidden: list[Mount]) -> Opened:
    """Under a path that nobody can know before or list: a chart may hold a link, and one to the
    usual place would send the login to the cluster, where everybody reads it."""
    here = f"{LOGINS}/{secrets.token_hex(16)}"
    named = [path for path in place.operator.kubeconfigs if _can_be_shown(path)]
    own, usual = place.operator.home / ".kube", [*map(Path, CLUSTER_LOGINS)]
    if not place.operator.kubeconfigs and _can_be_shown(own):
        # As a whole: a configuration names other files from its own directory.
        sources, files = {here: own}, [f"{here}/config"]
    else:
        found = named if place.operator.kubeconfigs else [*filter(_can_be_shown, usual)][:1]
        sources = {f"{here}/{index}/{path.name}": path for index, path in enumerate(found)}
        files = [*sources]
    if not sources:
        return Opened()
    shown = (Shown(path=path, source=os.path.realpath(source)) for path, source in sources.items())
    return Opened(
        mounts=(Private(path=LOGINS, size=LOGINS_BYTES, mode="0111"), *shown),
        environment=(("KUBECONFIG", ":".join(files)),),
    )


def _can_be_shown(path: Path) -> bool:
    real = os.path.realpath(path)
    return os.path.exists(real) and is_reachable(real)


def _shown(paths: Iterable[Path], hidden: list[Mount]) -> list[Mount]:
    return [mount for path in paths for mount in showing(path, hidden)]


# `network`, `processes` and `host` change the room itself, not what lies in it.
_BEHIND = {
    doors.DOCKER: _docker,
    doors.SSH: _ssh,
    doors.AGENT: _agent,
    doors.BUS: _bus,
    doors.KUBE: _kube,
}
