"""All that a run needs, looked up, put into place and stored before anything is started.

Raises CannotRun, with advice, where something is missing. What the run will be is decided in
`plan`; here are the effects.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.agent import (
    NO_CREDENTIALS,
    ClaudeBinary,
    Traces,
    cli_environment,
    find_binary,
    fingerprint_of,
    has_credentials,
    login_from,
)
from escalation.continuity import findings_file, handoff, transcripts
from escalation.continuity.facts import decide_continuation
from escalation.continuity.guards import Continuation, Fresh, Guard, Handoff, Resume
from escalation.errors import CannotRun, RecordTooThin, WhyNot
from escalation.gate.doors import doors_for
from escalation.next_step.lineage import Lineage
from escalation.next_step.starting import begun, lacks_approval
from escalation.rooms.lookup import why_unreachable
from escalation.run.budget import RunBudget
from escalation.run.cost import last_unit_price
from escalation.run.directory import run_directory_of, traces_of
from escalation.run.effective_tier import effective_tier
from escalation.run.persistence import persistently
from escalation.run.plan import Circumstances, Plan, budget_of, plan_run
from escalation.run.prompts import prompt_for
from escalation.run.recorder import Recorder
from escalation.run.walls import WallsWanted, rooms_or_refusal, safe_path, walls_in_force
from escalation.tiers import LOWEST_TIER, Tier
from sessions_app.models import Conversation, Session, Watch
from sessions_app.models.policy import refusal
from sessions_app.models.workdir import objection_here
from sessions_app.reading.budgets import first_spent
from sessions_app.reading.masking import masked_data
from sessions_app.reading.spending import budgets_of_cycle

TOLD = ("prompt", "argv", "continued_why", "handoff")
"""What is stored masked; the CLI gets it as it is."""


def prepare(lineage: Lineage, recorder: Recorder, surroundings: Mapping[str, str]) -> Plan:
    """The plan, with everything in place that it counts on, and the record in step with it."""
    session = lineage.session
    _require_policy(session)
    if why := lacks_approval(session, lineage.path):
        raise CannotRun(why)
    tier = effective_tier(session)
    budget = _budget(lineage, tier)
    _require_workdir(session)
    binary = find_binary()
    config_directory = _made(config_directory_of(session))
    _made(run_directory_of(session))
    traces = traces_of(session, mark=f"session-{session.pk}-{uuid.uuid4().hex}")
    around = {**os.environ, "PATH": _path_for(session), **surroundings}
    walls = _walls(lineage, tier, around, traces, budget)
    continuation, facts = _continuation(lineage, tier, binary, config_directory)
    record = _record(lineage, continuation, recorder)
    plan = plan_run(
        lineage,
        Circumstances(
            tier=tier,
            budget=budget,
            binary=binary,
            fingerprint=_fingerprint(binary),
            host=socket.gethostname(),
            config_directory=config_directory,
            environment=_environment(session, around, traces),
            walls=walls,
            walls_in_force=walls_in_force(walls),
            traces=traces,
            new_session_id=str(uuid.uuid4()),
            continuation=continuation,
            continuation_facts=facts,
            # Read before the run: afterwards a conversation that keeps its id has grown by it.
            baseline_cost_usd=_baseline(lineage, continuation),
            record=record,
            prompt=prompt_for(lineage, tier, continuation, record, _findings_path(session)),
        ),
    )
    persistently(lambda: _store(session, plan))
    return plan


def config_directory_of(session: Session) -> Path:
    """One for each cycle: its runs come one after another, and only they share conversations."""
    return Path(settings.CLAUDEOPS_STATE_DIR) / "claude" / f"cycle-{session.cycle_id}"


def conversation_total(parent: Session | None) -> Decimal | None:
    """The parent conversation's total so far.

    The transcript knows better than our row when the parent was stopped: what it spent after its
    last report is in there.
    """
    if parent is None:
        return None
    known = (parent.reported_cost_usd, transcripts.cost_state_total(parent))
    return max((total for total in known if total is not None), default=None)


def _require_policy(session: Session) -> None:
    """The policy may have come to forbid the tier since it was queued."""
    if session.tier == LOWEST_TIER or session.is_question:
        return
    if why := refusal(session.tier, session.cycle.current_policy()):
        raise CannotRun(why, WhyNot.POLICY)


def _budget(lineage: Lineage, tier: Tier) -> RunBudget:
    """What is left of all that limits it; nothing is started over one of them."""
    session = lineage.session
    shared = budgets_of_cycle(session.cycle, without=session)
    if spent := first_spent(shared):
        raise CannotRun(f"The budget is spent: {spent.refusal}")
    return RunBudget(price=last_unit_price(tier.model), own=budget_of(lineage, tier), shared=shared)


def _require_workdir(session: Session) -> None:
    workdir = Path(session.workdir)
    if not workdir.is_dir():
        raise CannotRun(
            f"The working directory {workdir} does not exist. Create it, or correct the watch.",
            WhyNot.WORKDIR,
        )
    if not session.is_drill and (objection := objection_here(workdir)):
        raise CannotRun(objection, WhyNot.WORKDIR)
    if rooms_or_refusal().in_force and (closed := why_unreachable(workdir)):
        raise CannotRun(closed, WhyNot.WORKDIR)


def _fingerprint(binary: ClaudeBinary) -> str:
    try:
        return fingerprint_of(Path(binary.path))
    except OSError as error:
        raise CannotRun(
            f"{binary.path} cannot be started: {error.strerror}. Check CLAUDEOPS_CLAUDE_BIN.",
            WhyNot.CLI,
        ) from error


def _environment(
    session: Session, surroundings: Mapping[str, str], traces: Traces
) -> dict[str, str]:
    return cli_environment(
        surroundings,
        # Empty for every run: what one leaves there must not be read by the next.
        home=_made(run_directory_of(session) / "home"),
        config_directory=config_directory_of(session),
        api_retries=settings.CLAUDEOPS_API_RETRIES,
        also_pass=settings.CLAUDEOPS_PASS_ENV,
        traces=traces,
    )


def _path_for(session: Session) -> str:
    watch = session.cycle.watch
    doors = doors_for(session.tier, watch_words=watch.doors if watch else "")
    return safe_path(os.environ.get("PATH", ""), (session.workdir, *doors.writable))


def _walls(
    lineage: Lineage,
    tier: Tier,
    surroundings: Mapping[str, str],
    traces: Traces,
    budget: RunBudget,
) -> WallsWanted:
    session = lineage.session
    login = login_from(surroundings, settings.CLAUDEOPS_PASS_ENV)
    if not has_credentials(login):
        raise CannotRun(NO_CREDENTIALS, WhyNot.NO_CREDENTIALS)
    watch = session.cycle.watch
    others = Watch.objects.exclude(pk=session.cycle.watch_id or 0).values_list("workdir", flat=True)
    return WallsWanted(
        tier=tier,
        workdir=Path(session.workdir),
        config_directory=config_directory_of(session),
        run_directory=run_directory_of(session),
        surroundings=surroundings,
        login=login,
        traces=traces,
        watch_doors=watch.doors if watch else "",
        ask=tuple(dict.fromkeys((*tier.ask, *session.cycle.ask_rules))),
        changes_nothing=session.is_question
        or session.is_plan
        or session.cycle.current_policy().dry_run,
        other_watches=tuple(map(Path, others)),
        objection=budget.objection,
    )


def _continuation(
    lineage: Lineage, tier: Tier, binary: ClaudeBinary, config_directory: Path
) -> tuple[Continuation, dict[str, Any]]:
    session, parent = lineage.session, lineage.parent
    if session.purpose == Session.Purpose.FINDINGS:
        return Fresh(why="invoked again, because its record was too thin to hand on"), {}
    continuation, facts = decide_continuation(session, tier, binary)
    if not isinstance(continuation, Resume) or parent is None:
        return continuation, facts
    if not _has_transcript(parent, config_directory):
        why = "the archived transcript could not be put into place here"
        return Handoff(guard=Guard.TRANSCRIPT_GONE, why=why), facts
    return continuation, facts


def _has_transcript(parent: Session, config_directory: Path) -> bool:
    """The parent ran on another host, or its file was deleted: put the copy into place."""
    found = transcripts.find_on_disk(parent, config_directory)
    if found == transcripts.TranscriptState.PRESENT:
        return True
    return transcripts.restore(parent, config_directory)


def _baseline(lineage: Lineage, continuation: Continuation) -> Decimal | None:
    resumes = isinstance(continuation, Resume)
    return conversation_total(lineage.parent) if resumes else None


def _record(
    lineage: Lineage, continuation: Continuation, recorder: Recorder
) -> dict[str, Any] | None:
    """What a run is told that cannot have the conversation: built from our own record."""
    parent = lineage.parent
    if parent is not None and handoff.discard(parent):
        recorder.note(
            "warning", "A handoff file lay in place already: it was removed unread.", "warning"
        )
    if not isinstance(continuation, Handoff) or parent is None:
        return None
    recorder.note("fallback", f"Continuity was lost: {continuation.why}.", "warning")
    document = handoff.build(lineage.path[:-1])
    asks_for_tier = lineage.session.purpose == Session.Purpose.TIER
    was_asked = parent.purpose == Session.Purpose.FINDINGS
    if asks_for_tier and handoff.is_thin(document) and not was_asked:
        raise RecordTooThin(
            f"The record of Tier {parent.tier} is too thin to hand on: it is asked to write down "
            "what it found."
        )
    try:
        handoff.write(document, parent)
        return handoff.read_once(parent)
    except (OSError, handoff.HandoffRefused) as error:
        recorder.note(
            "warning", f"No handoff file ({error}): the record itself is handed on.", "warning"
        )
        return document


def _findings_path(session: Session) -> str:
    """Where the run is to write its findings, if it is to write them."""
    return str(findings_file.prepare(session)) if findings_file.wanted_from(session) else ""


def _store(session: Session, plan: Plan) -> None:
    """The record knows the conversation before the process exists: a crash cannot lose it."""
    for field, value in plan.stored.items():
        setattr(session, field, masked_data(value) if field in TOLD else value)
    session.save(update_fields=list(plan.stored))
    begun(session)
    if not Conversation.take(plan.session_id, session):
        raise CannotRun(
            f"Another run is using the conversation {plan.session_id}. Wait for it to end."
        )


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory
