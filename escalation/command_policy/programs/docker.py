"""docker and podman, with compose.

The Docker filter enforces the tier (Tier 1 reads, Tier 2 starts, stops, restarts and kills), so an
operand may be computed; the verb may not. podman has no engine to filter and needs the host.
"""

from __future__ import annotations

import posixpath
import re

from escalation.command_policy.grants import DOCKER, HOST
from escalation.command_policy.programs.options import (
    Grammar,
    Line,
    attached,
    is_scratch,
    literal,
    names,
    read,
)
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Inner,
    Understanding,
    Word,
)

# `docker run` and `docker create` without options that give access to the host.

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
"""Directories that a container may be given."""


def runs_container(action: str, rest: tuple[Word, ...]) -> Understanding | None:
    line = read(rest, RUN, to_operand=True)
    if line is None or line.unsure or not line.operands:
        return None
    reaches = _reaches_beyond(line)
    return Understanding(
        action=action,
        arguments=rest,
        level=NEVER if reaches else FULL,
        grants=frozenset({DOCKER}),
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
    """Accept a named volume, a path below the working directory, or files of services."""
    parts = source.split("/")
    if source.startswith(("~", "$")) or ".." in parts:
        return False
    if not source.startswith("/"):
        return True
    path = posixpath.normpath(source).replace("//", "/")
    return bool(DATA.match(path)) and not path.endswith(".sock") and "/." not in path


# docker compose, as a plugin and as the older program of its own.

# Left out: -H and --tls…, another host's engine.
COMPOSE_GLOBAL = """
    -f= --file= -p= --project-name= --profile= --env-file= --project-directory= --ansi= --progress=
    --parallel= --compatibility --dry-run --all-resources --verbose -v --version
"""
COMPOSE_LEVELS = {
    **dict.fromkeys(names("ps logs config convert images top ls events port version stats"), LOOK),
    **dict.fromkeys(names("start stop restart kill"), SAFE),
    **dict.fromkeys(
        names("""
    up down pull push build create rm run exec pause unpause cp scale attach commit export wait
"""),
        FULL,
    ),
}
COMPOSE_EXEC = """
    -d -T -t -i -e= -u= -w= --detach --no-TTY --tty --interactive --env= --user= --workdir=
    --index=
"""
DOWN = "-t= --timeout= --remove-orphans --rmi= -v --volumes"
REMOVE = "-f -s --force --stop -v --volumes"
CONFIG = """
    -q --quiet --services --volumes --images --profiles --networks --environment --variables
    --format= --hash= --no-interpolate --no-normalize --no-consistency --resolve-image-digests
    --no-path-resolution -o= --output=
"""
COMPOSE_WHY = {LOOK: "", SAFE: "restarts or stops containers", FULL: "changes a whole stack"}


def compose(words: tuple[Word, ...]) -> Understanding | None:
    line = read(words, COMPOSE_GLOBAL, to_operand=True)
    if line is None or line.unsure:
        return None
    if not line.operands:
        return Understanding(action="docker compose", arguments=words)
    verb, rest = line.operands[0], line.operands[1:]
    if verb is None or verb not in COMPOSE_LEVELS:
        return None
    return _judge(verb, rest)


def _judge(verb: str, rest: tuple[Word, ...]) -> Understanding | None:
    match verb:
        case "exec":
            return _executes(rest)
        case "run":
            return runs_container("docker compose run", rest)
        case "down":
            return _removes("down", rest, DOWN)
        case "rm":
            return _removes("rm", rest, REMOVE)
        case "config" | "convert":
            return _prints(rest)
    return _answer(verb, rest, COMPOSE_LEVELS[verb])


def _answer(
    verb: str, rest: tuple[Word, ...], level: int, *, why: str = "", inner: tuple[Inner, ...] = ()
) -> Understanding:
    return Understanding(
        action=f"docker compose {verb}",
        arguments=rest,
        level=level,
        grants=frozenset({DOCKER}),
        inner=inner,
        why=why or COMPOSE_WHY[level],
    )


def _removes(verb: str, rest: tuple[Word, ...], options: str) -> Understanding | None:
    """Read verbs that remove containers; with their volumes they remove data."""
    line = read(rest, options)
    if line is None or line.unsure:
        return None
    if line.has("-v", "--volumes"):
        return _answer(verb, rest, NEVER, why="removes volumes with their data")
    return _answer(verb, rest, FULL)


def _executes(rest: tuple[Word, ...]) -> Understanding | None:
    line = read(rest, COMPOSE_EXEC, to_operand=True)
    if line is None or line.unsure or len(line.operands) < 2:
        return None
    inner = (Inner(argv=line.operands[1:], elsewhere=True),)
    return _answer("exec", rest, FULL, why="runs a program inside a container", inner=inner)


def _prints(rest: tuple[Word, ...]) -> Understanding | None:
    """Read `config`, which needs no engine."""
    line = read(rest, CONFIG)
    if line is None or line.has("-o", "--output") or line.unsure:
        return None
    return Understanding(action="docker compose config", arguments=rest)


# Left out: -H and --tls… (another host's engine) and --config (which may name programs).
GLOBAL = "-D --debug -c= --context= -l= --log-level= -v --version"

LOOKS = """
    ps logs inspect top stats port diff images history version info search events export save
    network:ls network:inspect volume:ls volume:inspect image:inspect system:df context:ls
    context:show context:inspect plugin:ls plugin:inspect node:ls node:ps node:inspect service:ls
    service:ps service:inspect service:logs stack:ls stack:ps stack:services secret:ls
    secret:inspect config:ls config:inspect
"""
REMEDIES = "start stop restart kill"
CHANGES = """
    rm rmi pull push build tag rename update commit load import pause unpause wait attach
    network:create network:rm network:connect network:disconnect service:create service:update
    service:scale service:rm service:rollback stack:deploy stack:rm node:update secret:create
    secret:rm config:create config:rm plugin:enable plugin:disable swarm:join-token swarm:ca
"""
FORBIDDEN = """
    system:prune volume:rm volume:prune volume:create volume:update container:prune image:prune
    network:prune builder:prune buildx:prune swarm:leave swarm:init swarm:join swarm:update
    swarm:unlock plugin:install plugin:rm plugin:set plugin:upgrade node:rm node:demote
    node:promote
"""
LEVELS = {
    **dict.fromkeys(LOOKS.split(), LOOK),
    **dict.fromkeys(REMEDIES.split(), SAFE),
    **dict.fromkeys(CHANGES.split(), FULL),
    **dict.fromkeys(FORBIDDEN.split(), NEVER),
    **dict.fromkeys(("run", "create", "exec", "cp"), FULL),
}
SAME = {
    "container:ls": "ps",
    "container:list": "ps",
    "container:ps": "ps",
    "image:ls": "images",
    "image:list": "images",
    "image:rm": "rmi",
    "image:remove": "rmi",
    "container:remove": "rm",
    "system:info": "info",
    "system:events": "events",
    "builder:build": "build",
    "network:list": "network:ls",
    "network:remove": "network:rm",
    "volume:list": "volume:ls",
    "volume:remove": "volume:rm",
    "service:list": "service:ls",
    "service:remove": "service:rm",
    "stack:up": "stack:deploy",
    "stack:down": "stack:rm",
    "stack:remove": "stack:rm",
}
GROUPS = names("""
    container image network volume system context plugin node service stack secret config
    builder buildx swarm
""")
IN_CONTAINER = names("""
    ps logs inspect top stats port diff export start stop restart kill rm run create exec cp
    rename update commit pause unpause wait attach
""")
IN_IMAGE = names("history save build tag load import push pull")
EXEC = """
    -d -i -t -e= -u= -w= --detach --interactive --tty --env= --env-file= --user= --workdir=
    --detach-keys=
"""
WHY = {SAFE: "restarts or stops a container", FULL: "changes containers or images"}
WHY_NEVER = "destroys data, or reaches beyond its container"


def docker(argv: tuple[Word, ...]) -> Understanding | None:
    line = read(argv[1:], GLOBAL, to_operand=True)
    if line is None or line.unsure:
        return None
    if line.has("-v", "--version") or not line.operands:
        return Understanding(action="docker version", arguments=argv[1:])
    if line.operands[0] == "compose":
        return compose(line.operands[1:])
    verb, rest = verb_of(line.operands)
    if verb not in LEVELS:
        return None
    return judge(verb, rest)


def verb_of(words: tuple[Word, ...]) -> tuple[str, tuple[Word, ...]]:
    """Return the short name of a verb: `restart` for `container restart`."""
    first, second = (*words, None, None)[:2]
    if first is None or (first in GROUPS and second is None):
        return "", ()
    if first not in GROUPS:
        return first, words[1:]
    long = SAME.get(f"{first}:{second}", f"{first}:{second}")
    if first == "container" and second in IN_CONTAINER:
        long = str(second)
    if first == "image" and second in IN_IMAGE:
        long = str(second)
    return long, words[2:]


def judge(verb: str, rest: tuple[Word, ...]) -> Understanding | None:
    match verb:
        case "exec":
            return executes(rest)
        case "run" | "create":
            return runs_container(f"docker {verb}", rest)
        case "cp":
            return copies(rest)
    level = LEVELS[verb]
    if verb == "rm" and (_short_flags(rest, "v") or _has_long(rest, "--volumes")):
        level = NEVER
    if verb == "start" and (_short_flags(rest, "ai") or _has_long(rest, "--attach", "--inter")):
        level = FULL
    return answer(f"docker {verb.replace(':', ' ')}", rest, level, written=_output(verb, rest))


def answer(
    action: str, rest: tuple[Word, ...], level: int, written: tuple[Word, ...] = ()
) -> Understanding:
    return Understanding(
        action=action,
        arguments=rest,
        level=level if all(map(is_scratch, written)) else max(level, SAFE),
        grants=frozenset({DOCKER}),
        writes=written,
        why=WHY.get(level, WHY_NEVER if level == NEVER else ""),
    )


def _short_flags(words: tuple[Word, ...], letters: str) -> bool:
    return any(
        word is not None and word[:1] == "-" and word[:2] != "--" and set(word) & set(letters)
        for word in words
    )


def _has_long(words: tuple[Word, ...], *options: str) -> bool:
    """Return whether an option is given, also as `--volumes=true`."""
    return any(word is not None and word.startswith(options) for word in words)


def _output(verb: str, rest: tuple[Word, ...]) -> tuple[Word, ...]:
    if verb not in ("save", "export"):
        return ()
    line = read(rest, "-o= --output= --platform=")
    return attached(line.values("-o", "--output")) if line else (None,)


def executes(rest: tuple[Word, ...]) -> Understanding | None:
    """Read exec; `--privileged` is not among the known options."""
    line = read(rest, EXEC, to_operand=True)
    if line is None or line.unsure or len(line.operands) < 2:
        return None
    inner = (Inner(argv=line.operands[1:], elsewhere=True),)
    return Understanding(
        action="docker exec",
        arguments=rest,
        level=FULL,
        grants=frozenset({DOCKER}),
        inner=inner,
        why="runs a program inside a container",
    )


def copies(rest: tuple[Word, ...]) -> Understanding | None:
    """Read cp: from a container it writes files here, into one it changes the container."""
    line = read(rest, "-a -L -q --archive --follow-link --quiet")
    words = literal(line.operands) if line else None
    if words is None or len(words) != 2:
        return None
    source, target = words
    if ":" in source and ":" not in target:
        return answer("docker cp", rest, LOOK, written=() if target == "-" else (target,))
    return answer("docker cp", rest, FULL)


def podman(argv: tuple[Word, ...]) -> Understanding | None:
    verb, rest = verb_of(argv[1:])
    if verb not in LEVELS or verb in ("run", "create", "build"):
        return None
    found = judge(verb, rest)
    if found is None:
        return None
    return Understanding(
        action=found.action.replace("docker", "podman", 1),
        arguments=found.arguments,
        level=found.level,
        grants=frozenset({HOST}),
        writes=found.writes,
        inner=found.inner,
        why=found.why,
    )


GRAMMARS: dict[str, Grammar] = {
    "docker": docker,
    "podman": podman,
    "docker-compose": lambda argv: compose(argv[1:]),
}
