"""Finishes a session: collects its facts, decides what follows, concludes, archives.

The runner, a crash of Claude Ops and the recovery all end here, so a session has the same facts
whichever process saw its end.

A run succeeded if the process exited with 0 and its result line says success and no error
(`judge`). The report is checked separately (`escalation.report`), because a run can be asked for a
missing one.
"""

from __future__ import annotations

import logging
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from datetime import datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.utils import timezone

from escalation.agent.process import Ended, Manner
from escalation.agent.rate_limit import LimitSigns, RateLimitReached, Window, limit_in, windows_in
from escalation.agent.stream import (
    Edit,
    RecordedLine,
    StreamFacts,
    Tokens,
    edits_in,
    is_answer,
    model_of,
)
from escalation.report import checked_report
from escalation.resume import transcripts
from escalation.resume.transcripts import is_torn, own_and_unheard
from escalation.run.command_checks import only_waited
from escalation.run.cost import NOTHING, OwnCost, settled_cost, telemetry_differs, tokens_of
from escalation.run.prepare import (
    SMALLEST_BUDGET,
    effective_tier,
    ledger_of,
    remove_run_directory,
    run_directory_of,
    telemetry_of,
)
from escalation.run.recorder import Recorder, persistently
from escalation.run.searchable import index_run
from escalation.sandbox.api_proxy import ApiLimits, read_ledger
from escalation.sandbox.edited_files import (
    ABSENT,
    FileCopy,
    WrittenFile,
    digest_at,
    digest_of,
    noted_roots,
    read_copies,
    written_files,
)
from escalation.sandbox.telemetry_receiver import CliTelemetry, read_telemetry
from escalation.supervisor.conclude import conclude, decision_after
from escalation.supervisor.decision import (
    AfterInterruption,
    Decision,
    Ending,
    Interruption,
    LimitMet,
    Note,
    after_interruption,
    after_limit,
)
from escalation.supervisor.successors import Lineage
from escalation.tiers import Tier
from sessions_app.credentials import API_KEY
from sessions_app.history.commands import is_dry
from sessions_app.models import (
    Change,
    FileContent,
    RateLimit,
    Session,
    SessionEvent,
    WorkerHeartbeat,
)
from sessions_app.models.installation import moment_text
from sessions_app.models.session import SPOKEN, EventKind, Verdict
from sessions_app.redaction.encryption import encrypt
from sessions_app.redaction.redact import redacted, redacted_data

API_ADVICE = {
    400: "The API refused the request as invalid.",
    401: f"The API refused the key. Check {API_KEY}.",
    403: "The API key may not use this model or feature. Check its permissions.",
    404: "The API does not know this model or address. Check the tier's model and "
    "ANTHROPIC_BASE_URL.",
    413: "The request was too large for the API.",
    429: "The API's rate limit was reached. Wait, or run fewer cycles at once.",
    529: "The API is overloaded. The next cycle will try again.",
}
LIMIT_ADVICE = {
    "error_max_turns": "The run used up its turns. Raise CLAUDEOPS_TIER{tier}_MAX_TURNS, or narrow "
    "what the watch asks for.",
    "error_max_budget_usd": "The run used up its budget. Raise CLAUDEOPS_TIER{tier}_MAX_BUDGET_USD "
    "if it should be allowed to spend more, or the budget that left it so little.",
    "error_max_structured_output_retries": "The model could not write a valid report.",
}
UNREACHABLE = re.compile(
    r"(?i:unable to connect|connection (?:error|refused|reset|timed out))"
    r"|\bECONN|\bENOTFOUND|\bEAI_AGAIN"
)
ERROR_TEXT_LENGTH = 2000


