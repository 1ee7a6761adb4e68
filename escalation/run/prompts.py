"""Writes the prompt of a session from the files in `prompts/` and the facts of its context.

`prompt_context_of` looks the facts up in the record, once; `rendered` reads nothing but the files,
so the same context gives the same prompt.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template
from typing import Any

from django.conf import settings

from escalation.agent.stream import ToolCall, tool_calls
from escalation.command_policy.remedies import DeclaredRemedy, usable
from escalation.errors import PromptMissing
from escalation.run.manifest import manifest_of_cycle
from escalation.supervisor.successors import Lineage
from escalation.tiers import Tier
from sessions_app.history.incidents import remedies_that_failed
from sessions_app.history.resume import Continuation, Fresh, Guard, Handoff, Resume
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.models.cycle import Fact
from sessions_app.models.session import EventKind
from sessions_app.redaction.redact import redacted
from sessions_app.text import as_text, cut_to_tokens, estimated_tokens, one_line
from sessions_app.tiers import LOWEST_TIER, tier_numbers

# In a prompt, `/word` at the start of a line is a command to the CLI and `@file` includes a file.
# CLI versions differ in what may stand before an @, so every @ counts that no white space follows.
MENTION = re.compile(r"@(?![ \t\n])")
COMMAND = re.compile(r"(?m)^/(?=\w)")


def disarmed(text: str) -> str:
    """Text that the CLI cannot take for a command or a file to include.

    Addresses are changed too (`ops@ example.org`): the prompts tell the model so.
    """
    return COMMAND.sub(" /", MENTION.sub("@ ", text.strip()))


def new_token() -> str:
    """Random text that no output of a program can know."""
    return secrets.token_hex(8)


CALLS_SHOWN = 3
REMEDIES_SHOWN = 3
FACTS_SHOWN = 4
CALL_LENGTH = 400
# More is redacted than is shown, so that no secret is cut in half and missed.
REDACTED_LENGTH = 10_000

Purpose, Status = Session.Purpose, Session.Status


@dataclass(frozen=True, kw_only=True, slots=True)
class EarlierRun:
    """A finished session of the same cycle."""

    tier: int
    ended_as: str = Status.COMPLETED
    """Status; of a session that a person escalated, the one before."""
    reported: bool = True
    is_question: bool = False
    began: bool = True
    """True if the CLI printed anything."""
    ran_tools: bool = True
    cut_calls: tuple[str, ...] = ()
    """Tool calls without a result, newest last; redacted and cut."""
    continued_by: str = Session.ContinuedBy.RESUME
    compacted: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorContext:
    """Texts of the operator about the system."""

    subject: str = ""
    manifest: str = ""
    """Accepted text."""
    unaccepted_manifest: str = ""
    """Text of the file where it differs from the accepted one: data."""
    instructions: str = ""
    asked_for: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """Facts of probes and alerts, in lines, redacted."""

    all: tuple[str, ...] = ()
    new: tuple[str, ...] = ()
    """Those that no prompt of the conversation has told yet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PromptContext:
    """Facts of a session that its prompt is written from."""

    tier: Tier
    continuation: Continuation
    purpose: str = Purpose.TIER
    """Purpose; of a retry, that of the first attempt."""
    dry_run: bool = False
    line: tuple[EarlierRun, ...] = ()
    """Sessions that this one continues, oldest first; its parent is the last."""
    attempts: tuple[EarlierRun, ...] = ()
    """Earlier sessions with the same parent and purpose that did not end well."""
    failed_remedies: tuple[str, ...] = ()
    """Remedies of earlier cycles that did not hold; empty for Tier 1."""
    evidence: Evidence = field(default_factory=Evidence)
    remedies: tuple[tuple[str, str], ...] = ()
    """Usage and description of each remedy that the tier may use."""
    request: str = ""
    """Request of a person, or their reason for starting the session."""
    told: tuple[tuple[str, str], ...] = ()
    """Names and messages of people that the interrupted session could not take."""
    operator: OperatorContext = field(default_factory=OperatorContext)
    record: str = ""
    """Handoff, where the conversation cannot be resumed."""
    token: str = ""
    """Random text in the lines around data, which no output can know and repeat."""

    @property
    def parent(self) -> EarlierRun:
        assert self.line, "a session that continues no other has no parent"
        return self.line[-1]

    @property
    def is_escalation(self) -> bool:
        return self.purpose == Purpose.TIER and bool(self.line)

    @property
    def is_question(self) -> bool:
        return Purpose(self.purpose).traits.is_question

    @property
    def in_conversation(self) -> tuple[EarlierRun, ...]:
        """Sessions whose messages are in the parent's conversation."""
        return self.line[self._opening :]

    @property
    def in_record(self) -> tuple[EarlierRun, ...]:
        """Sessions that the parent's conversation knows from a handoff only."""
        by_record = self.line[self._opening].continued_by == Session.ContinuedBy.HANDOFF
        return self.line[: self._opening] if by_record else ()

    @property
    def _opening(self) -> int:
        """Index of the session that opened the conversation."""
        resumed = Session.ContinuedBy.RESUME
        opened = [at for at, run in enumerate(self.line) if run.continued_by != resumed]
        return max(opened, default=0)


def prompt_context_of(
    lineage: Lineage,
    tier: Tier,
    continuation: Continuation,
    record: Mapping[str, Any] | None,
    remedies: Sequence[DeclaredRemedy] = (),
) -> PromptContext:
    session = lineage.session
    return PromptContext(
        tier=tier,
        continuation=continuation,
        purpose=_purpose(lineage),
        dry_run=session.policy.dry_run or session.is_plan,
        line=_line(lineage),
        attempts=tuple(earlier_run(run) for run in lineage.attempts if _ended_badly(run)),
        failed_remedies=_failed_remedies_of(session),
        evidence=evidence_of(lineage),
        remedies=tuple((one.usage, one.description) for one in usable(remedies, tier.number)),
        request=session.request,
        told=_told_before(lineage),
        operator=(
            OperatorContext()
            if isinstance(continuation, Resume)
            else operator_context_of(session.cycle)
        ),
        record=json.dumps(record["content"], indent=1, ensure_ascii=False) if record else "",
        token=new_token(),
    )


def _told_before(lineage: Lineage) -> tuple[tuple[str, str], ...]:
    """Names and messages for a session whose CLI takes no messages while it runs."""
    parent = lineage.parent
    is_continued = lineage.session.purpose == Purpose.RECOVERY
    if parent is None or not is_continued or parent.takes_messages:
        return ()
    events = parent.events.filter(source=SessionEvent.Source.SUPERVISOR, kind=EventKind.TOLD)
    payloads = events.order_by("sequence").values_list("payload", flat=True)
    return tuple((as_text(one["by"]), as_text(one["text"])) for one in payloads)


def evidence_of(lineage: Lineage) -> Evidence:
    """Facts of the cycle, and those that the sessions before this one were not told."""
    lines = tuple(map(evidence_line, lineage.session.cycle.facts))
    told = max((run.facts_told or 0 for run in lineage.path[:-1]), default=0)
    return Evidence(all=lines, new=lines[told:])


def evidence_line(fact: Fact) -> str:
    return f"{fact.words}: {fact.output}" if fact.output else fact.words


def _failed_remedies_of(session: Session) -> tuple[str, ...]:
    """Recent remedies that failed, for tiers that change something."""
    if session.tier == LOWEST_TIER:
        return ()
    return tuple(dict.fromkeys(remedies_that_failed(session.cycle)))[-REMEDIES_SHOWN:]


def operator_context_of(cycle: Cycle) -> OperatorContext:
    manifest = manifest_of_cycle(cycle)
    return OperatorContext(
        subject=cycle.subject,
        manifest=manifest.accepted,
        unaccepted_manifest=manifest.unaccepted,
        instructions=cycle.instructions,
        asked_for=cycle.prompt,
    )


def _line(lineage: Lineage) -> tuple[EarlierRun, ...]:
    """Facts of the earlier sessions; tool calls are looked up for the last one only."""
    if lineage.parent is None:
        return ()
    before = (earlier_run(run, seen=[]) for run in lineage.path[:-2])
    return (*before, earlier_run(lineage.parent))


def earlier_run(session: Session, seen: list[Any] | None = None) -> EarlierRun:
    seen = _stream_of(session) if seen is None else seen
    calls = tool_calls(seen)
    return EarlierRun(
        tier=session.tier,
        ended_as=_ended_as(session),
        reported=session.report is not None,
        is_question=session.is_question,
        began=session.report is not None or bool(seen),
        ran_tools=bool(calls),
        cut_calls=_cut_calls(calls),
        continued_by=session.continued_by,
        compacted=session.compactions > 0,
    )


def _purpose(lineage: Lineage) -> str:
    """Purpose of the session; of a retry, that of the first attempt."""
    session, parent = lineage.session, lineage.parent
    if session.purpose != Purpose.RETRY:
        return session.purpose
    first = [run.purpose for run in lineage.attempts if run.purpose != Purpose.RETRY]
    from_below = parent is None or parent.tier < session.tier
    return (first or [Purpose.TIER if from_below else Purpose.FORK])[0]


def _ended_badly(session: Session) -> bool:
    return not session.is_open and session.status not in Session.GOOD_STATUSES


def _stream_of(session: Session) -> list[Any]:
    """Payloads of the stream of a session without a report."""
    if session.report is not None:
        return []
    stream = session.events.filter(source=SessionEvent.Source.STREAM).order_by("sequence")
    return list(stream.values_list("payload", flat=True))


def _ended_as(session: Session) -> str:
    """Status before a manual escalation, from the event that recorded the change."""
    if session.status != Status.ESCALATED or session.report is not None:
        return session.status
    changes = session.events.filter(source=SessionEvent.Source.SUPERVISOR, kind=EventKind.STATUS)
    last = changes.order_by("sequence").values_list("payload", flat=True).last()
    before = last.get("from") if isinstance(last, dict) else ""
    return before if before in Session.FINISHED_STATUSES else Status.COMPLETED


def _cut_calls(calls: list[ToolCall]) -> tuple[str, ...]:
    unanswered = [call for call in calls if not call.is_answered][-CALLS_SHOWN:]
    return tuple(
        one_line(redacted(f"{call.name}: {call.normalised}"[:REDACTED_LENGTH]), CALL_LENGTH)
        for call in unanswered
    )


SHARED_PROMPTS = (
    *("cycle", "dry_run", "live_run", "closing"),
    *("escalation", "handoff", "granted", "by_hand", "report_is_done", "no_report"),
    *("earlier_attempt", "earlier_attempts", "traces", "cut_calls", "failed_remedies"),
    *("unaccepted_manifest", "evidence", "new_facts", "remedies"),
    *("task_escalation", "task_report", "task_continuation", "task_interrupted", "task_findings"),
    *("task_fork", "task_plan", "follow_up", "told"),
)
TASKS = {
    Session.Purpose.TIER: "task_escalation",
    Session.Purpose.REPORT: "task_report",
    Session.Purpose.CONTINUATION: "task_continuation",
    Session.Purpose.RECOVERY: "task_interrupted",
    Session.Purpose.FINDINGS: "task_findings",
    Session.Purpose.FORK: "task_fork",
    Session.Purpose.FOLLOW_UP: "follow_up",
    Session.Purpose.PLAN: "task_plan",
}
INVESTIGATION = "prior investigation"
REMEDIATION = "safe remediation attempts"
PROPOSALS = "proposals"
ENDINGS = {
    Session.Status.FAILED: "failed",
    Session.Status.TIMED_OUT: "ran into its time limit",
    Session.Status.INTERRUPTED: "was interrupted",
    Session.Status.CANCELLED: "was cancelled",
    Session.Status.EXPIRED: "waited too long",
}
# An escalation prompt must stay under 500 tokens (REQ-3): calls and remedies are quoted in the room
# that the rest leaves, and not at all in fewer than `SHORTEST_QUOTE` tokens.
ESCALATION_TOKENS = 495
QUOTED_TOKENS = 300
EVIDENCE_TOKENS = 1_500
REMEDY_TOKENS = 600
SPARE_TOKENS = 2
"""For the empty line, and for rounding."""
ALL_REMEDIES = "`remedy` lists them."
SHORTEST_QUOTE = 5
OLD_NAMES = {"cycle": "round", "handoff": "takeover"}
"""File names of version 0.2, which are still read, with a warning."""
logger = logging.getLogger(__name__)


def prompt_files() -> tuple[str, ...]:
    """Names of the prompt files: the shared ones, and the role of each tier."""
    return (*SHARED_PROMPTS, *(f"role{tier}" for tier in tier_numbers()))


def prompt_path(name: str) -> Path:
    """Path of a prompt file, by its present or its old name."""
    directory = Path(settings.CLAUDEOPS_PROMPTS_DIR)
    path, old = directory / f"{name}.md", directory / f"{OLD_NAMES.get(name, name)}.md"
    return old if old.is_file() and not path.is_file() else path


def prompt_for(
    lineage: Lineage,
    tier: Tier,
    continuation: Continuation,
    record: Mapping[str, Any] | None,
    remedies: Sequence[DeclaredRemedy] = (),
) -> str:
    """Prompt of a session, by its continuation and its purpose."""
    return rendered(prompt_context_of(lineage, tier, continuation, record, remedies))


def rendered(context: PromptContext) -> str:
    match context.continuation:
        case Fresh():
            return _cycle(context)
        case Resume():
            return _escalation(context) if context.is_escalation else _task(context)
        case Handoff() as handoff:
            assert context.record, "a handoff needs the record"
            return _handoff(context, handoff)


def _cycle(context: PromptContext) -> str:
    operator = context.operator
    again = _task(context) if context.line else _before(context)
    return fill(
        "cycle",
        subject=disarmed(operator.subject),
        role=_paragraphs(role(context), _remedies(context, REMEDY_TOKENS)),
        again=_paragraph(again),
        manifest=_manifest(context),
        instructions=disarmed(operator.instructions) or "None: make the usual checks.",
        request=_paragraphs(disarmed(operator.asked_for), _evidence(context))
        or "Nothing in particular.",
    )


def _evidence(context: PromptContext) -> str:
    """Facts that started the cycle, as data; the newest first where they do not all fit."""
    lines, room = [], EVIDENCE_TOKENS
    for line in reversed(context.evidence.all):
        shown = cut_to_tokens(disarmed(line), min(room, EVIDENCE_TOKENS // 3))
        room -= estimated_tokens(shown)
        if room < 0:
            break
        lines.append(shown)
    if not lines:
        return ""
    fence = f"=====[ evidence {context.token} ]====="
    return fill("evidence", fence=fence, facts="\n".join(lines))


def _escalation(context: PromptContext) -> str:
    """The new role, without the findings, which are in the conversation."""

    def with_quotes(room: int) -> str:
        remedies = _remedies(context, room)
        room -= estimated_tokens(remedies)
        return fill(
            "escalation",
            tier=str(context.tier.number),
            tier_name=context.tier.name,
            sent=_sent(context),
            history=history(context),
            before=_paragraph(_before(context, room)),
            role=_paragraphs(role(context), remedies),
            reports=_reports(context),
        )

    return with_quotes(ESCALATION_TOKENS - estimated_tokens(with_quotes(0)))


def _handoff(context: PromptContext, handoff: Handoff) -> str:
    operator = context.operator
    return fill(
        "handoff",
        tier=str(context.tier.number),
        tier_name=context.tier.name,
        previous=_name_of_parent(context),
        ended=_ended(context.parent),
        why=_why(handoff),
        role=_paragraph(
            ""
            if context.is_question
            else _paragraphs(role(context), _remedies(context, REMEDY_TOKENS))
        ),
        task=_task(context),
        manifest=_manifest(context),
        instructions=disarmed(operator.instructions) or "None: make the usual checks.",
        fence=f"=====[ record {context.token} ]=====",
        record=disarmed(context.record),
        closing="" if context.is_question else fill("closing"),
    )


def _manifest(context: PromptContext) -> str:
    """Accepted text, and after it, as data, a text that nobody has accepted."""
    accepted = disarmed(context.operator.manifest) or "There is none."
    unaccepted = disarmed(context.operator.unaccepted_manifest)
    if not unaccepted:
        return accepted
    fence = f"=====[ unaccepted {context.token} ]====="
    return _paragraphs(accepted, fill("unaccepted_manifest", fence=fence, text=unaccepted))


def _task(context: PromptContext) -> str:
    """Text for the purpose of the session."""
    resumes = isinstance(context.continuation, Resume)
    purpose = Session.Purpose(context.purpose)
    # Elsewhere the role says whether this is a dry run.
    dry = _dry_run(context) if resumes and not purpose.traits.looks_back else ""
    return fill(
        TASKS[purpose],
        sent=_sent(context),
        source="this conversation" if resumes else "the record at the end",
        before=_paragraph(_paragraphs(_before(context), dry)),
        request=disarmed(context.request) or "(nothing in particular)",
    )


def _sent(context: PromptContext) -> str:
    """Cause of the escalation: a request of the tier below, or a person."""
    previous = str(context.parent.tier)
    if context.request:
        return fill("by_hand", previous_tier=previous, request=disarmed(context.request))
    return fill("granted", previous_tier=previous)


def history(context: PromptContext) -> str:
    """Sentence about what the conversation holds, by tier."""
    held, recorded = context.in_conversation, context.in_record
    first = min(run.tier for run in (*recorded, *held))
    work = [
        f"{kind} of Tier {tier}"
        for tier in dict.fromkeys(run.tier for run in held)
        for kind in _kinds_of_work(tier, is_first=tier == first, dry_run=context.dry_run)
    ]
    compacted = any(run.compacted for run in held)
    outputs = "the older part as a summary" if compacted else "with every tool output"
    verb = "is" if work == [f"{INVESTIGATION} of Tier {first}"] else "are"
    above = f"The {' and the '.join(work)}, {outputs}, {verb} in this conversation above."
    return " ".join(
        [
            above,
            *(
                f"Of earlier work of Tier {tier} it holds the supervisor's record."
                for tier in dict.fromkeys(run.tier for run in recorded)
            ),
        ]
    )


def _kinds_of_work(tier: int, *, is_first: bool, dry_run: bool) -> list[str]:
    investigation = [INVESTIGATION] if is_first else []
    if tier == LOWEST_TIER:
        return investigation
    return [*investigation, PROPOSALS if dry_run else REMEDIATION]


def _reports(context: PromptContext) -> str:
    """Tell the model not to repeat a report, and whether one is missing."""
    parent = context.parent
    reported = [run.tier for run in context.in_conversation if run.reported]
    done = fill("report_is_done", previous_tier=str(reported[-1])) if reported else ""
    missing = not parent.reported and not parent.is_question
    none = fill("no_report", previous_tier=str(parent.tier), ended=_ended(parent))
    return " ".join(filter(None, [done, none if missing else ""]))


def _before(context: PromptContext, room: int = QUOTED_TOKENS) -> str:
    """Facts from before that are not in the conversation, quoted in a number of tokens."""
    facts = _new_facts(context, room)
    room -= estimated_tokens(facts)
    cut_off = _cut_off(context, room)
    remedies = _failed_remedies(context, room - estimated_tokens(cut_off))
    messages = (told(by, text) for by, text in context.told)
    return _paragraphs(_attempts(context), facts, cut_off, remedies, *messages)


def _new_facts(context: PromptContext, room: int) -> str:
    """Facts that came while the cycle ran; for a handoff all of them. Quoted as data."""
    if isinstance(context.continuation, Fresh):
        return ""
    is_handoff = isinstance(context.continuation, Handoff)
    lines = context.evidence.all if is_handoff else context.evidence.new
    return _quoted("new_facts", "facts", lines[-FACTS_SHOWN:], context, room)


def _attempts(context: PromptContext) -> str:
    """Earlier attempts, which are not in the conversation but may have changed the system."""
    attempts = context.attempts
    if not attempts:
        return ""
    name = "earlier_attempt" if len(attempts) == 1 else "earlier_attempts"
    told = fill(name, count=str(len(attempts)), ended=_ended(attempts[-1]))
    acted = any(attempt.ran_tools for attempt in attempts)
    looks_back = Session.Purpose(context.purpose).traits.looks_back
    return f"{told} {fill('traces')}" if acted and not looks_back else told


def _cut_off(context: PromptContext, room: int) -> str:
    """Tool calls that the parent or the last attempt did not finish, quoted as data."""
    runs = (*context.line[-1:], *context.attempts[-1:])
    calls = [call for run in runs for call in run.cut_calls]
    return _quoted("cut_calls", "calls", calls, context, room)


def _failed_remedies(context: PromptContext, room: int) -> str:
    """Remedies of earlier cycles that did not hold, quoted as data."""
    remedies = context.failed_remedies
    if not remedies or Session.Purpose(context.purpose).traits.looks_back:
        return ""
    return _quoted("failed_remedies", "remedies", remedies, context, room)


def _quoted(
    name: str, placeholder: str, texts: Sequence[str], context: PromptContext, room: int
) -> str:
    """Prompt file around quoted texts that share the room; empty if it is too small for them."""
    fence = f"-- {context.token[:8]} --"
    frame = estimated_tokens(fill(name, fence=fence, **{placeholder: ""})) + len(texts)
    each = (room - frame) // max(1, len(texts))
    if not texts or each < SHORTEST_QUOTE:
        return ""
    shown = [cut_to_tokens(disarmed(one_line(text, CALL_LENGTH)), each) for text in texts]
    return fill(name, fence=fence, **{placeholder: "\n".join(shown)})


def _name_of_parent(context: PromptContext) -> str:
    tier = context.parent.tier
    return f"an earlier session of Tier {tier}" if tier == context.tier.number else f"Tier {tier}"


def _ended(run: EarlierRun) -> str:
    if not run.began:
        return f"{ENDINGS.get(Session.Status(run.ended_as), 'ended')} before it began"
    if run.ended_as in ENDINGS:
        return ENDINGS[Session.Status(run.ended_as)]
    if run.is_question:
        return "answered a question"
    return "ended with a report" if run.reported else "ended without a report"


def _why(handoff: Handoff) -> str:
    """Reason for the handoff; that of a retired conversation may quote output and is replaced."""
    return "it proved unusable" if handoff.guard == Guard.RETIRED else disarmed(handoff.why)


def role(context: PromptContext) -> str:
    return fill(f"role{context.tier.number}", dry_run=_dry_run(context))


def _remedies(context: PromptContext, room: int) -> str:
    """Remedies that the tier may use: with descriptions, as names alone, or as a hint."""
    if not context.remedies or context.dry_run:
        return ""
    described = "\n".join(f"- {usage}: {words}" for usage, words in context.remedies)
    named = "; ".join(usage for usage, _words in context.remedies)
    for listed in (described, named, ALL_REMEDIES):
        text = fill("remedies", remedies=disarmed(listed))
        if estimated_tokens(text) + SPARE_TOKENS <= room:
            return text
    return ""


def _dry_run(context: PromptContext) -> str:
    return fill("dry_run" if context.dry_run else "live_run")


def told(by: str, text: str) -> str:
    """Message for a running session that a person tells something."""
    return fill("told", by=disarmed(by), text=disarmed(text))


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _paragraph(text: str) -> str:
    """The text after an empty line, or nothing."""
    return f"\n\n{text}" if text else ""


def fill(name: str, **values: str) -> str:
    """Fill in the placeholders of a prompt file."""
    path = prompt_path(name)
    if path.stem != name:
        logger.warning("Rename the prompt file %s to %s.md: the old name goes away", path, name)
    try:
        return Template(path.read_text()).substitute(values).strip()
    except OSError as error:
        raise PromptMissing(
            f"The prompt file {path} cannot be read ({error.strerror}). Restore it, or correct "
            "CLAUDEOPS_PROMPTS_DIR."
        ) from error
    except (KeyError, ValueError) as error:
        raise PromptMissing(
            f"The prompt file {path} has an unknown placeholder: {error}."
        ) from error
