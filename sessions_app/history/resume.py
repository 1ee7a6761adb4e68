"""Decides how a session begins (resume, handoff or fresh); the receipt of an escalation.

The guards are pure rules in one table, which the decision (`continuation_from`), the page of a
session and the receipt read. The name of a guard is stored with the session. A changed model is not
a guard, because tiers change it on purpose. The receipt of a session lists who requested it, and
the tools, grants and budget that it got compared with its parent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

from sessions_app.history.claims import read_report
from sessions_app.history.commands import read_sandbox
from sessions_app.models import Conversation, Session
from sessions_app.text import as_text, duration, exact_percent, mapping, tokens

# Format of an id of the CLI, which reads other text as a title.
CONVERSATION_ID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


class Guard(StrEnum):
    """Reasons not to resume a conversation, in the order of the checks."""

    CLI_CANNOT_RESUME = "cli_cannot_resume"
    FORCE_FRESH = "force_fresh"
    NOT_KEPT = "not_kept"
    NO_SESSION_ID = "no_session_id"
    NOT_A_UUID = "not_a_uuid"
    RETIRED = "retired"
    EXPIRED = "expired"
    OTHER_RUNTIME = "other_runtime"
    OTHER_DIRECTORY = "other_directory"
    IN_USE = "in_use"
    CONTEXT_FULL = "context_full"
    TRANSCRIPT_UNREADABLE = "transcript_unreadable"
    OTHER_HOST = "other_host"
    TRANSCRIPT_GONE = "transcript_gone"


class TranscriptLocation(StrEnum):
    """Location of the parent's transcript."""

    NOT_LOOKED = "not looked"
    ON_DISK = "on disk"
    ARCHIVED = "archived"
    UNREADABLE = "unreadable"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True, slots=True)
class ParentFacts:
    """Facts about the session whose conversation would be resumed."""

    tier: int
    session_id: str
    kept: bool = True
    """False for an ephemeral conversation."""
    retired_because: str = ""
    expired: bool = False
    age_seconds: float = 0
    cli_version: str = ""
    same_binary: bool = True
    same_directory: bool = True
    same_host: bool = True
    in_use_by: int | None = None
    context_tokens: int = 0
    transcript: TranscriptLocation = TranscriptLocation.NOT_LOOKED


