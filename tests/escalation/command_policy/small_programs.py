"""A few programs with simple grammars, and policies to test decisions with them."""

from __future__ import annotations

from escalation.command_policy.decision import CommandPolicy, Decision, decide
from escalation.command_policy.grants import BUS, DOCKER, NETWORK, SSH, Grants, grants_for
from escalation.command_policy.programs import wrappers
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Inner,
    Understanding,
    Word,
)
from escalation.tiers import DEFAULT_TIERS

READERS = {
    *("ls", "cat", "grep", "echo", "printf", "true", "false", "pwd", "cd", "wc", "head", "tail"),
    *("df", "sleep", "read", "test", "exit", "set", "seq", ":"),
}
DOCKER_LEVELS = {"ps": LOOK, "inspect": LOOK, "logs": LOOK, "restart": SAFE, "rm": FULL}
DOCKER_LEVELS |= {"prune": NEVER, "exec": FULL, "--version": LOOK}
SYSTEMCTL_LEVELS = {"status": LOOK, "restart": SAFE, "disable": FULL}


def understand(argv: tuple[Word, ...]) -> Understanding | None:
    name, rest = argv[0] or "", argv[1:]
    if name in wrappers.GRAMMARS:
        return wrappers.GRAMMARS[name](argv)
    if name in READERS:
        return Understanding(action=name, arguments=rest)
    grammar = {
        **{"docker": docker, "systemctl": systemctl, "ssh": ssh, "tee": tee, "rm": tee},
        **{"curl": curl, "git": git},
    }.get(name)
    return grammar(argv) if grammar and None not in rest[:1] else None


def docker(argv: tuple[Word, ...]) -> Understanding | None:
    rest = argv[1:]
    if rest[:1] == ("--context",):
        rest = rest[2:]
    if rest[:1] == ("container",):
        rest = rest[1:]
    if not rest or rest[0] not in DOCKER_LEVELS:
        return None
    verb = rest[0]
    inner = (Inner(argv=rest[2:], elsewhere=True),) if verb == "exec" else ()
    return Understanding(
        action=f"docker {verb}",
        arguments=rest[1:],
        level=LOOK if inner else DOCKER_LEVELS[verb],
        grants=frozenset({DOCKER}),
        inner=inner,
        why="restarts a container" if verb == "restart" else "",
    )


def systemctl(argv: tuple[Word, ...]) -> Understanding | None:
    if len(argv) < 2 or argv[1] not in SYSTEMCTL_LEVELS:
        return None
    return Understanding(
        action=f"systemctl {argv[1]}",
        arguments=argv[2:],
        level=SYSTEMCTL_LEVELS[argv[1]],
        grants=frozenset({BUS}),
    )


def ssh(argv: tuple[Word, ...]) -> Understanding | None:
    words = [word for word in argv[2:] if word is not None]
    if len(words) < len(argv) - 2:
        return None
    inner = Inner(text=" ".join(words), from_stdin=not words, elsewhere=True)
    grants = frozenset({SSH, NETWORK})
    return Understanding(action="ssh", arguments=argv[1:], grants=grants, inner=(inner,))


def tee(argv: tuple[Word, ...]) -> Understanding | None:
    paths = tuple(word for word in argv[1:] if word is None or not word.startswith("-"))
    return Understanding(action=str(argv[0]), arguments=argv[1:], level=SAFE, writes=paths)


def curl(argv: tuple[Word, ...]) -> Understanding | None:
    grants = frozenset({NETWORK})
    return Understanding(action="curl", arguments=argv[1:], grants=grants) if argv[1:] else None


def git(argv: tuple[Word, ...]) -> Understanding | None:
    if argv[1:2] == ("status",):
        return Understanding(action="git status", arguments=argv[2:], runs_unseen=True)
    if argv[1:2] != ("push",):
        return None
    grants = frozenset({NETWORK})
    return Understanding(action="git push", arguments=argv[2:], level=SAFE, grants=grants)


def policy(tier: int = 1, **changes: object) -> CommandPolicy:
    settings: dict[str, object] = {
        "tier": tier,
        "grants": grants_for(tier),
        "denied": DEFAULT_TIERS[tier - 1].disallowed_tools,
        "workdir": "/srv/app",
    }
    return CommandPolicy(**{**settings, **changes})  # type: ignore[arg-type]


def judged(command: str, tier: int = 1, **changes: object) -> Decision:
    return decide(policy(tier, **changes), command, understand)


def with_grants(*names: str, writable: tuple[str, ...] = ()) -> Grants:
    return Grants(names=frozenset(names), writable=writable)
