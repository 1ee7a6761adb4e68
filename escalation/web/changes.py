"""How a change is taken back, where that is known. Pure.

From the words of the gate ("docker stop web"), never from what a report says. A remedy that may do
harm is not guessed: what stands in no table is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

NOT_KNOWN = "not known"
NOTHING_LEFT = "nothing to take back: it runs again as before"
BACKWARDS = "put back what the diff takes away, and take away what it adds (patch -R)"
COMPUTED = "…"

OPPOSITES = {
    "stop": "start",
    "start": "stop",
    "kill": "start",
    "pause": "unpause",
    "unpause": "pause",
    "enable": "disable",
    "disable": "enable",
    "mask": "unmask",
    "unmask": "mask",
    "connect": "disconnect",
    "disconnect": "connect",
    "cordon": "uncordon",
    "uncordon": "cordon",
    "install": "remove",
    "remove": "install",
}
CONTAINER_VERBS = frozenset({"stop", "start", "kill", "pause", "unpause"})
UNIT_VERBS = frozenset({"stop", "start", "enable", "disable", "mask", "unmask"})
LEAVES_NOTHING = frozenset({"restart", "reload", "try-restart", "reload-or-restart"})
ROLLED_OUT = frozenset({"rollout restart", "set image", "set env", "set resources"})
PACKAGES = frozenset({"apt", "apt-get", "dnf", "yum"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Reversal:
    text: str
    is_command: bool = False
    """It can be pasted into a shell."""
    is_known: bool = True


UNKNOWN = Reversal(text=NOT_KNOWN, is_known=False)


def reversal_of(action: str, *, has_failed: bool = False) -> Reversal:
    """Of a command, as the gate understood it."""
    if has_failed:
        return Reversal(text="it failed: look first whether it changed anything", is_known=False)
    words = action.split()
    read = READERS.get(words[0] if words else "")
    if read is None or COMPUTED in action:
        return UNKNOWN
    return read(words)


def reversal_of_edit(diff: str, *, is_cut: bool) -> Reversal:
    if not diff:
        return UNKNOWN
    if is_cut:
        return Reversal(text="not known in full: the diff is cut", is_known=False)
    return Reversal(text=BACKWARDS)


def _command(*words: str) -> Reversal:
    return Reversal(text=" ".join(words), is_command=True)


def _opposite(words: list[str], place: int, verbs: frozenset[str]) -> Reversal:
    """The same words with the opposite verb; options are its own and are left out."""
    verb = words[place] if len(words) > place else ""
    operands = [word for word in words[place + 1 :] if not word.startswith("-")]
    has_options = len(operands) != len(words) - place - 1
    if verb in LEAVES_NOTHING:
        return Reversal(text=NOTHING_LEFT)
    if verb not in verbs or not operands or has_options:
        return UNKNOWN
    return _command(*words[:place], OPPOSITES[verb], *operands)


def _docker(words: list[str]) -> Reversal:
    match words[1:]:
        case ["compose", *_]:
            return _compose(words)
        case ["container", *_]:
            return _opposite(words, 2, CONTAINER_VERBS)
        case ["network", "connect" | "disconnect" as verb, network, container]:
            return _command(words[0], "network", OPPOSITES[verb], network, container)
        case ["rename", before, after]:
            return _command(words[0], "rename", after, before)
        case ["service", "update", *_]:
            named = [word for word in words[3:] if not word.startswith("-")]
            return _command(words[0], "service", "rollback", named[-1]) if named else UNKNOWN
    return _opposite(words, 1, CONTAINER_VERBS)


def _compose(words: list[str]) -> Reversal:
    """Without a name it is all of them, which the opposite is as well."""
    verb, rest = (words[2] if len(words) > 2 else ""), words[3:]
    if verb in LEAVES_NOTHING:
        return Reversal(text=NOTHING_LEFT)
    if verb in CONTAINER_VERBS and not any(word.startswith("-") for word in rest):
        return _command(*words[:2], OPPOSITES[verb], *rest)
    return UNKNOWN


def _systemctl(words: list[str]) -> Reversal:
    return _opposite(words, 1, UNIT_VERBS)


def _service(words: list[str]) -> Reversal:
    match words:
        case [_, _, verb] if verb in LEAVES_NOTHING:
            return Reversal(text=NOTHING_LEFT)
        case [_, name, "start" | "stop" as verb]:
            return _command("service", name, OPPOSITES[verb])
    return UNKNOWN


def _kubectl(words: list[str]) -> Reversal:
    match words[1:]:
        case ["cordon" | "uncordon" as verb, node]:
            return _command("kubectl", OPPOSITES[verb], node)
        case ["scale", *_]:
            text = "kubectl scale, with the number of replicas that it had before"
            return Reversal(text=text, is_known=False)
        case [first, second, target, *_] if f"{first} {second}" in ROLLED_OUT and "/" in target:
            return _command("kubectl", "rollout", "undo", target)
    return UNKNOWN


def _helm(words: list[str]) -> Reversal:
    named = [word for word in words[2:] if not word.startswith("-")]
    match words[1:2]:
        case ["upgrade"] if named and "--install" not in words:
            return _command("helm", "rollback", named[0])
        case ["install"] if named:
            return _command("helm", "uninstall", named[0])
    return UNKNOWN


def _git(words: list[str]) -> Reversal:
    match words[1:2]:
        case ["commit" | "merge" | "push" | "cherry-pick" | "revert"]:
            return Reversal(text="git revert of the commits that it made")
    return UNKNOWN


def _packages(words: list[str]) -> Reversal:
    verb, names = (words[1] if len(words) > 1 else ""), words[2:]
    plain = [name for name in names if not name.startswith("-")]
    return _command(words[0], OPPOSITES[verb], *plain) if verb in _BOTH_WAYS and plain else UNKNOWN


def _move(words: list[str]) -> Reversal:
    match words:
        case [_, before, after] if not before.startswith("-") and not after.endswith("/"):
            return _command("mv", after, before)
    return UNKNOWN


def _make_directory(words: list[str]) -> Reversal:
    match words:
        case [_, path] if not path.startswith("-"):
            return _command("rmdir", path)
    return UNKNOWN


_BOTH_WAYS = frozenset({"install", "remove"})
READERS: dict[str, Callable[[list[str]], Reversal]] = {
    "docker": _docker,
    "podman": _docker,
    "systemctl": _systemctl,
    "service": _service,
    "kubectl": _kubectl,
    "helm": _helm,
    "git": _git,
    **dict.fromkeys(PACKAGES, _packages),
    "mv": _move,
    "mkdir": _make_directory,
}
