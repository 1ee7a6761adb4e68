"""docker compose, as a plugin and as the older program of its own."""

from __future__ import annotations

from escalation.gate.doors import DOCKER
from escalation.gate.programs.docker_run import runs_container
from escalation.gate.programs.options import names, read
from escalation.gate.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Inner,
    Understanding,
    Word,
)

# Left out: -H and --tls…, another host's engine.
GLOBAL = """
    -f= --file= -p= --project-name= --profile= --env-file= --project-directory= --ansi= --progress=
    --parallel= --compatibility --dry-run --all-resources --verbose -v --version
"""
LEVELS = {
    **dict.fromkeys(names("ps logs config convert images top ls events port version stats"), LOOK),
    **dict.fromkeys(names("start stop restart kill"), SAFE),
    **dict.fromkeys(
        names("""
    up down pull push build create rm run exec pause unpause cp scale attach commit export wait
"""),
        FULL,
    ),
}
EXEC = """
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
WHY = {LOOK: "", SAFE: "restarts or stops containers", FULL: "changes a whole stack"}


def compose(words: tuple[Word, ...]) -> Understanding | None:
    line = read(words, GLOBAL, to_operand=True)
    if line is None or line.unsure:
        return None
    if not line.operands:
        return Understanding(action="docker compose", arguments=words)
    verb, rest = line.operands[0], line.operands[1:]
    if verb is None or verb not in LEVELS:
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
    return _answer(verb, rest, LEVELS[verb])


def _answer(
    verb: str, rest: tuple[Word, ...], level: int, *, why: str = "", inner: tuple[Inner, ...] = ()
) -> Understanding:
    return Understanding(
        action=f"docker compose {verb}",
        arguments=rest,
        level=level,
        doors=frozenset({DOCKER}),
        inner=inner,
        why=why or WHY[level],
    )


def _removes(verb: str, rest: tuple[Word, ...], options: str) -> Understanding | None:
    """With their volumes, containers take their data along."""
    line = read(rest, options)
    if line is None or line.unsure:
        return None
    if line.has("-v", "--volumes"):
        return _answer(verb, rest, NEVER, why="removes volumes with their data")
    return _answer(verb, rest, FULL)


def _executes(rest: tuple[Word, ...]) -> Understanding | None:
    line = read(rest, EXEC, to_operand=True)
    if line is None or line.unsure or len(line.operands) < 2:
        return None
    inner = (Inner(argv=line.operands[1:], elsewhere=True),)
    return _answer("exec", rest, FULL, why="runs a program inside a container", inner=inner)


def _prints(rest: tuple[Word, ...]) -> Understanding | None:
    """It reads files alone, and asks no engine."""
    line = read(rest, CONFIG)
    if line is None or line.has("-o", "--output") or line.unsure:
        return None
    return Understanding(action="docker compose config", arguments=rest)
