"""Plans one session and puts in place what it needs, before its process starts.

`prepare` looks up the facts, builds the `RunPlan` and stores it. It raises `CannotRun`, with
advice, where something is missing.
"""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent.binary import (
    OF_TERMINAL,
    ClaudeBinary,
    RunRequest,
    build_argv,
    cli_environment,
    conversation_id,
    find_binary,
    fingerprint_of,
    has_credentials,
    login_from,
    no_credentials,
)
from escalation.agent.process import Traces
from escalation.agent.stream import COST_STEP
from escalation.command_policy.grants import grants_for
from escalation.errors import CannotRun, RecordTooThin, WhyNot
from escalation.report import REPORT_SCHEMA_JSON
from escalation.resume import handoff, transcripts
from escalation.resume.facts import decide_continuation, directory_identity
from escalation.resume.transcripts import TranscriptState
from escalation.run import limits_file
from escalation.run.cost import expected_unit_price
from escalation.run.prompts import prompt_for
from escalation.run.recorder import Recorder, persistently
from escalation.run.remedies import declared_remedies
from escalation.sandbox.api_proxy import Spending
from escalation.sandbox.layout import why_unreachable
from escalation.sandbox.setup import SandboxRequest, safe_path, sandbox_in_force, sandbox_or_refusal
from escalation.sandbox.telemetry_receiver import TELEMETRY_NAME, CliTrace
from escalation.supervisor.successors import Lineage, begun, lacks_approval
from escalation.tiers import Tier, dry_run_sandbox, get_tier, question_sandbox
from sessions_app.costs.budgets import Budget, Spent, first_spent, least_left
from sessions_app.costs.spending import budgets_of_session
from sessions_app.history.resume import Continuation, Fresh, Guard, Handoff, Resume
from sessions_app.models import Conversation, Cycle, Session, Watch
from sessions_app.models.autonomy import refusal
from sessions_app.models.session import EventKind
from sessions_app.models.telemetry import traceparent
from sessions_app.models.watch import LIMITS_NAME, MANIFEST_NAME, objection_here
from sessions_app.redaction.redact import redacted_data
from sessions_app.text import exact_money
from sessions_app.tiers import LOWEST_TIER

REDACTED_FIELDS = ("prompt", "argv", "continued_why", "handoff")
"""Fields that are stored redacted; the CLI gets the original."""
SMALLEST_BUDGET = Decimal("0.01")
CONTINUED_BY = {
    Fresh: Session.ContinuedBy.FRESH,
    Resume: Session.ContinuedBy.RESUME,
    Handoff: Session.ContinuedBy.HANDOFF,
}


class RunBudget:
    """Limits what one session may spend, between two of its API requests.

    The session's own budget is fixed at the start. The budgets that it shares with its cycle, its
    watch and the installation are renewed at each heartbeat, because other sessions spend too.
    """

    def __init__(
        self, *, price: Decimal | None, own: Decimal, shared: Iterable[Budget] = ()
    ) -> None:
        """`shared` must not include what this session itself has spent."""
        self._price = price
        self._own = own
        self._shared = tuple(shared)

    @property
    def left(self) -> Decimal:
        """Amount that is passed to the CLI at the start."""
        shared = least_left(self._shared)
        return self._own if shared is None else min(self._own, shared)

    def renew(self, shared: Iterable[Budget]) -> None:
        """Replace the shared budgets. The API proxy's threads see the old or the new tuple."""
        self._shared = tuple(shared)

    def spent(self, spending: Spending) -> Decimal | None:
        """None while no session of the model has reported a cost: then the price is unknown."""
        if self._price is None:
            return None
        return (spending.tokens.weighted * self._price).quantize(COST_STEP)

    def objection(self, spending: Spending) -> str:
        """Reason to refuse further API requests, or an empty string."""
        spent = self.spent(spending) or Decimal(0)
        if spent and spent >= self._own:
            own = exact_money(self._own)
            return f"The session's budget of {own} is spent. Raise it if it should spend more."
        added = Spent(total=spent, guessed=spent)
        if over := first_spent(budget.after(added) for budget in self._shared):
            return over.refusal[:1].upper() + over.refusal[1:]
        return ""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPlan:
    """Everything that a session will be, decided before anything is started."""

    tier: Tier
    budget: RunBudget
    argv: list[str]
    environment: Mapping[str, str]
    """Environment without the address and key of the API, which the sandbox adds."""
    sandbox: SandboxRequest
    workdir: Path
    prompt: str
    takes_messages: bool
    """The CLI can be told something while it runs."""
    traces: Traces
    session_id: str
    """Id that the conversation will have."""
    stored: Mapping[str, Any]
    """Fields of the session that are stored before the process starts."""
    announcement: str


