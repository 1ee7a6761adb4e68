"""docker and podman, with compose.

Behind the door a filter holds the tier, whatever the words are (Tier 1 reads, Tier 2 starts, stops,
restarts and kills), so an operand may be computed; the verb may not. Of podman only what it shares
with docker; it has no engine to filter and needs the host.
"""

from __future__ import annotations

from escalation.gate.doors import DOCKER, HOST
from escalation.gate.programs.answers import Grammar, is_scratch
from escalation.gate.programs.compose import compose
from escalation.gate.programs.docker_run import runs_container
from escalation.gate.programs.options import attached, literal, names, read
from escalation.gate.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Inner,
    Understanding,
    Word,
)

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
    """The shortest of a verb's names: `container restart` is `restart`."""
    first, second = (*words[:2], None)[:2]
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
        doors=frozenset({DOCKER}),
        writes=written,
        why=WHY.get(level, WHY_NEVER if level == NEVER else ""),
    )


def _short_flags(words: tuple[Word, ...], letters: str) -> bool:
    return any(
        word is not None and word[:1] == "-" and word[:2] != "--" and set(word) & set(letters)
        for word in words
    )


def _has_long(words: tuple[Word, ...], *options: str) -> bool:
    """Also as `--volumes=true`."""
    return any(word is not None and word.startswith(options) for word in words)


def _output(verb: str, rest: tuple[Word, ...]) -> tuple[Word, ...]:
    if verb not in ("save", "export"):
        return ()
    line = read(rest, "-o= --output= --platform=")
    return attached(line.values("-o", "--output")) if line else (None,)


def executes(rest: tuple[Word, ...]) -> Understanding | None:
    """`--privileged` is not among the options known."""
    line = read(rest, EXEC, to_operand=True)
    if line is None or line.unsure or len(line.operands) < 2:
        return None
    inner = (Inner(argv=line.operands[1:], elsewhere=True),)
    return Understanding(
        action="docker exec",
        arguments=rest,
        level=FULL,
        doors=frozenset({DOCKER}),
        inner=inner,
        why="runs a program inside a container",
    )


def copies(rest: tuple[Word, ...]) -> Understanding | None:
    """Out of a container it reads there and writes here; into one it changes the container."""
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
        doors=frozenset({HOST}),
        writes=found.writes,
        inner=found.inner,
        why=found.why,
    )


GRAMMARS: dict[str, Grammar] = {
    "docker": docker,
    "podman": podman,
    "docker-compose": lambda argv: compose(argv[1:]),
}