class Judgement(StrEnum):
    WENT_WELL = "went well"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    """A person or the supervisor asked for it."""
    KILLED = "killed"
    """Ended from outside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunVerdict:
    judgement: Judgement
    error: str = ""
    resume_refused: bool = False
    """The CLI did not resume the conversation; nothing was done."""
    conversation_broken: bool = False
    """The API refuses the history of this conversation."""
    turn_limit: bool = False
    budget_spent: bool = False
    """The CLI stopped at its budget."""


def judge(
    facts: StreamFacts,
    ended: Ended,
    *,
    tier: int,
    timeout_seconds: int,
    stderr: str,
    resumed: bool = False,
) -> RunVerdict:
    result = facts.result
    by_fault = ended.stop is not None and ended.stop.by_fault
    says_well = result.get("subtype") == "success" and result.get("is_error") is False
    if says_well and not by_fault:
        return _with_good_result(ended, stderr)
    if cut_short := _cut_short(ended, result, tier, timeout_seconds, stderr):
        return cut_short
    verdict = (
        RunVerdict(judgement=Judgement.FAILED, error=_failure(result, tier, stderr))
        if result
        else _without_result(ended, stderr)
    )
    broken = _breaks_conversation(result, stderr)
    return replace(
        verdict,
        conversation_broken=broken,
        resume_refused=resumed
        and not facts.answered
        and ended.exit_code != 0
        and (broken or not _is_api_failure(result, stderr)),
        turn_limit=result.get("subtype") == "error_max_turns",
        budget_spent=result.get("subtype") == "error_max_budget_usd",
    )


def _cut_short(
    ended: Ended, result: dict[str, Any], tier: int, timeout_seconds: int, stderr: str
) -> RunVerdict | None:
    """Return the verdict on a run that did not end by itself."""
    match ended.manner:
        case Manner.STOPPED:
            if ended.stop and ended.stop.by_fault:
                return RunVerdict(judgement=Judgement.FAILED, error=ended.stop.words)
            words = ended.stop.words if ended.stop else "no reason given"
            return RunVerdict(judgement=Judgement.STOPPED, error=f"Stopped: {words}.")
        case Manner.EXITED if ended.exit_code is not None and ended.exit_code < 0:
            return RunVerdict(
                judgement=Judgement.KILLED,
                error=f"The CLI was killed by signal {-ended.exit_code}. What it did until then is "
                "in the events." + _quoted(stderr),
            )
        case Manner.RUNNER_GONE if not result:
            return RunVerdict(
                judgement=Judgement.KILLED,
                error="The process that ran this session was ended from outside." + _quoted(stderr),
            )
        case Manner.CRASHED:
            return RunVerdict(judgement=Judgement.FAILED, error=ended.why)
        case Manner.ABANDONED:
            return RunVerdict(judgement=Judgement.STOPPED, error=ended.why)
        case Manner.SILENT:
            return RunVerdict(
                judgement=Judgement.TIMED_OUT,
                error=f"The run had no output for {ended.silent_seconds:.0f} s and was stopped. "
                "Raise CLAUDEOPS_IDLE_TIMEOUT, or CLAUDEOPS_TOOL_IDLE_TIMEOUT for commands that "
                "take longer." + _quoted(stderr),
            )
        case Manner.TIMED_OUT:
            return RunVerdict(
                judgement=Judgement.TIMED_OUT,
                error=f"The run was stopped at its limit of {timeout_seconds} s. "
                f"Raise CLAUDEOPS_TIER{tier}_TIMEOUT if it needs longer." + _quoted(stderr),
            )
    return None


def _with_good_result(ended: Ended, stderr: str) -> RunVerdict:
    """Accept a good result unless the process exited by itself with another code than 0."""
    if ended.manner == Manner.EXITED and ended.exit_code != 0:
        return RunVerdict(
            judgement=Judgement.FAILED,
            error=f"The CLI reported success but exited with code {ended.exit_code}."
            + _quoted(stderr),
        )
    return RunVerdict(judgement=Judgement.WENT_WELL)


def _without_result(ended: Ended, stderr: str) -> RunVerdict:
    return RunVerdict(
        judgement=Judgement.FAILED,
        error=f"The CLI exited with code {ended.exit_code} without a result. What it did until "
        "then is in the events." + _quoted(stderr),
    )


def _breaks_conversation(result: dict[str, Any], stderr: str) -> bool:
    detail = _detail(result, stderr)
    return (
        result.get("terminal_reason") == "prompt_too_long"
        or "prompt is too long" in detail.lower()
        or _api_status(result, detail) == 400
    )


def _is_api_failure(result: dict[str, Any], stderr: str) -> bool:
    """Return whether the API failed, which says nothing about the conversation."""
    detail = _detail(result, stderr)
    return bool(_api_status(result, detail)) or _is_unreachable(detail)


def _is_unreachable(detail: str) -> bool:
    return bool(UNREACHABLE.search(detail))


def _detail(result: dict[str, Any], stderr: str) -> str:
    said = result.get("result")
    return said if isinstance(said, str) and said else _listed(result.get("errors")) or stderr


def _failure(result: dict[str, Any], tier: int, stderr: str) -> str:
    detail = _detail(result, stderr)
    subtype = str(result.get("subtype"))
    if advice := LIMIT_ADVICE.get(subtype):
        return advice.format(tier=tier) + _quoted(detail)
    status = _api_status(result, detail)
    if status:
        advice = API_ADVICE.get(status, f"The API failed with status {status}.")
        return advice + _quoted(detail)
    if _is_unreachable(detail):
        return "The API cannot be reached. Check the network and ANTHROPIC_BASE_URL." + _quoted(
            detail
        )
    return f"The CLI ended in an error ({subtype})." + _quoted(detail)


def _api_status(result: dict[str, Any], detail: str) -> int:
    stated = result.get("api_error_status")
    if isinstance(stated, int) and not isinstance(stated, bool):
        return stated
    found = re.search(r"API Error:? \(?(\d{3})\b", detail)
    return int(found[1]) if found else 0


def _listed(errors: Any) -> str:
    return "; ".join(str(error) for error in errors) if isinstance(errors, list) else ""


def _quoted(text: str) -> str:
    """Redact before cutting: half a secret would not be recognized."""
    cut = redacted(text.strip())[:ERROR_TEXT_LENGTH]
    return f" Output: {cut}" if cut else ""


StopCause, Status = Session.StopCause, Session.Status

STATUS_OF = {
    Judgement.WENT_WELL: Status.COMPLETED,
    Judgement.FAILED: Status.FAILED,
    Judgement.TIMED_OUT: Status.TIMED_OUT,
    Judgement.STOPPED: Status.INTERRUPTED,
    Judgement.KILLED: Status.INTERRUPTED,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RepeatLimits:
    """Limits of how often one tier may be started again."""

    continuations: int
    interruptions: int
    limit_waits: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Facts about a session that are not in its stream."""

    stderr: str = ""
    first_line_at: datetime | None = None
    last_line_at: datetime | None = None
    duration_ms: int | None = None
    context_tokens: int = 0
    """Count from the transcript, which also holds the size of the last answer."""
    rate_limit: RateLimitReached | None = None
    windows: tuple[Window, ...] = ()
    only_waited: bool = False
    """The tool that was running only waited for an approval."""