@dataclass(frozen=True, kw_only=True, slots=True)
class NextRun:
    """Facts about the next session and the CLI of this host."""

    tier: int
    cli_version: str
    can_resume: bool
    force_fresh: bool
    context_window: int
    """Context window of the next tier's model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeLimits:
    context_threshold: Decimal
    max_age_seconds: int

    def __str__(self) -> str:
        return (
            f"Resume limits: context up to {exact_percent(self.context_threshold)} "
            f"(CLAUDEOPS_RESUME_CONTEXT_THRESHOLD), age up to {self.max_age_seconds} s "
            "(CLAUDEOPS_RESUME_MAX_AGE)."
        )


def recorded_facts(
    session: Session, conversation: Conversation | None, now: datetime
) -> ParentFacts:
    """Return the facts from the database. Facts that only a host knows get values that pass."""
    last_used = session.last_activity_at or session.finished_at or session.created_at
    return ParentFacts(
        tier=session.tier,
        session_id=session.session_id,
        kept=not session.cycle.ephemeral,
        retired_because=_retirement(conversation),
        expired=conversation is not None and conversation.state == Conversation.State.EXPIRED,
        age_seconds=(now - last_used).total_seconds(),
        cli_version=session.cli_version,
        in_use_by=conversation.in_use_by_id if conversation else None,
        context_tokens=session.context_tokens,
    )


def _retirement(conversation: Conversation | None) -> str:
    if conversation is None or conversation.state != Conversation.State.RETIRED:
        return ""
    return conversation.reason or "no reason was stored"


def occupancy(parent: ParentFacts, run: NextRun) -> str:
    return f"{Decimal(parent.context_tokens) / Decimal(run.context_window):.1%}"


def _cli_cannot_resume(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if run.can_resume else f"this CLI ({run.cli_version}) cannot resume"


def _force_fresh(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "a fresh conversation was asked for" if run.force_fresh else ""


def _not_kept(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if parent.kept else "the conversation of the earlier run was not kept, as asked"


def _no_session_id(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return "" if parent.session_id else "the CLI reported no session id for the earlier run"


def _not_a_uuid(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if CONVERSATION_ID.fullmatch(parent.session_id):
        return ""
    return "the earlier run's id is not a UUID: the CLI would take it for a title"


def _retired(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    return (
        f"the conversation is retired: {parent.retired_because}" if parent.retired_because else ""
    )


def _expired(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    # The age is negative if the clock was set back.
    if parent.expired or parent.age_seconds > limits.max_age_seconds:
        return f"the conversation is older than {limits.max_age_seconds} s"
    return ""


def _other_runtime(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.cli_version != run.cli_version:
        return f"the earlier run used CLI {parent.cli_version}, this host has {run.cli_version}"
    return "" if parent.same_binary else "the earlier run used another binary of the CLI"


def _other_directory(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.same_directory:
        return ""
    return "the earlier run worked in another directory, or it was replaced since"


def _in_use(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.in_use_by is None:
        return ""
    return f"session {parent.in_use_by} is using the conversation now"


def _context_full(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.context_tokens <= limits.context_threshold * run.context_window:
        return ""
    return (
        f"context window pressure: {parent.context_tokens} of {run.context_window} tokens "
        f"({occupancy(parent, run)}) are over the limit of "
        f"{exact_percent(limits.context_threshold)}"
    )


def _transcript_unreadable(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    unreadable = parent.transcript == TranscriptLocation.UNREADABLE
    return "the transcript on disk cannot be read by this user" if unreadable else ""


def _other_host(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    if parent.same_host or parent.transcript in (
        TranscriptLocation.ON_DISK,
        TranscriptLocation.ARCHIVED,
    ):
        return ""
    return "the earlier run was on another host, and its transcript cannot be restored here"


def _transcript_gone(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> str:
    gone = parent.transcript == TranscriptLocation.GONE
    return "the transcript is gone from the disk and from the archive" if gone else ""


Objection = Callable[[ParentFacts, NextRun, ResumeLimits], str]


@dataclass(frozen=True, slots=True)
class Rule:
    guard: Guard
    question: str
    """Question for display."""
    objection: Objection
    """Returns the reason not to resume, or an empty string."""
    reads_disk: bool = False
    """True if its facts are read only when no other guard objects."""


RULES: tuple[Rule, ...] = (
    Rule(Guard.CLI_CANNOT_RESUME, "Can the CLI resume?", _cli_cannot_resume),
    Rule(Guard.FORCE_FRESH, "Was a fresh one asked for?", _force_fresh),
    Rule(Guard.NOT_KEPT, "Was it kept?", _not_kept),
    Rule(Guard.NO_SESSION_ID, "Did the CLI name it?", _no_session_id),
    Rule(Guard.NOT_A_UUID, "Is the name a UUID?", _not_a_uuid),
    Rule(Guard.RETIRED, "Is it retired?", _retired),
    Rule(Guard.EXPIRED, "Is it too old?", _expired),
    Rule(Guard.OTHER_RUNTIME, "Is it the same CLI?", _other_runtime),
    Rule(Guard.OTHER_DIRECTORY, "Is it the same directory?", _other_directory),
    Rule(Guard.IN_USE, "Is another run in it?", _in_use),
    Rule(Guard.CONTEXT_FULL, "Is there room in the context?", _context_full),
    Rule(
        Guard.TRANSCRIPT_UNREADABLE,
        "Can the transcript be read?",
        _transcript_unreadable,
        reads_disk=True,
    ),
    Rule(Guard.OTHER_HOST, "Is it on this host, or archived?", _other_host, reads_disk=True),
    Rule(Guard.TRANSCRIPT_GONE, "Is the transcript there?", _transcript_gone, reads_disk=True),
)
CHEAP_RULES = tuple(rule for rule in RULES if not rule.reads_disk)


def first_objection(
    parent: ParentFacts, run: NextRun, limits: ResumeLimits, rules: Iterable[Rule] = RULES
) -> tuple[Guard, str] | None:
    """Return the first guard that objects and its reason, or None."""
    for rule in rules:
        if why := rule.objection(parent, run, limits):
            return rule.guard, why
    return None


PASSED, OBJECTED, NOT_ASKED = "passed", "objected", "not asked"


@dataclass(frozen=True, slots=True)
class Fresh:
    why: str


@dataclass(frozen=True, slots=True)
class Resume:
    session_id: str
    why: str


@dataclass(frozen=True, slots=True)
class Handoff:
    guard: Guard
    why: str


Continuation = Fresh | Resume | Handoff


def continuation_from(
    parent: ParentFacts | None, run: NextRun, limits: ResumeLimits
) -> Continuation:
    if parent is None:
        return Fresh(why="first run of the cycle")
    if objection := first_objection(parent, run, limits):
        return Handoff(*objection)
    return Resume(
        session_id=parent.session_id,
        why=f"continues the conversation of Tier {parent.tier}: "
        f"{occupancy(parent, run)} of the context in use, "
        f"under the limit of {exact_percent(limits.context_threshold)}",
    )


def cheap_objection(parent: ParentFacts, run: NextRun, limits: ResumeLimits) -> bool:
    """Return whether a guard objects that does not need the disk."""
    return first_objection(parent, run, limits, CHEAP_RULES) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardLine:
    """Result of one guard, with the fact that it checked."""

    name: str
    question: str
    fact: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Stored facts of a decision; each may be missing."""

    parent: Mapping[str, Any]
    run: Mapping[str, Any]
    limits: Mapping[str, Any]