def prepare(lineage: Lineage, recorder: Recorder, run_environment: Mapping[str, str]) -> RunPlan:
    """Plan the session, put in place what the plan needs, and store it."""
    session = lineage.session
    _lower_limits(session.cycle, recorder)
    _require_permission(lineage)
    tier = effective_tier(session)
    budget = _budget(lineage, tier)
    _require_workdir(session)
    binary = find_binary()
    try:
        fingerprint = fingerprint_of(Path(binary.path))
    except OSError as error:
        raise CannotRun(
            f"{binary.path} cannot be started: {error.strerror}. Check CLAUDEOPS_CLAUDE_BIN.",
            WhyNot.CLI,
        ) from error
    config_directory = _made(config_directory_of(session))
    _made(run_directory_of(session))
    traces = traces_of(session, mark=f"session-{session.pk}-{uuid.uuid4().hex}")
    around = {**os.environ, "PATH": _path_for(session), **run_environment}
    sandbox = _sandbox(lineage, tier, around, traces, budget)
    continuation, facts = _continuation(lineage, tier, binary)
    record = _record(lineage, continuation, recorder)
    if session.is_interactive and not isinstance(continuation, Resume):
        raise CannotRun(
            f"The conversation cannot be resumed: {continuation.why}.", WhyNot.CONVERSATION
        )
    session.cycle.refresh_from_db(fields=["evidence"])
    # In a terminal the person says what to do.
    prompt = (
        ""
        if session.is_interactive
        else (prompt_for(lineage, tier, continuation, record, sandbox.remedies))
    )
    _warn_of_manifest(session, continuation, recorder)
    request = RunRequest(
        tier=tier,
        session_id=str(uuid.uuid4()),
        resumes=continuation.session_id if isinstance(continuation, Resume) else None,
        report_schema=REPORT_SCHEMA_JSON if session.expects_report else None,
        max_budget_usd=budget.left,
        is_kept=not session.cycle.ephemeral,
        config_directory=str(config_directory),
        takes_messages=binary.takes_messages and not session.is_interactive,
        is_interactive=session.is_interactive,
    )
    environment = cli_environment(
        around,
        # Empty for every session: files that one leaves there must not be read by the next.
        home=_made(run_directory_of(session) / "home"),
        config_directory=config_directory,
        api_retries=settings.CLAUDEOPS_API_RETRIES,
        also_pass=(*settings.CLAUDEOPS_PASS_ENV, *(OF_TERMINAL if session.is_interactive else ())),
        traces=traces,
    )
    argv, session_id = build_argv(binary, request), conversation_id(binary, request)
    plan = RunPlan(
        tier=tier,
        budget=budget,
        argv=argv,
        environment=environment,
        sandbox=sandbox,
        workdir=Path(session.workdir),
        prompt=prompt,
        takes_messages=request.takes_messages,
        traces=traces,
        session_id=session_id,
        stored={
            "session_id": session_id,
            "prompt": prompt,
            "argv": argv,
            "host": socket.gethostname(),
            "workdir_identity": directory_identity(session.workdir),
            "cli_path": binary.path,
            "cli_version": binary.version,
            "cli_fingerprint": fingerprint,
            # Read now: a conversation that keeps its id includes this session's cost afterwards.
            "baseline_cost_usd": (
                conversation_total(lineage.parent) if isinstance(continuation, Resume) else None
            ),
            "config_dir": str(config_directory),
            "run_mark": traces.mark,
            "sandbox": sandbox_in_force(sandbox),
            "continued_by": CONTINUED_BY[type(continuation)],
            "continued_why": continuation.why,
            "continued_guard": getattr(continuation, "guard", ""),
            "continuation_facts": facts,
            "handoff": record,
            "facts_told": len(session.cycle.evidence),
        },
        announcement=_announcement(tier, binary, continuation),
    )
    persistently(lambda: _store(session, plan))
    return plan


def effective_tier(session: Session) -> Tier:
    """The tier's settings, narrowed by the person's choice and by the session's purpose.

    A choice that exceeds the present settings is cut to them.
    """
    tier = get_tier(session.tier)
    tier = replace(
        tier,
        model=session.model,
        max_turns=min(tier.max_turns, session.max_turns or tier.max_turns),
        max_budget_usd=min(tier.max_budget_usd, session.max_budget_usd or tier.max_budget_usd),
    )
    if (session.policy.dry_run or session.is_plan) and tier.number > LOWEST_TIER:
        tier = dry_run_sandbox(tier, get_tier(LOWEST_TIER))
    return question_sandbox(tier) if session.is_question else tier


def budget_of(lineage: Lineage, tier: Tier) -> Decimal:
    """Budget of the tier, less what earlier sessions of the same tier spent where it is shared."""
    if not lineage.session.traits.spends_tier_budget:
        return tier.max_budget_usd
    return max(SMALLEST_BUDGET, tier.max_budget_usd - lineage.spent_before_usd)


