"""What a report claims, held against the record. Pure.

A claim is "seen in the record" when a change of its chain has the same verb and the same name: the
service, the container, the file. It is "only claimed" when none has. And the record says otherwise
when the report says "succeeded", but all that has its verb and name failed or was denied.

The last is a hard word, so it is said of what is sure alone. An exit code counts as failed only
where it is that command's own: in `docker restart web && probe web` it may be the probe's. And what
was tried in vain may have been done in another way later: by a command whose effect is not known
(a script, a playbook) or that was done to the same thing. Then it is only claimed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from sessions_app.reading.service_names import one_spelling

EVERYTHING = "*"
REDEPLOY = "redeploy"
"""It may do anything on its way: stop, start, restart."""
SUCCEEDED, SKIPPED = "succeeded", "skipped"
WORD = re.compile(r"[^\s,;:()\"'`]+")
JOINED = re.compile(r"[;&|\n]")
"""More than one command: whose the exit code is, nobody knows."""
REDIRECTED = re.compile(r"\d*>&\d|&>>?")
MOST_WORDS = 200

# Verbs that may stand for each other, by what is left of them without their endings.
_ALIKE: tuple[tuple[str, ...], ...] = (
    ("restart", "start", "bounce", "reboot", "try-restart", "reload-or-restart", "recycle"),
    ("stop", "kill", "shutdown", "terminate", "halt"),
    (
        *("deploy", "redeploy", "up", "apply", "upgrade", "recreate", "rebuild", "create", "run"),
        *("update", "rollback", "undo", "install", "ansible-playbook", "terraform"),
    ),
    ("delete", "remove", "rm", "prune", "purge", "clear", "clean", "free", "uninstall", "vacuum"),
    (
        *("edit", "write", "wrote", "change", "fix", "correct", "add", "set", "modify", "adjust"),
        *("update", "replace", "remove", "patch", "revert", "configure", "create"),
    ),
    ("mv", "move", "rename"),
    ("mkdir", "create", "make"),
    ("chmod", "chown", "permission", "permit", "own"),
)


class Finding(StrEnum):
    SEEN = "seen"
    CLAIMED = "claimed"
    OTHERWISE = "otherwise"
    NOTHING = "nothing"
    """It says itself that it was skipped."""


FINDING_WORDS = {
    Finding.SEEN: "seen in the record",
    Finding.CLAIMED: "only claimed",
    Finding.OTHERWISE: "the record says otherwise",
    Finding.NOTHING: "",
}


class Result(StrEnum):
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    UNSURE = "unsure"
    """It ran, and whether it did its work is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Something of the chain's record that had an effect, or would have had one."""

    action: str
    """As the gate understood it; empty where it was not understood."""
    service: str = ""
    kind: str = ""
    path: str = ""
    result: Result = Result.DONE
    told: str = ""
    """How it ended, in words."""

    @property
    def is_unknown(self) -> bool:
        """Nobody can say what it did."""
        return not self.action.strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    action: str
    service: str
    result: str
    finding: Finding
    evidence: Recorded | None = None

    @property
    def word(self) -> str:
        return FINDING_WORDS[self.finding]


def judged(action: str, service: str, result: str, record: Sequence[Recorded]) -> Claim:
    """One claim, against the record in its order."""
    finding, evidence = _found(action, service, result, record)
    return Claim(action=action, service=service, result=result, finding=finding, evidence=evidence)


def _found(
    action: str, service: str, result: str, record: Sequence[Recorded]
) -> tuple[Finding, Recorded | None]:
    if result == SKIPPED:
        return Finding.NOTHING, None
    places = [at for at, one in enumerate(record) if _is_of(one, action, service)]
    ran = [at for at in places if record[at].result in (Result.DONE, Result.UNSURE)]
    if ran:
        return Finding.SEEN, record[ran[-1]]
    if not places:
        return Finding.CLAIMED, None
    last = record[places[-1]]
    if result != SUCCEEDED:
        return Finding.SEEN, last
    if any(_may_have_done_it(later, last, service) for later in record[places[-1] + 1 :]):
        return Finding.CLAIMED, last
    return Finding.OTHERWISE, last