Fact = Callable[[Facts], str]


def guard_lines(continuation_facts: Any, objected: str) -> tuple[GuardLine, ...]:
    """Return the guards with their facts; empty for a session without a parent."""
    stored = mapping(continuation_facts)
    facts = Facts(*(mapping(stored.get(key)) for key in ("parent", "run", "limits")))
    if not facts.parent:
        return ()
    names = [rule.guard.value for rule in RULES]
    ends = names.index(objected) if objected in names else len(names)
    return tuple(
        GuardLine(
            name=rule.guard.value,
            question=rule.question,
            fact=FACTS[rule.guard](facts) if place <= ends else "",
            verdict=PASSED if place < ends else OBJECTED if place == ends else NOT_ASKED,
        )
        for place, rule in enumerate(RULES)
    )


def _yes_or_no(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else "not recorded"


def _age(facts: Facts) -> str:
    age, most = facts.parent.get("age_seconds"), facts.limits.get("max_age_seconds")
    return f"{_time(age)} of at most {_time(most)}"


def _time(seconds: Any) -> str:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return duration(seconds * 1000) if is_number else "?"


def _context(facts: Facts) -> str:
    used = as_text(facts.parent.get("context_tokens"))
    window = as_text(facts.run.get("context_window"))
    most = as_text(facts.limits.get("context_threshold"))
    try:
        share = f" ({Decimal(used) / Decimal(window):.1%}), at most {exact_percent(Decimal(most))}"
    except ArithmeticError:
        share = ""
    return f"{used} of {window} tokens{share}"


def _versions(facts: Facts) -> str:
    versions = as_text(facts.parent.get("cli_version")), as_text(facts.run.get("cli_version"))
    return f"CLI {versions[0]}, then {versions[1]}"


def _transcript(facts: Facts) -> str:
    return as_text(facts.parent.get("transcript"))


FACTS: dict[Guard, Fact] = {
    Guard.CLI_CANNOT_RESUME: lambda f: _yes_or_no(f.run.get("can_resume")),
    Guard.FORCE_FRESH: lambda f: _yes_or_no(f.run.get("force_fresh")),
    Guard.NOT_KEPT: lambda f: _yes_or_no(f.parent.get("kept")),
    Guard.NO_SESSION_ID: lambda f: as_text(f.parent.get("session_id")) or "no",
    Guard.NOT_A_UUID: lambda f: as_text(f.parent.get("session_id")),
    Guard.RETIRED: lambda f: as_text(f.parent.get("retired_because")) or "no",
    Guard.EXPIRED: _age,
    Guard.OTHER_RUNTIME: _versions,
    Guard.OTHER_DIRECTORY: lambda f: _yes_or_no(f.parent.get("same_directory")),
    Guard.IN_USE: lambda f: (
        f"session {as_text(user)}" if (user := f.parent.get("in_use_by")) else "no"
    ),
    Guard.CONTEXT_FULL: _context,
    Guard.TRANSCRIPT_UNREADABLE: _transcript,
    Guard.OTHER_HOST: lambda f: (
        f"{_transcript(f)}; same host: {_yes_or_no(f.parent.get('same_host'))}"
    ),
    Guard.TRANSCRIPT_GONE: _transcript,
}
"""Fact of each guard, for display."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    gained: tuple[str, ...]
    lost: tuple[str, ...]

    @property
    def is_none(self) -> bool:
        return not self.gained and not self.lost


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    parent: Session
    asked_by: str
    why: str
    guards: tuple[GuardLine, ...]
    tools: Difference | None
    """None if one of the two sessions has no record of it."""
    grants: Difference | None
    model_before: str
    model_now: str
    context_tokens: int
    context_share: Decimal | None
    """Used share of the new model's context window at the start."""
    budget_usd: Decimal | None
    left_usd: Decimal | None


def receipt_of(session: Session, parent: Session | None) -> Receipt | None:
    if parent is None:
        return None
    asked_by, why = _asked(session, parent)
    budget = _budget(session)
    spent = session.cost_usd if session.cost_usd is not None else session.spent_so_far_usd
    return Receipt(
        parent=parent,
        asked_by=asked_by,
        why=why,
        guards=guard_lines(session.continuation_facts, session.continued_guard),
        tools=_difference(_tools(parent), _tools(session)),
        grants=_difference(_grants(parent), _grants(session)),
        model_before=parent.model_used or parent.model,
        model_now=session.model_used or session.model,
        context_tokens=parent.context_tokens,
        context_share=_share(session, parent),
        budget_usd=budget,
        left_usd=None if budget is None or spent is None else max(Decimal(0), budget - spent),
    )


def flag(argv: Any, name: str) -> str | None:
    """Return the value after a flag of a recorded command line, or None."""
    words = [as_text(word) for word in argv] if isinstance(argv, list) else []
    place = words.index(name) + 1 if name in words else len(words)
    return words[place] if place < len(words) else None


def _asked(session: Session, parent: Session) -> tuple[str, str]:
    if session.requested_by is not None:
        return session.requested_by.get_username(), session.request
    report = read_report(parent.report)
    if session.tier > parent.tier and report and report.wants_escalation:
        return f"Tier {parent.tier}", report.escalation or parent.escalation_reason
    return "Claude Ops", parent.escalation_reason


def _difference(before: set[str] | None, now: set[str] | None) -> Difference | None:
    if before is None or now is None:
        return None
    return Difference(gained=_sorted(now - before), lost=_sorted(before - now))


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _tools(session: Session) -> set[str] | None:
    given = flag(session.argv, "--tools")
    return None if given is None else set(filter(None, given.split(",")))


def _grants(session: Session) -> set[str] | None:
    sandbox = read_sandbox(session.sandbox)
    return set(sandbox.grants) if sandbox and sandbox.grants is not None else None


def _share(session: Session, parent: Session) -> Decimal | None:
    facts = session.continuation_facts if isinstance(session.continuation_facts, dict) else {}
    run = facts.get("run")
    window = run.get("context_window") if isinstance(run, dict) else None
    is_number = isinstance(window, int) and not isinstance(window, bool) and window > 0
    return Decimal(parent.context_tokens) / Decimal(window) if window and is_number else None


def _budget(session: Session) -> Decimal | None:
    try:
        given = Decimal(flag(session.argv, "--max-budget-usd") or "")
    except InvalidOperation:
        return session.max_budget_usd
    return given if given.is_finite() else None


@dataclass(frozen=True, slots=True)
class Resumable:
    """Answer to whether a conversation can be resumed, as far as the database knows.

    The guards check again when a session starts, with the facts of its host.
    """

    guard: Guard | None
    """Guard that objects, if any."""
    why: str

    @property
    def is_possible(self) -> bool:
        return self.guard is None


def resumable(
    session: Session, conversation: Conversation | None, limits: ResumeLimits, now: datetime
) -> Resumable:
    facts = recorded_facts(session, conversation, now)
    if session.is_open:
        facts = replace(facts, in_use_by=session.pk)
    if not session.context_window:  # its use was not reported
        facts = replace(facts, context_tokens=0)
    if objection := first_objection(facts, _same_again(session), limits):
        return Resumable(*objection)
    return Resumable(None, _headroom(session, facts, limits))


def _same_again(session: Session) -> NextRun:
    """Return a next session with the same CLI and model."""
    return NextRun(
        tier=session.tier,
        cli_version=session.cli_version,
        can_resume=True,
        force_fresh=False,
        context_window=session.context_window,
    )


def _headroom(session: Session, facts: ParentFacts, limits: ResumeLimits) -> str:
    left = max(0, limits.max_age_seconds - max(0, facts.age_seconds))
    room = session.context_window * limits.context_threshold - session.context_tokens
    if not session.context_window:
        return f"for {_time_for(left)} yet; the use of its context is unknown"
    return f"for {_time_for(left)} yet, and up to {tokens(int(room))} tokens more"


def _time_for(seconds: float) -> str:
    return duration(round(seconds) * 1000)