# The directory of one session is in the state directory, which no sandbox shows, and is
# removed when the session is concluded. After a crash it identifies processes and spending.


def run_directory_of(session: Session) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "runs" / f"session-{session.pk}"


def traces_of(session: Session, mark: str) -> Traces:
    return Traces(mark=mark, tool_log=run_directory_of(session) / "tools")


def ledger_of(session: Session) -> Path:
    """File in which the API proxy counts the tokens of each answer."""
    return run_directory_of(session) / "usage.jsonl"


def telemetry_of(session: Session) -> Path:
    """File in which the receiver keeps what the CLI's telemetry says of its cost."""
    return run_directory_of(session) / TELEMETRY_NAME


def cli_spans_directory() -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "spans"


def cli_spans_of(session: Session) -> Path:
    """File with the spans of the CLI's own trace, from the run until they are exported."""
    return cli_spans_directory() / f"session-{session.pk}.jsonl"


def remove_run_directory(session: Session) -> None:
    shutil.rmtree(run_directory_of(session), ignore_errors=True)


def config_directory_of(session: Session) -> Path:
    """One per cycle: its sessions run one after another, and only they share conversations."""
    return Path(settings.CLAUDEOPS_STATE_DIR) / "claude" / f"cycle-{session.cycle_id}"


def conversation_total(parent: Session | None) -> Decimal | None:
    """Total cost of the parent's conversation so far.

    The transcript also knows what a stopped session spent after its last report.
    """
    if parent is None:
        return None
    known = (parent.reported_cost_usd, transcripts.cost_state_total(parent))
    return max((total for total in known if total is not None), default=None)


def _lower_limits(cycle: Cycle, recorder: Recorder) -> None:
    """Lower the limits of a cycle by the file in its directory, when its first session begins."""
    found = limits_file.lower(cycle) if Path(cycle.workdir).is_dir() else None
    if found is None:
        return
    lines, problem = found.lines, found.problem
    fields = {name: getattr(cycle, name) for name in Cycle.LOWERED_FIELDS}
    persistently(lambda: Cycle.objects.filter(pk=cycle.pk).update(**fields))
    said = f": {', '.join(lines)}" if lines else ""
    if problem:
        recorder.note(
            EventKind.WARNING,
            f"{LIMITS_NAME} in the directory is not understood, so this cycle only looks{said}. "
            f"{problem[:1].upper()}{problem[1:]}.",
            "warning",
            lowered=list(lines),
        )
    elif lines:
        recorder.note(
            EventKind.SETTINGS, f"{LIMITS_NAME} in the directory lowers{said}.", lowered=list(lines)
        )


def _require_permission(lineage: Lineage) -> None:
    """Check again: the policy or an approval may have changed since the session was queued."""
    session = lineage.session
    is_restricted = session.tier > LOWEST_TIER and not session.is_question
    if is_restricted and (why := refusal(session.tier, session.current_policy())):
        raise CannotRun(why, WhyNot.POLICY)
    if why := lacks_approval(session, lineage.path):
        raise CannotRun(why, WhyNot.APPROVAL)


def _budget(lineage: Lineage, tier: Tier) -> RunBudget:
    session = lineage.session
    shared = budgets_of_session(session)
    if spent := first_spent(shared):
        cause = WhyNot.CHAIN_BUDGET if spent.period is None else WhyNot.BUDGET
        raise CannotRun(f"The budget is spent: {spent.refusal}", cause)
    return RunBudget(
        price=expected_unit_price(tier.model), own=budget_of(lineage, tier), shared=shared
    )


def _require_workdir(session: Session) -> None:
    workdir = Path(session.workdir)
    if not workdir.is_dir():
        raise CannotRun(
            f"The working directory {workdir} does not exist. Create it, or correct the watch.",
            WhyNot.WORKDIR,
        )
    if not session.is_drill and (objection := objection_here(workdir)):
        raise CannotRun(objection, WhyNot.WORKDIR)
    if sandbox_or_refusal(is_drill=session.is_drill).in_force and (
        closed := why_unreachable(workdir)
    ):
        raise CannotRun(closed, WhyNot.WORKDIR)


def _path_for(session: Session) -> str:
    watch = session.cycle.watch
    grants = grants_for(watch_words=watch.grants if watch else "")
    return safe_path(os.environ.get("PATH", ""), (session.workdir, *grants.writable))