def outcome_of(command: str, exit_code: int | None) -> Result:
    """Whether a change did its work, as far as the exit code of its whole command tells."""
    if exit_code == 0:
        return Result.DONE
    is_alone = not JOINED.search(REDIRECTED.sub("", command.strip()))
    return Result.FAILED if exit_code is not None and is_alone else Result.UNSURE


def _is_of(one: Recorded, action: str, service: str) -> bool:
    """Same verb, same name."""
    if one.is_unknown:
        return False
    words = _words(action)
    return bool(_verbs(words) & _verbs_of(one)) and _shares_name(one, words, service)


def _may_have_done_it(later: Recorded, failed: Recorded, service: str) -> bool:
    if later.result in (Result.FAILED, Result.DENIED):
        return False
    if later.is_unknown or later.service == EVERYTHING or later.kind == REDEPLOY:
        return True
    names = _names_of(failed) | ({one_spelling(service)} if service else set())
    return bool(_names_of(later) & names)


def _shares_name(one: Recorded, words: Iterable[str], service: str) -> bool:
    if one.service == EVERYTHING:
        return True
    claimed = {name for word in words for name in _spellings(word)}
    claimed |= set(_spellings(service)) if service else set()
    return bool(_names_of(one) & claimed)


def _verbs_of(one: Recorded) -> set[str]:
    """A word that is no verb of ours may be a name: it counts only where a verb stands."""
    words = one.action.split()[:3]
    known = [word for word in words if _stem(word) in _EXPANDED]
    own = words[1:2] if words[0] in _WITH_VERBS else []
    return _verbs([*known, *own]) | _EXPANDED.get(_KIND_VERBS.get(one.kind, ""), frozenset())


def _names_of(one: Recorded) -> set[str]:
    """What it was done to: the service, and all that its words name."""
    named = [*one.action.split()[1:], one.service, one.path]
    plain = [word for word in named if word and word != EVERYTHING and not word.startswith("-")]
    return {name for word in plain for name in _spellings(word)} - _NO_NAMES


def _spellings(word: str) -> tuple[str, ...]:
    """A path also by its last part, with and without what follows the dot."""
    last = word.rstrip("/.").rpartition("/")[2]
    found = (word, last, last.partition(".")[0])
    return tuple(one_spelling(name) for name in found if name.strip("."))


def _words(text: str) -> list[str]:
    return WORD.findall(text)[:MOST_WORDS]


def _verbs(words: Iterable[str]) -> set[str]:
    stems = {_stem(word) for word in words}
    return stems.union(*(_EXPANDED.get(stem, frozenset()) for stem in stems))


def _stem(word: str) -> str:
    """`restarted`, `Restarting` and `restart` are one; `stopped` and `stop` as well."""
    plain = word.casefold().strip(".!?")
    for ending in ("ing", "ed", "es", "s"):
        if plain.endswith(ending) and len(plain) > len(ending) + 2:
            plain = plain.removesuffix(ending)
            break
    plain = plain.removesuffix("e")
    return plain[:-1] if len(plain) > 3 and plain[-1] == plain[-2] else plain


def _expanded() -> dict[str, frozenset[str]]:
    groups = [frozenset(map(_stem, group)) for group in _ALIKE]
    return {
        stem: frozenset().union(*(group for group in groups if stem in group))
        for stem in frozenset().union(*groups)
    }


_EXPANDED = _expanded()
_WITH_VERBS = frozenset(
    {
        *("docker", "podman", "systemctl", "kubectl", "helm", "git", "apt", "apt-get", "dnf"),
        *("yum", "terraform", "tofu", "gh", "certbot", "ufw", "zfs"),
    }
)
_KIND_VERBS = {"restart": _stem("restart"), "redeploy": _stem("redeploy"), "edit": _stem("edit")}
_NO_NAMES = frozenset(
    {
        *("compose", "container", "service", "stack", "network", "volume", "deployment", "pod"),
        *(verb for group in _ALIKE for verb in group),
        *("rollout", "image", "unnamed", "app", "the"),
    }
)