def ending_of(
    lineage: Lineage,
    tier: Tier,
    facts: StreamFacts,
    ended: Ended,
    seen: Seen,
    cost: OwnCost,
    tokens: Tokens,
    limits: RepeatLimits,
) -> Ending:
    """Build the ending of a session whose process was started. Pure."""
    session = lineage.session
    verdict = judge(
        facts,
        ended,
        tier=tier.number,
        timeout_seconds=tier.timeout_seconds,
        stderr=seen.stderr,
        resumed=session.resumed,
    )
    limit = seen.rate_limit if _failed_by_itself(verdict, ended) else None
    if limit is not None:
        verdict = _cut_by_limit(limit)
    if session.is_interactive:
        verdict, limit = _in_terminal(verdict, ended), None
    report, problem = checked_report(facts.structured_output)
    if problem:
        # The problem quotes the report: it is computed again from the redacted report.
        problem = checked_report(redacted_data(facts.structured_output))[1] or redacted(problem)
    return Ending(
        tier=session.tier,
        status=STATUS_OF[verdict.judgement],
        error=verdict.error,
        report=report,
        report_problem=problem,
        session_id=facts.session_id,
        answered=facts.answered,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=lineage.tier_that_asked,
        is_question=session.is_question,
        is_plan=session.is_plan,
        attached_by=_attached_by(session),
        resume_refused=verdict.resume_refused,
        turn_limit=verdict.turn_limit,
        may_continue=_may_continue(lineage, tier, cost, limits),
        stopped_by=_stopped_by(verdict, ended),
        after_interruption=_after_limit(lineage, facts, limit, limits)
        or _after_interruption(lineage, facts, ended, verdict, seen, limits),
        rate_limit=limit,
        windows=seen.windows,
        conversation_broken=_broken(verdict, facts),
        stored={
            **_spent(cost, tokens),
            **_reported(facts),
            "context_tokens": max(facts.context_tokens, seen.context_tokens),
            "session_id": facts.session_id,
            "exit_code": ended.exit_code,
            "stop_cause": StopCause.RATE_LIMIT if limit else _stop_cause(verdict, ended),
            "duration_ms": seen.duration_ms,
            "first_activity_at": seen.first_line_at,
            "last_activity_at": seen.last_line_at or session.started_at,
            "report": report,
            "error": verdict.error,
        },
        notes=tuple(_notes(session, facts, ended)),
    )


def ending_without_facts(
    lineage: Lineage,
    error: str,
    status: str,
    *,
    answered: bool = False,
    record_too_thin: bool = False,
    why_not: str = "",
    was_started: bool = False,
) -> Ending:
    """Build the ending of a session whose process was not started or left no facts."""
    cost = {} if was_started else _spent(NOTHING, Tokens())
    session = lineage.session
    return Ending(
        tier=session.tier,
        status=status,
        error=error,
        answered=answered,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=lineage.tier_that_asked,
        is_question=session.is_question,
        is_plan=session.is_plan,
        attached_by=_attached_by(session),
        record_too_thin=record_too_thin,
        why_not=why_not,
        stored=cost if record_too_thin else {**cost, "error": error},
    )


def _in_terminal(verdict: RunVerdict, ended: Ended) -> RunVerdict:
    """Judge a conversation in a terminal: it has no result, and ends when the person leaves it."""
    left = ended.manner == Manner.EXITED and ended.exit_code == 0
    closed = ended.stop is not None and ended.stop.cause == StopCause.FOREGROUND
    if left or closed:
        return RunVerdict(judgement=Judgement.WENT_WELL)
    return RunVerdict(judgement=verdict.judgement, error=verdict.error)


def _attached_by(session: Session) -> str:
    """Return the person who holds the conversation; empty if it is not in a terminal."""
    if not session.is_interactive:
        return ""
    return session.requested_by.get_username() if session.requested_by else "a removed account"


def _spent(cost: OwnCost, tokens: Tokens) -> dict[str, Any]:
    return {
        "cost_usd": cost.cost_usd,
        "reported_cost_usd": cost.reported_cost_usd,
        "baseline_cost_usd": cost.baseline_cost_usd,
        "estimated_cost_usd": cost.estimated_cost_usd,
        "cost_basis": cost.basis,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_creation_tokens": tokens.cache_creation,
    }


def _reported(facts: StreamFacts) -> dict[str, Any]:
    """Fields that the stream reports."""
    return {
        "model_used": facts.model,
        "context_window": facts.context_window,
        "compactions": facts.compactions,
        "turns": facts.turns,
        "messages": facts.messages,
        "stop_reason": str(facts.result.get("stop_reason") or ""),
        "terminal_reason": str(facts.result.get("terminal_reason") or ""),
        "result": facts.result_text,
    }


def _broken(verdict: RunVerdict, facts: StreamFacts) -> str:
    if facts.writes_lost:
        return "its transcript is incomplete: the CLI was killed, or its disk was full"
    return verdict.error if verdict.conversation_broken else ""


def _may_continue(lineage: Lineage, tier: Tier, cost: OwnCost, limits: RepeatLimits) -> bool:
    spent = cost.cost_usd or cost.estimated_cost_usd or Decimal(0)
    left = tier.max_budget_usd - lineage.spent_before_usd - spent
    return lineage.continuations < limits.continuations and left > SMALLEST_BUDGET


def _after_interruption(
    lineage: Lineage,
    facts: StreamFacts,
    ended: Ended,
    verdict: RunVerdict,
    seen: Seen,
    limits: RepeatLimits,
) -> AfterInterruption | None:
    # A worker that shuts down wants its sessions to continue under the next worker, and a message
    # of a person reaches the session that continues.
    is_told = ended.stop is not None and ended.stop.cause == StopCause.TOLD
    stopped_for_us = is_told or (ended.stop is not None and ended.stop.cause == StopCause.WORKER)
    was_stopped = verdict.judgement == Judgement.STOPPED and stopped_for_us
    if not was_stopped and verdict.judgement != Judgement.KILLED:
        return None
    session = lineage.session
    return after_interruption(
        Interruption(
            tier=session.tier,
            tool_was_running=bool(facts.open_tools | facts.cut_tools) and not seen.only_waited,
            can_be_continued=bool(facts.session_id),
            answered=facts.answered,
            interruptions=lineage.interruptions - is_told,
            started_again=lineage.started_again,
            is_question=session.is_question,
        ),
        limit=limits.interruptions,
    )


def _failed_by_itself(verdict: RunVerdict, ended: Ended) -> bool:
    """Return whether the session failed without a stop, so that a rate limit may be the cause."""
    by_itself = ended.manner in (Manner.EXITED, Manner.RUNNER_GONE) and ended.stop is None
    return by_itself and verdict.judgement == Judgement.FAILED


def _cut_by_limit(limit: RateLimitReached) -> RunVerdict:
    return RunVerdict(
        judgement=Judgement.STOPPED,
        error=f"The rate limit was reached. The API said: {limit.words.rstrip('.')}.",
    )


def _after_limit(
    lineage: Lineage, facts: StreamFacts, limit: RateLimitReached | None, limits: RepeatLimits
) -> AfterInterruption | None:
    if limit is None:
        return None
    session = lineage.session
    return after_limit(
        LimitMet(
            tier=session.tier,
            until=moment_text(limit.until),
            can_be_continued=bool(facts.session_id),
            answered=facts.answered,
            times=lineage.limits_met,
            is_question=session.is_question,
        ),
        most=limits.limit_waits,
    )


def _stop_cause(verdict: RunVerdict, ended: Ended) -> str:
    if verdict.judgement == Judgement.TIMED_OUT:
        return StopCause.SILENCE if ended.silent_seconds else StopCause.TIME_LIMIT
    if verdict.budget_spent and ended.stop is None:
        return StopCause.BUDGET
    return ended.stop.cause if ended.stop else ""


def _stopped_by(verdict: RunVerdict, ended: Ended) -> str:
    stop = ended.stop
    by_person = stop is not None and stop.cause == StopCause.PERSON
    return stop.words if stop and by_person and verdict.judgement == Judgement.STOPPED else ""


def _notes(session: Session, facts: StreamFacts, ended: Ended) -> list[Note]:
    notes = []
    if ended.left_running:
        left = f"Tools left {ended.left_running} processes running."
        notes.append(Note(EventKind.WARNING, left, "warning"))
    if named := _id_warning(session, facts):
        notes.append(Note(EventKind.WARNING, named, "warning"))
    if facts.writes_lost:
        torn = "The transcript is incomplete: the next session gets a handoff."
        notes.append(Note(EventKind.WARNING, torn, "warning"))
    if facts.compactions:
        compacted = (
            f"The CLI compacted the conversation {facts.compactions} times: it no longer holds the "
            "earlier tool outputs, which are kept here."
        )
        notes.append(Note(EventKind.COMPACTION, compacted, "warning"))
    return notes


def _id_warning(session: Session, facts: StreamFacts) -> str:
    """Warn about an id that differs (REQ-1): only an id that the CLI reported can be resumed."""
    nothing_said = session.is_interactive and not facts.answered
    if facts.session_id == session.session_id or nothing_said:
        return ""
    if facts.session_id:
        return (
            f"The CLI reported the conversation {facts.session_id} instead of {session.session_id}."
        )
    return (
        f"The CLI reported no session_id (Tier {session.tier}, model {session.model}, asked for "
        f"{session.session_id}, CLI {session.cli_version}): this conversation cannot be resumed."
    )


logger = logging.getLogger(__name__)

COMMANDS_WROTE = "commands"
"""Takes the place of the id of a call in the changes that commands made to files."""
MOST_WRITTEN = 50


def record_files(session: Session) -> None:
    """Store the edits of a session, and what its commands wrote, as changes.

    An error must not prevent the end of the session.
    """
    try:
        persistently(lambda: _write_files(session))
    except DatabaseError:
        logger.exception("Session %s: could not store its edits", session.pk)


def _write_files(session: Session) -> None:
    edits = edits_in(_spoken(session))
    run_directory = run_directory_of(session)
    copies = {copy.call: copy for copy in read_copies(run_directory)}
    left = _left(list(copies.values()), noted_roots(run_directory))
    rows = [_edit_row(session, edit, copies.get(edit.call), left) for edit in edits]
    edited = {os.path.realpath(Path(session.cycle.workdir) / edit.path) for edit in edits}
    written = [file for file in written_files(run_directory) if file.path not in edited]
    rows += [_file_row(session, number, file) for number, file in enumerate(written[:MOST_WRITTEN])]
    if len(written) > MOST_WRITTEN:
        rows.append(_rest_row(session, len(written) - MOST_WRITTEN))
    Change.objects.bulk_create(rows, ignore_conflicts=True)