def _sandbox(
    lineage: Lineage,
    tier: Tier,
    run_environment: Mapping[str, str],
    traces: Traces,
    budget: RunBudget,
) -> SandboxRequest:
    session = lineage.session
    login = login_from(run_environment, settings.CLAUDEOPS_PASS_ENV)
    if not has_credentials(login):
        raise CannotRun(no_credentials(), WhyNot.NO_CREDENTIALS)
    watch = session.cycle.watch
    others = Watch.objects.exclude(pk=session.cycle.watch_id or 0).values_list("workdir", flat=True)
    return SandboxRequest(
        tier=tier,
        workdir=Path(session.workdir),
        config_directory=config_directory_of(session),
        run_directory=run_directory_of(session),
        run_environment=run_environment,
        login=login,
        traces=traces,
        trace=CliTrace(
            parent=traceparent(session),
            spans=cli_spans_of(session) if settings.OTEL_TRACES_URL else None,
            keeps_text=settings.CLAUDEOPS_TRACE_CONTENT,
        ),
        watch_grants=session.cycle.grants,
        ask=tuple(dict.fromkeys((*tier.ask, *session.cycle.ask_rules))),
        changes_nothing=not session.traits.may_change or session.current_policy().dry_run,
        other_watches=tuple(map(Path, others)),
        objection=budget.objection,
        stand_ins=(Path(session.workdir) / "bin",) if session.is_drill else (),
        remedies=declared_remedies(watch),
    )


def _continuation(
    lineage: Lineage, tier: Tier, binary: ClaudeBinary
) -> tuple[Continuation, dict[str, Any]]:
    """Decide how the session begins, and restore the parent's transcript where it is missing."""
    session, parent = lineage.session, lineage.parent
    if session.purpose == Session.Purpose.FINDINGS:
        return Fresh(why="started again, because its record was too thin to hand on"), {}
    continuation, facts = decide_continuation(session, tier, binary)
    if not isinstance(continuation, Resume) or parent is None:
        return continuation, facts
    config_directory = config_directory_of(session)
    is_here = transcripts.find_on_disk(parent, config_directory) == TranscriptState.PRESENT
    if is_here or transcripts.restore(parent, config_directory):
        return continuation, facts
    why = "the archived transcript could not be restored here"
    return Handoff(guard=Guard.TRANSCRIPT_GONE, why=why), facts


def _record(
    lineage: Lineage, continuation: Continuation, recorder: Recorder
) -> dict[str, Any] | None:
    """Build the handoff for a session that cannot resume the conversation."""
    parent = lineage.parent
    if parent is not None and handoff.discard(parent):
        recorder.note(
            EventKind.WARNING,
            "A handoff file was there already; it was removed unread.",
            "warning",
        )
    if not isinstance(continuation, Handoff) or parent is None:
        return None
    recorder.note(
        EventKind.FALLBACK, f"The conversation is not resumed: {continuation.why}.", "warning"
    )
    document = handoff.build(lineage.path[:-1])
    asks_for_tier = lineage.session.purpose == Session.Purpose.TIER
    was_asked = parent.purpose == Session.Purpose.FINDINGS
    if asks_for_tier and handoff.is_thin(document) and not was_asked:
        raise RecordTooThin(
            f"The record of Tier {parent.tier} is too thin to hand on: Tier {parent.tier} runs "
            "again first."
        )
    try:
        handoff.write(document, parent)
        return handoff.read_once(parent)
    except (OSError, handoff.HandoffRefused) as error:
        recorder.note(
            EventKind.WARNING,
            f"The handoff file could not be used ({error}): the record itself is handed on.",
            "warning",
        )
        return document


def _warn_of_manifest(session: Session, continuation: Continuation, recorder: Recorder) -> None:
    """Record that the prompt has the accepted manifest, and what the file says now as data."""
    watch = session.cycle.watch
    if watch is None or not watch.manifest_waits or isinstance(continuation, Resume):
        return
    recorder.note(
        EventKind.WARNING,
        f"{MANIFEST_NAME} differs from the accepted text, which stays in force. Accept it on the "
        f"page of the watch, or with `claudeops watch accept {watch.name}`.",
        "warning",
        manifest_waits=True,
    )


def _announcement(tier: Tier, binary: ClaudeBinary, continuation: Continuation) -> str:
    match continuation:
        case Resume(session_id=session_id, why=why):
            how = f"resumes {session_id} ({why})"
        case Handoff(why=why):
            how = f"starts by handoff, because {why}"
        case Fresh(why=why):
            how = f"starts with a fresh conversation ({why})"
    return f"Tier {tier.number} ({tier.model}) {how}. CLI {binary.version}, {binary.source}."


def _store(session: Session, plan: RunPlan) -> None:
    """Store the conversation before the process exists, so that a crash cannot lose it."""
    for field, value in plan.stored.items():
        setattr(session, field, redacted_data(value) if field in REDACTED_FIELDS else value)
    session.save(update_fields=list(plan.stored))
    begun(session)
    if not Conversation.take(plan.session_id, session):
        raise CannotRun(
            f"Another session is using the conversation {plan.session_id}. Wait for it to end.",
            WhyNot.CONVERSATION,
        )


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory
