"""What a change was done to, in one spelling, and whether it is a restart or a redeployment. Pure.

The words come from the gate, which has read the command: "docker restart web". A verb that is in no
table is another change, and has no cooldown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from sessions_app.models import Change
from sessions_app.reading.masking import masked
from sessions_app.reading.service_names import one_spelling

Kind = Change.Kind
EVERYTHING = "*"
"""Whatever there is: no service was named, or only the running shell knows which."""
COMPUTED = "…"

RESTARTING = frozenset(
    {
        *("restart", "start", "kill", "unpause", "try-restart", "condrestart", "force-reload"),
        *("reload-or-restart", "try-reload-or-restart", "reload-or-try-restart"),
    }
)
COMPOSING = frozenset({"up", "create"})
HELM = frozenset({"upgrade", "install", "rollback"})
KUBE_RESTARTS = frozenset({"rollout restart", "delete pod", "delete pods", "delete po", "scale"})
KUBE_DEPLOYS = frozenset(
    ("rollout undo", "set image", "set env", "apply", "replace", "patch", "create", "edit")
)
ANSIBLE_SERVICES = frozenset({"service", "systemd", "systemd_service", "sysvinit", "openrc"})
ANSIBLE_RESTARTS = frozenset({"restarted", "started"})
# A word after one of these is its value and no service.
WITH_VALUE = frozenset(
    {
        *("-t", "--time", "--timeout", "-s", "--signal", "--kill-who", "--kill-whom", "--scale"),
        *("--pull", "--wait-timeout", "--exit-code-from", "--attach", "--no-attach", "--replicas"),
        *("--selector", "--image", "--limit", "-i", "--inventory", "-l", "-e", "--extra-vars"),
        *("--tags", "--namespace", "-c", "--compose-file", "--env", "--volume", "--user"),
    }
)
_CONTAINER = re.compile(r"[^-_].*?[-_](.+)[-_]\d{1,3}")
"""As compose calls them: project, service, number."""
_POD = re.compile(r"(.+)-[a-f0-9]{8,10}-[a-z0-9]{5}")

Read = tuple[str, list[str]]
"""The kind of a change, and the services as they were named."""
OTHER: Read = (Kind.OTHER, [])


@dataclass(frozen=True, kw_only=True, slots=True)
class Effect:
    kind: str
    service: str
    """In one spelling; EVERYTHING where none is named, empty where that makes no sense."""
    action: str


def effects_of(changes: Iterable[str]) -> tuple[Effect, ...]:
    """Each as often as it is done."""
    return tuple(effect for change in changes for effect in _effects(change))


def service_behind(name: str) -> str:
    """What a command calls it, as a report would: `/shop-web-1` and `deploy/Web` are web."""
    plain = name.strip().casefold().rpartition("/")[2].removesuffix(".service")
    found = _POD.fullmatch(plain) or _CONTAINER.fullmatch(plain)
    return one_spelling(found[1] if found else plain)


def is_of_docker(effect: Effect) -> bool:
    return effect.action.startswith("docker ")


def _effects(change: str) -> list[Effect]:
    words = change.split()
    read = READERS.get(words[0] if words else "")
    kind, names = read(words[1:]) if read else OTHER
    if kind == Kind.OTHER:
        return [Effect(kind=kind, service="", action=change)]
    services = [EVERYTHING if COMPUTED in name else masked(service_behind(name)) for name in names]
    return [
        Effect(kind=kind, service=service, action=change) for service in services or [EVERYTHING]
    ]


def _docker(words: list[str]) -> Read:
    match words:
        case ["compose", *rest]:
            return _by_verb(rest, COMPOSING)
        case ["service", "update", *rest]:
            return Kind.REDEPLOY, _operands(rest)
        case ["stack", "deploy", *rest]:
            return Kind.REDEPLOY, _operands(rest)[-1:]
        case ["run" | "create", *rest]:
            named = [word for flag, word in _pairs(rest) if flag == "--name"]
            return (Kind.REDEPLOY, named) if named else OTHER
    return _by_verb(words)


def _by_verb(words: list[str], deploying: frozenset[str] = frozenset()) -> Read:
    match words:
        case [verb, *rest] if verb in RESTARTING:
            return Kind.RESTART, _operands(rest)
        case [verb, *rest] if verb in deploying:
            return Kind.REDEPLOY, _operands(rest)
    return OTHER


def _service(words: list[str]) -> Read:
    """`service nginx restart`: the name comes first."""
    is_restart = len(words) > 1 and words[1] in RESTARTING
    return (Kind.RESTART, words[:1]) if is_restart else OTHER


def _kubectl(words: list[str]) -> Read:
    for length in (2, 1):
        verb, rest = " ".join(words[:length]), words[length:]
        if verb in KUBE_RESTARTS:
            pods = _operands(rest) if verb.startswith("delete") else _kube_names(rest)
            return Kind.RESTART, pods
        if verb in KUBE_DEPLOYS:
            return Kind.REDEPLOY, _kube_names(rest)
    return OTHER


def _kube_names(words: list[str]) -> list[str]:
    """`deployment/web`, `deployment web`, or what a file says, by the file's name."""
    if files := [word for flag, word in _pairs(words) if flag in ("-f", "--filename", "-k")]:
        return [_stem(name) for name in files]
    operands = [word for word in _operands(words) if "=" not in word]
    with_kind = [word for word in operands if "/" in word]
    return with_kind or operands[1:] or operands


def _helm(words: list[str]) -> Read:
    is_deploy = bool(words) and words[0] in HELM
    return (Kind.REDEPLOY, _operands(words[1:])[:1]) if is_deploy else OTHER


def _playbook(words: list[str]) -> Read:
    return Kind.REDEPLOY, [_stem(word) for word in _operands(words)]


def _ansible(words: list[str]) -> Read:
    """`ansible web -m service -a "name=nginx state=restarted"`, in the words of its module."""
    module = next((word for flag, word in _pairs(words) if flag in ("-m", "--module-name")), "")
    said = dict(word.strip("\"'").split("=", 1) for word in words if "=" in word)
    if module.rpartition(".")[2] in ANSIBLE_SERVICES and said.get("state") in ANSIBLE_RESTARTS:
        return Kind.RESTART, [name for key, name in said.items() if key in ("name", "service")]
    return (Kind.RESTART, []) if module.rpartition(".")[2] == "reboot" else OTHER


def _terraform(words: list[str]) -> Read:
    return (Kind.REDEPLOY, ["terraform"]) if words[:1] == ["apply"] else OTHER


def _operands(words: list[str]) -> list[str]:
    before = ["", *words]
    return [
        word
        for flag, word in zip(before, words, strict=False)
        if not word.startswith("-") and flag not in WITH_VALUE
    ]


def _pairs(words: list[str]) -> list[tuple[str, str]]:
    """Options with their values, in both ways of writing them."""
    joined = [word.partition("=") for word in words if word.startswith("-")]
    return [
        *zip(words, words[1:], strict=False),
        *((flag, value) for flag, sign, value in joined if sign),
    ]


def _stem(path: str) -> str:
    return path.rpartition("/")[2].rpartition(".")[0] or path


READERS: dict[str, Callable[[list[str]], Read]] = {
    "docker": _docker,
    "podman": _docker,
    "systemctl": _by_verb,
    "service": _service,
    "kubectl": _kubectl,
    "helm": _helm,
    "ansible-playbook": _playbook,
    "ansible": _ansible,
    "terraform": _terraform,
    "tofu": _terraform,
}
