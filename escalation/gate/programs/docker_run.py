"""`docker run` and `docker create`: whether the new container stays in its container."""

from __future__ import annotations

import posixpath
import re

from escalation.gate.doors import DOCKER
from escalation.gate.programs.options import Line, attached, literal, read
from escalation.gate.understanding import FULL, NEVER, Understanding, Word

RUN = """
    -d -i -t -a= -e= -h= -l= -m= -p= -P -q -u= -v= -w= --detach --interactive --tty --attach=
    --env= --env-file= --hostname= --label= --memory= --memory-swap= --publish= --publish-all
    --quiet --user= --volume= --workdir= --rm --name= --network= --net= --network-alias=
    --restart= --entrypoint= --mount= --tmpfs= --cpus= --cpu-shares= --pull= --platform= --init
    --read-only --link= --expose= --dns= --add-host= --ip= --log-driver= --log-opt= --ulimit=
    --shm-size= --stop-signal= --stop-timeout= --health-cmd= --health-interval= --health-retries=
    --health-timeout= --no-healthcheck --cap-drop= --sig-proxy? --volumes-from= --cidfile=
    --pids-limit= --gpus= --privileged? --pid= --ipc= --uts= --userns= --cgroupns= --cap-add=
    --device= --security-opt= --service-ports --no-deps --use-aliases -T --no-TTY --build
    --remove-orphans
"""
BEYOND = ("--privileged", "--cap-add", "--device", "--security-opt")
NAMESPACES = ("--pid", "--ipc", "--uts", "--userns", "--cgroupns")
DATA = re.compile(r"/(?:srv|opt|data|mnt|media|tmp)/.|/(?:home|var/log|var/www)/[^/]+/.")
"""Where services keep what a container may be given; the rest of the host is not for containers."""


def runs_container(action: str, rest: tuple[Word, ...]) -> Understanding | None:
    line = read(rest, RUN, to_operand=True)
    if line is None or line.unsure or not line.operands:
        return None
    reaches = _reaches_beyond(line)
    return Understanding(
        action=action,
        arguments=rest,
        level=NEVER if reaches else FULL,
        doors=frozenset({DOCKER}),
        writes=line.values("--cidfile"),
        why="would hand the host to a container" if reaches else "starts a new container",
    )


def _reaches_beyond(line: Line) -> bool:
    if any(value != "false" for value in line.values("--privileged")):
        return True
    if line.has(*BEYOND[1:]):
        return True
    if any(value == "host" for value in line.values(*NAMESPACES)):
        return True
    volumes = attached(line.values("-v", "--volume"))
    mounts = literal((*volumes, *map(_source, line.values("--mount"))))
    if any(
        '"' in (mount or "") or "volume-opt" in (mount or "") for mount in line.values("--mount")
    ):
        return True
    return mounts is None or not all(_is_data(mount.split(":")[0]) for mount in mounts)


def _source(mount: Word) -> Word:
    for field in (mount or "").split(","):
        name, _equals, value = field.partition("=")
        if name in ("source", "src"):
            return value
    return "none"


def _is_data(source: str) -> bool:
    """A volume by name, something below the working directory, or a service's own files."""
    parts = source.split("/")
    if source.startswith(("~", "$")) or ".." in parts:
        return False
    if not source.startswith("/"):
        return True
    path = posixpath.normpath(source).replace("//", "/")
    return bool(DATA.match(path)) and not path.endswith(".sock") and "/." not in path
