"""Claims of a report, compared with the recorded changes and commands of its chain.

A claim is "seen in the record" if a change has the same verb and the same name (service, container,
file), and "only claimed" if none has. "The record says otherwise" if the report says "succeeded",
but every such change failed or was denied.

The last finding is used only if it is certain. An exit code counts as a failure only if it belongs
to one command: in `docker restart web && probe web` it may be that of the probe. If a later command
has an unknown effect (a script, a playbook) or changes the same thing, the claim is "only claimed".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from django.db.models import Q

from sessions_app.history.services import one_spelling
from sessions_app.models import Change, SessionEvent
from sessions_app.models.session import EventKind, Verdict
from sessions_app.text import as_text, cut, mapping

EVERYTHING = "*"
REDEPLOY = "redeploy"
"""May include stop, start and restart."""
SUCCEEDED, SKIPPED = "succeeded", "skipped"
WORD = re.compile(r"[^\s,;:()\"'`]+")
JOINED = re.compile(r"[;&|\n]")
"""Separators of commands; the exit code of several commands is ambiguous."""
REDIRECTED = re.compile(r"\d*>&\d|&>>?")
MOST_WORDS = 200
NOT_UNDERSTOOD = "not understood"

# Groups of verbs with the same meaning.
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


class ClaimCheck(StrEnum):
    SEEN = "seen"
    CLAIMED = "claimed"
    OTHERWISE = "otherwise"
    NOTHING = "nothing"
    """The report says that it was skipped."""


FINDING_WORDS = {
    ClaimCheck.SEEN: "seen in the record",
    ClaimCheck.CLAIMED: "only claimed",
    ClaimCheck.OTHERWISE: "the record says otherwise",
    ClaimCheck.NOTHING: "",
}


class Result(StrEnum):
    DONE = "done"
    FAILED = "failed"
    DENIED = "denied"
    UNSURE = "unsure"
    """Ran, with an unknown result."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recorded:
    """Recorded change, or denied command, of the chain."""

    action: str
    """Action that the command policy recognised; empty if it recognised none."""
    service: str = ""
    kind: str = ""
    path: str = ""
    result: Result = Result.DONE
    told: str = ""
    """Description of its end."""

    @property
    def is_unknown(self) -> bool:
        """True if the effect is unknown."""
        return not self.action.strip()


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    action: str
    service: str
    result: str
    finding: ClaimCheck
    evidence: Recorded | None = None

    @property
    def word(self) -> str:
        return FINDING_WORDS[self.finding]


def proven(claims: Iterable[Claim]) -> list[Claim]:
    """Return the actions that are reported as succeeded and seen in the record."""
    return [
        claim for claim in claims if claim.result == SUCCEEDED and claim.finding is ClaimCheck.SEEN
    ]


def judged(action: str, service: str, result: str, record: Sequence[Recorded]) -> Claim:
    """Compare one claim with the recorded changes, which are in order."""
    finding, evidence = _found(action, service, result, record)
    return Claim(action=action, service=service, result=result, finding=finding, evidence=evidence)


def _found(
    action: str, service: str, result: str, record: Sequence[Recorded]
) -> tuple[ClaimCheck, Recorded | None]:
    if result == SKIPPED:
        return ClaimCheck.NOTHING, None
    places = [at for at, one in enumerate(record) if _is_of(one, action, service)]
    ran = [at for at in places if record[at].result in (Result.DONE, Result.UNSURE)]
    if ran:
        return ClaimCheck.SEEN, record[ran[-1]]
    if not places:
        return ClaimCheck.CLAIMED, None
    last = record[places[-1]]
    if result != SUCCEEDED:
        return ClaimCheck.SEEN, last
    if any(_may_have_done_it(later, last, service) for later in record[places[-1] + 1 :]):
        return ClaimCheck.CLAIMED, last
    return ClaimCheck.OTHERWISE, last


def outcome_of(command: str, exit_code: int | None) -> Result:
    """Return the result of a change by the exit code of its whole command."""
    if exit_code == 0:
        return Result.DONE
    is_alone = not JOINED.search(REDIRECTED.sub("", command.strip()))
    return Result.FAILED if exit_code is not None and is_alone else Result.UNSURE


def _is_of(one: Recorded, action: str, service: str) -> bool:
    """Return True if verb and name are the same."""
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
    """Return the verbs of an action. An unknown word counts only in the place of a verb."""
    words = one.action.split()[:3]
    known = [word for word in words if _stem(word) in _EXPANDED]
    own = words[1:2] if words[0] in _WITH_VERBS else []
    return _verbs([*known, *own]) | _EXPANDED.get(_KIND_VERBS.get(one.kind, ""), frozenset())


def _names_of(one: Recorded) -> set[str]:
    """Return the names of the service, the file and the arguments."""
    named = [*one.action.split()[1:], one.service, one.path]
    plain = [word for word in named if word and word != EVERYTHING and not word.startswith("-")]
    return {name for word in plain for name in _spellings(word)} - _NO_NAMES


def _spellings(word: str) -> tuple[str, ...]:
    """Return normalised names of a word and, for a path, of its last part."""
    last = word.rstrip("/.").rpartition("/")[2]
    found = (word, last, last.partition(".")[0])
    return tuple(one_spelling(name) for name in found if name.strip("."))


def _words(text: str) -> list[str]:
    return WORD.findall(text)[:MOST_WORDS]


def _verbs(words: Iterable[str]) -> set[str]:
    stems = {_stem(word) for word in words}
    return stems.union(*(_EXPANDED.get(stem, frozenset()) for stem in stems))


def _stem(word: str) -> str:
    """Return the stem of a verb: `restart` for `restarted`, `stop` for `stopped`."""
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


# Reports for display. Stored reports may have any version of the schema or be invalid: a field is
# searched under several names, and unknown fields are displayed as they are.

LONGEST_TEXT = 4_000
LONGEST_LIST = 200

NAMES = ("name", "action", "service", "title", "what", "description", "message", "summary")
STATES = ("status", "level", "severity", "result", "outcome", "state")
KNOWN_FIELDS = ("summary", "services", "events", "actions", "actions_taken", "escalation")
WISHES = ("needed", "requested", "required", "wanted", "escalate")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportItem:
    name: str
    state: str
    detail: str
    claim: Claim | None = None
    """Comparison of an action with the record, if made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownReport:
    summary: str
    services: tuple[ReportItem, ...]
    events: tuple[ReportItem, ...]
    actions: tuple[ReportItem, ...]
    wants_escalation: bool
    escalation: str
    other: tuple[ReportItem, ...]
    """Unknown fields."""


def read_report(value: Any) -> ShownReport | None:
    if value is None or value in ("", {}, []):
        return None
    if not isinstance(value, Mapping):
        value = {"summary": value}
    escalation = value.get("escalation")
    return ShownReport(
        summary=_short(value.get("summary")),
        services=_items(value.get("services")),
        events=_items(value.get("events")),
        actions=_items(value.get("actions_taken") or value.get("actions")),
        wants_escalation=_wants(escalation),
        escalation=_escalation_text(escalation),
        other=tuple(
            ReportItem(name=as_text(key), state="", detail=_short(content))
            for key, content in value.items()
            if key not in KNOWN_FIELDS
        ),
    )


def read_facts(value: Any) -> tuple[ReportItem, ...]:
    """Return any JSON value as rows of a table."""
    facts = value if isinstance(value, Mapping) else {"facts": value} if value else {}
    return tuple(
        ReportItem(name=as_text(name).replace("_", " "), state="", detail=_short(content))
        for name, content in list(facts.items())[:LONGEST_LIST]
    )


def _items(value: Any) -> tuple[ReportItem, ...]:
    if isinstance(value, Mapping):
        value = [{"name": name, "status": state} for name, state in value.items()]
    entries = value if isinstance(value, list) else [value] if value else []
    return tuple(_item(entry) for entry in entries[:LONGEST_LIST])


def _item(entry: Any) -> ReportItem:
    if not isinstance(entry, Mapping):
        return ReportItem(name=_short(entry), state="", detail="")
    name_key = next((key for key in NAMES if entry.get(key)), None)
    state_key = next((key for key in STATES if entry.get(key)), None)
    rest = [
        _labelled(as_text(key), _short(content))
        for key, content in entry.items()
        if key not in (name_key, state_key) and content not in (None, "", [], {})
    ]
    return ReportItem(
        name=_short(entry.get(name_key)) if name_key else "",
        state=_short(entry.get(state_key)) if state_key else "",
        detail="\n".join(rest),
    )


def _labelled(key: str, content: str) -> str:
    return content if key in ("detail", "details", "message") else f"{key}: {content}"


def _wants(escalation: Any) -> bool:
    if isinstance(escalation, Mapping):
        return any(escalation.get(wish) is True for wish in WISHES)
    return escalation is True


def _escalation_text(escalation: Any) -> str:
    if not isinstance(escalation, Mapping):
        return "" if isinstance(escalation, bool) else _short(escalation)
    told = {k: v for k, v in escalation.items() if k not in WISHES and v not in (None, "", [])}
    reason = _short(told.pop("reason", ""))
    return "\n".join(filter(None, [reason, *(f"{k}: {_short(v)}" for k, v in told.items())]))


def _short(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        value = ", ".join(value)
    return cut(as_text(value), LONGEST_TEXT)


MOST_READ = 2_000
"""Limit for changes, and for commands, of one chain."""


def claims_in(report: Any, cycle: int, branch: Sequence[int] = ()) -> tuple[Claim, ...]:
    """Compare the actions of a report with the record of its cycle.

    `branch`: the sessions of branches that lead to the report; other branches prove nothing.
    Makes no query for a report without actions, and a second one only if a change is not enough.
    """
    listed = mapping(report).get("actions_taken") or mapping(report).get("actions")
    claimed = [mapping(one) for one in listed[:LONGEST_LIST]] if isinstance(listed, list) else []
    if not claimed:
        return ()
    of_chain = Q(session__cycle=cycle) & (Q(session__in_branch=False) | Q(session__in=branch))
    record = dict(_changes(of_chain))
    claims = _judged_all(claimed, record)
    if any(claim.finding is ClaimCheck.CLAIMED for claim in claims) or _has_failures(claims):
        claims = _judged_all(claimed, record | dict(_commands(of_chain)))
    return claims


def marked_report(
    report: ShownReport | None, value: Any, cycle: int, branch: Sequence[int] = ()
) -> ShownReport | None:
    """Add the comparison with the record to the actions of a report."""
    claims = claims_in(value, cycle, branch) if report else ()
    if report is None or not claims:
        return report
    marked = [
        replace(item, claim=claim) for item, claim in zip(report.actions, claims, strict=False)
    ]
    return replace(report, actions=tuple(marked))


def _has_failures(claims: Iterable[Claim]) -> bool:
    """Return True if a claim contradicts the record; a later command may explain it."""
    return any(claim.finding is ClaimCheck.OTHERWISE for claim in claims)


def _judged_all(
    claimed: Iterable[Mapping[str, Any]], record: Mapping[tuple[datetime, str], Recorded]
) -> tuple[Claim, ...]:
    in_order = [record[at] for at in sorted(record)]
    return tuple(
        judged(
            as_text(one.get("action")),
            as_text(one.get("service")),
            as_text(one.get("result")),
            in_order,
        )
        for one in claimed
    )


def _changes(of_chain: Q) -> Iterable[tuple[tuple[datetime, str], Recorded]]:
    rows = Change.objects.filter(of_chain).order_by("-pk")[:MOST_READ]
    for row in rows.defer("diff"):
        yield (row.at, f"{row.call} {row.number}"), _recorded(row)


def _recorded(row: Change) -> Recorded:
    if row.is_file:
        told = "edited" if row.is_edit else "written by commands"
        return Recorded(action=row.action, kind=row.kind, path=row.path, told=told)
    told = "its end is not known" if row.exit_code is None else f"exit code {row.exit_code}"
    return Recorded(
        action=row.action,
        service=row.service,
        kind=row.kind,
        result=outcome_of(row.command, row.exit_code),
        told=told,
    )


def _commands(of_chain: Q) -> Iterable[tuple[tuple[datetime, str], Recorded]]:
    """Yield denied commands, and commands with an unknown effect."""
    events = SessionEvent.objects.filter(
        of_chain,
        source=SessionEvent.Source.SUPERVISOR,
        kind__in=(EventKind.COMMAND, EventKind.COMMAND_END),
    ).order_by("-pk")[:MOST_READ]
    begun: dict[str, Mapping[str, Any]] = {}
    for event in sorted(events, key=lambda event: (event.created_at, event.pk)):
        data = mapping(event.payload)
        call = as_text(data.get("call"))
        asked = begun.get(call, {})
        if event.kind == EventKind.COMMAND:
            begun[call] = data
            found = _refused(data, f"denied ({as_text(data.get('rule'))})", Verdict.DENY)
        elif data.get("has_run") is False:
            found = _refused(asked, "not approved", Verdict.ASK)
        else:
            # Of version 0.2. Since then a text has no grant, so its effects are in its directory.
            is_open = asked.get("rule") == NOT_UNDERSTOOD and data.get("exit_code") == 0
            found = [Recorded(action="", told=NOT_UNDERSTOOD)] if is_open else []
        for number, one in enumerate(found):
            yield (event.created_at, f"{call} {number} {event.kind}"), one


def _refused(data: Mapping[str, Any], told: str, verdict: str) -> list[Recorded]:
    changes = _texts(data.get("changes")) if data.get("verdict") == verdict else []
    return [Recorded(action=change, result=Result.DENIED, told=told) for change in changes]


def _texts(value: Any) -> list[str]:
    return [as_text(word) for word in value] if isinstance(value, list) else []