def _spoken(session: Session) -> Iterator[RecordedLine]:
    events = session.events.filter(source=SessionEvent.Source.STREAM, kind__in=SPOKEN)
    for event in events.order_by("sequence").only("payload", "created_at").iterator():
        yield RecordedLine(payload=event.payload, at=event.created_at)


def record_denied_edits(session: Session) -> None:
    """Record the edits that a dry run would have made, as denied commands, each once."""
    commands = session.events.filter(kind=EventKind.COMMAND)
    recorded = set(commands.values_list("payload__call", flat=True))
    for edit in edits_in(_spoken(session), denied=True):
        if edit.call not in recorded:
            session.note(
                EventKind.COMMAND,
                "",
                call=edit.call,
                command=redacted(f"{edit.tool} {edit.path}"),
                verdict=Verdict.DENY,
                rule="dry_run",
                reason="Nothing may be changed in a dry run.",
                allowed_from=session.tier,
                diff=redacted(edit.diff),
            )


def _left(copies: Sequence[FileCopy], roots: Sequence[str]) -> dict[str, str]:
    """Return the digest of each edited file after the edit, by its call."""
    left: dict[str, str] = {}
    latest: dict[str, str] = {}
    for copy in reversed(copies):
        left[copy.call] = latest.get(copy.path) or digest_at(Path(copy.path), roots)
        is_absent = copy.before == Change.Before.ABSENT
        latest[copy.path] = ABSENT if is_absent else digest_of(copy.content)
    return left


def _edit_row(
    session: Session, edit: Edit, copy: FileCopy | None, left: Mapping[str, str]
) -> Change:
    row = Change(
        session=session,
        watch_id=session.cycle.watch_id,
        call=edit.call,
        kind=Change.Kind.EDIT,
        action=redacted(edit.action),
        command=redacted(f"{edit.tool} {edit.path}"),
        path=redacted(edit.path),
        diff=redacted(edit.diff),
        at=edit.at,
    )
    # A path that contains a secret is stored without it, and cannot be found again.
    if copy is not None and row.path == edit.path:
        row.before, row.left_digest = copy.before, left.get(edit.call, "")
        if copy.before == Change.Before.KEPT:
            row.before_content = _kept(copy.content)
    return row


def _kept(content: bytes) -> FileContent:
    row, _created = FileContent.objects.get_or_create(
        digest=digest_of(content), defaults={"content": encrypt(zlib.compress(content))}
    )
    return row


def _file_row(session: Session, number: int, file: WrittenFile) -> Change:
    path = redacted(file.path)
    return Change(
        session=session,
        watch_id=session.cycle.watch_id,
        call=COMMANDS_WROTE,
        number=number,
        kind=Change.Kind.FILE,
        action=f"{file.verb} {path}",
        command=f"{file.verb} {path}",
        path=path,
        at=timezone.now(),
    )


def _rest_row(session: Session, count: int) -> Change:
    return Change(
        session=session,
        watch_id=session.cycle.watch_id,
        call=COMMANDS_WROTE,
        number=MOST_WRITTEN,
        kind=Change.Kind.FILE,
        action=f"write {count} more files",
        command=f"write {count} more files",
        at=timezone.now(),
    )


NOTHING_HEARD = ApiLimits()


def finish_run(
    lineage: Lineage,
    recorder: Recorder,
    facts: StreamFacts,
    ended: Ended,
    *,
    duration_ms: int | None,
    api_limits: ApiLimits = NOTHING_HEARD,
) -> Decision:
    """Finish a session whose process was started. Only its own runner knows the API's headers."""
    session = lineage.session
    if not facts.result:
        read_from_transcript(session, recorder, facts)
    if facts.edits_begun or noted_roots(run_directory_of(session)):
        close(session, recorder)
        record_files(session)
    if facts.edits_begun and is_dry(session):
        persistently(lambda: record_denied_edits(session))
    # Not earlier: a CLI that is still alive may write more.
    facts.writes_lost = facts.writes_lost or is_torn(session, facts.tool_ids)
    ledger = ledger_of(session)
    counted = read_ledger(ledger) if ledger.exists() else None
    told = read_telemetry(telemetry_of(session))
    cost = settled_cost(session, facts, counted, told)
    ending = ending_of(
        lineage,
        effective_tier(session),
        facts,
        ended,
        Seen(
            stderr=recorder.stderr,
            first_line_at=recorder.first_line_at,
            last_line_at=recorder.last_line_at,
            duration_ms=duration_ms,
            context_tokens=transcripts.occupancy(session) if facts.answered else 0,
            rate_limit=_rate_limit(facts, api_limits),
            windows=windows_in(facts.rate_limit, api_limits.headers),
            only_waited=only_waited(session, facts.open_tools | facts.cut_tools),
        ),
        cost,
        tokens_of(facts, cost, counted),
        RepeatLimits(
            continuations=settings.CLAUDEOPS_MAX_CONTINUATIONS,
            interruptions=settings.CLAUDEOPS_MAX_INTERRUPTIONS,
            limit_waits=settings.CLAUDEOPS_MAX_RATE_LIMIT_WAITS,
        ),
    )
    stored = {**ending.stored, **_told(cost, told, facts)}
    return finish(session, recorder, replace(ending, stored=stored))


def _told(cost: OwnCost, told: CliTelemetry | None, facts: StreamFacts) -> dict[str, Any]:
    """Return the second count of the run, by the telemetry of its CLI."""
    if told is None or told.is_empty:
        return {}
    return {
        "telemetry_cost_usd": told.cost_usd,
        "telemetry_tokens": sum(astuple(told.tokens)),
        "telemetry_differs": telemetry_differs(cost, told, facts),
    }


def _rate_limit(facts: StreamFacts, api_limits: ApiLimits) -> RateLimitReached | None:
    signs = LimitSigns(
        result=facts.result,
        event=facts.rate_limit,
        status=api_limits.status,
        retry_after=api_limits.retry_after,
        headers=api_limits.headers,
    )
    if not signs.ended_by_limit:
        return None
    return limit_in(signs, timezone.now(), RateLimit.current().times_in_a_row)


def finish(session: Session, recorder: Recorder, ending: Ending) -> Decision:
    """Decide, write all events, conclude, then archive the transcript.

    Every event is stored before the session ends, so a reader of an ended session sees all of it.
    """
    for note in ending.notes:
        recorder.note(note.kind, note.text, note.level)
    if ending.claims_something:
        # The claims are compared with the stored events.
        close(session, recorder)
    decision = decision_after(session, ending)
    failed = "error" if ending.rate_limit is None else "warning"
    recorder.note(EventKind.DECISION, decision.reason, "info" if ending.went_well else failed)
    close(session, recorder)
    # With one host the next tier finds the transcript on disk, so the copy may come after it.
    archive_first = connection.vendor != "sqlite" and WorkerHeartbeat.lately_seen().count() > 1
    if archive_first:
        archive(session, ending.session_id)
    persistently(lambda: _conclude(session, ending, decision))
    if not archive_first:
        archive(session, ending.session_id)
    index_run(session)
    remove_run_directory(session)
    return decision


def _conclude(session: Session, ending: Ending, decision: Decision) -> None:
    """Conclude once, also when the answer to an earlier attempt was lost."""
    stored = Session.objects.filter(
        pk=session.pk, status=session.status, finished_at=session.finished_at
    )
    if session.is_open or not stored.exists():
        conclude(session, ending, decision)


def close(session: Session, recorder: Recorder) -> None:
    """Store the remaining events; an error must not prevent the ending."""
    try:
        recorder.close()
    except Exception:
        logger.exception("Session %s: could not store its last events", session.pk)


def archive(session: Session, session_id: str) -> None:
    """Copy the conversation to the archive, so that any host can continue it."""
    if not session_id:
        return
    session.session_id = session_id
    try:
        transcripts.archive(session)
    except Exception:
        # Housekeeping tries again, and another host falls back to a handoff.
        logger.exception("Session %s: could not archive its transcript", session.pk)


def read_from_transcript(session: Session, recorder: Recorder, facts: StreamFacts) -> None:
    """Add what the CLI's transcript holds beyond the stream of a session without a result."""
    close(session, recorder)
    own, unheard = own_and_unheard(session)
    for entry in unheard:
        recorder.message_from_transcript(entry)
        facts.observe(entry)
    for entry in own:
        facts.learn_usage(entry)
    if session.is_interactive and own:
        # There is no stream that reports the id and the model.
        facts.session_id = session.session_id
        facts.model = next((model_of(entry) for entry in own if is_answer(entry)), "")
