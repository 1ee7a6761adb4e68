"""One session from claim to conclusion: the only place that runs a tier.

1. Claim the queued session; whoever comes second leaves.
2. Prepare: CLI, prompt, directories. What cannot be prepared ends the session with advice.
3. Store id, command line, host and CLI, and only then start the process.
4. Record the stream while it runs; stop on a time limit or on request.
5. Judge the run, check its report, and let the supervisor decide what follows.

Whatever goes wrong on the way, the session ends in a terminal status.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import traceback
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation import supervisor
from escalation.cli.argv import RunRequest, build_argv, conversation_id
from escalation.cli.binary import ClaudeBinary, find_binary
from escalation.cli.environment import NO_CREDENTIALS, cli_environment, has_credentials
from escalation.cli.process import Ended, Watcher, run_process
from escalation.cli.stream import RunFacts
from escalation.cli.verdict import judge
from escalation.continuation import Resume, continuation_from
from escalation.cycles import Enqueue
from escalation.decision import RunEnd
from escalation.drills.drill import drill_surroundings
from escalation.errors import CannotRun
from escalation.prompts import prompt_for
from escalation.recorder import Listener, Recorder
from escalation.report import REPORT_SCHEMA_JSON, checked_report
from escalation.tiers import LOWEST_TIER, Tier, dry_run_walls, get_tier
from sessions_app.models import Session

logger = logging.getLogger(__name__)

STOP_CHECK_SECONDS = 0.5

StopReason = Callable[[], str]
"""Asked about ten times a second; a non-empty answer stops the run."""


def run(
    session: Session,
    *,
    enqueue: Enqueue,
    listener: Listener | None = None,
    stop_reason: StopReason = lambda: "",
) -> bool:
    """Run a queued session to its end. False: it was not ours to run."""
    if not session.claim():
        return False
    recorder = Recorder(session, listener)
    try:
        session.cycle.begin()
        _run_claimed(session, recorder, enqueue, stop_reason)
    except CannotRun as error:
        recorder.note("cannot_run", str(error), "error")
        _conclude_failure(session, recorder, str(error), Session.Status.FAILED, enqueue)
    except BaseException as error:
        # Also SystemExit and KeyboardInterrupt: the queue's timeout and a person's Ctrl-C.
        _conclude_crash(session, recorder, error, enqueue)
        raise
    return True


def _run_claimed(
    session: Session, recorder: Recorder, enqueue: Enqueue, stop_reason: StopReason
) -> None:
    tier = effective_tier(session)
    with drill_surroundings(session) as surroundings:
        preparation = _Preparation(session, tier, surroundings)
        preparation.store()
        recorder.note("started", preparation.announcement)
        facts, ended, duration_ms = _run_cli(session, preparation, recorder, stop_reason)
    _confirm_session_id(session, facts, recorder)
    verdict = judge(
        facts,
        ended,
        tier=tier.number,
        timeout_seconds=tier.timeout_seconds,
        stderr=recorder.stderr,
    )
    report, problem = checked_report(facts.structured_output)
    end = RunEnd(
        tier=tier.number,
        went_well=verdict.went_well,
        error=verdict.error,
        report=report,
        report_problem=problem,
        session_id=session.session_id,
        answered=facts.answered,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=supervisor.tier_that_asked(session),
    )
    stored = {
        **_stored_facts(facts),
        "exit_code": ended.exit_code,
        "duration_ms": duration_ms,
        "report": report,
        "error": verdict.error,
    }
    _conclude(session, recorder, end, verdict.status, stored, enqueue)


def _conclude(
    session: Session,
    recorder: Recorder,
    end: RunEnd,
    status: str,
    facts: dict[str, Any],
    enqueue: Enqueue,
) -> None:
    """Write every event first: who sees the session ended has seen all of it."""
    decision = supervisor.decision_after(session, end)
    recorder.note("decision", decision.reason, "info" if end.went_well else "error")
    try:
        recorder.close()
    except Exception:
        # A true ending is worth more than the last words.
        logger.exception("Session %s: events could not be stored", session.pk)
    supervisor.conclude(session, decision, status=status, facts=facts, enqueue=enqueue)


def effective_tier(session: Session) -> Tier:
    tier = get_tier(session.tier)
    if session.cycle.dry_run and tier.number > LOWEST_TIER:
        return dry_run_walls(tier, get_tier(LOWEST_TIER))
    return tier


class _Preparation:
    """All that a run needs, made before anything is started."""

    def __init__(self, session: Session, tier: Tier, surroundings: dict[str, str]) -> None:
        self._session = session
        self.tier = tier
        self.workdir = Path(session.workdir)
        if not self.workdir.is_dir():
            raise CannotRun(
                f"The working directory {self.workdir} does not exist. Create it, or correct the "
                "watch."
            )
        self.binary: ClaudeBinary = find_binary()
        self.prompt = prompt_for(session, tier)
        parent = session.parent_session
        self.request = RunRequest(
            tier=tier,
            session_id=str(uuid.uuid4()),
            continuation=continuation_from(
                parent.session_id if parent else None, parent.tier if parent else None
            ),
            report_schema=REPORT_SCHEMA_JSON,
        )
        self.argv = build_argv(self.binary, self.request)
        self.config_directory = config_directory(session)
        self.environment = cli_environment(
            {**os.environ, **surroundings},
            home=_made(Path(settings.CLAUDEOPS_STATE_DIR) / "home"),
            config_directory=_made(self.config_directory),
            api_retries=settings.CLAUDEOPS_API_RETRIES,
            also_pass=settings.CLAUDEOPS_PASS_ENV,
        )
        if not has_credentials(self.environment):
            raise CannotRun(NO_CREDENTIALS)

    def store(self) -> None:
        """The record knows the conversation before the process exists: a crash cannot lose it."""
        session = self._session
        session.session_id = conversation_id(self.binary, self.request)
        session.prompt = self.prompt
        session.argv = self.argv
        session.host = socket.gethostname()
        session.cli_path = self.binary.path
        session.cli_version = self.binary.version
        session.config_dir = str(self.config_directory)
        session.save(
            update_fields=[
                "session_id",
                "prompt",
                "argv",
                "host",
                "cli_path",
                "cli_version",
                "config_dir",
            ]
        )

    @property
    def announcement(self) -> str:
        how = "a fresh conversation"
        if isinstance(self.request.continuation, Resume):
            how = f"resuming {self.request.continuation.session_id}"
        return (
            f"Tier {self.tier.number} ({self.tier.model}) starts with {how}, "
            f"CLI {self.binary.version} ({self.binary.source})."
        )


def config_directory(session: Session) -> Path:
    """One for each cycle: its runs come one after another, and only they share conversations."""
    return Path(settings.CLAUDEOPS_STATE_DIR) / "claude" / f"cycle-{session.cycle_id}"


def _made(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    return directory


def _run_cli(
    session: Session, preparation: _Preparation, recorder: Recorder, stop_reason: StopReason
) -> tuple[RunFacts, Ended, int]:
    facts = RunFacts()
    stop_request = _StopRequest(session)

    def on_stdout(line: bytes) -> None:
        parsed = recorder.stream_line(line)
        if not parsed.is_noise:
            facts.observe(parsed.payload)

    def on_tick() -> str:
        recorder.tick()
        return stop_reason() or stop_request.reason()

    began = time.monotonic()
    try:
        ended = run_process(
            preparation.argv,
            environment=preparation.environment,
            cwd=preparation.workdir,
            prompt=preparation.prompt,
            timeout_seconds=preparation.tier.timeout_seconds,
            watcher=Watcher(
                on_stdout=on_stdout,
                on_stderr=recorder.stderr_line,
                has_result=lambda: bool(facts.results),
                on_tick=on_tick,
            ),
        )
    except OSError as error:
        raise CannotRun(
            f"{preparation.binary.path} cannot be started: {error.strerror or error}. "
            "Check CLAUDEOPS_CLAUDE_BIN."
        ) from error
    return facts, ended, int((time.monotonic() - began) * 1000)


class _StopRequest:
    """Looks now and then whether somebody asked this run to stop."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._next_look = time.monotonic() + STOP_CHECK_SECONDS

    def reason(self) -> str:
        if time.monotonic() < self._next_look:
            return ""
        self._next_look = time.monotonic() + STOP_CHECK_SECONDS
        asked = Session.objects.filter(pk=self._session.pk).values_list("stop_requested", flat=True)
        return asked.first() or ""


def _confirm_session_id(session: Session, facts: RunFacts, recorder: Recorder) -> None:
    """REQ-1: only an id that the CLI itself reported can be resumed."""
    if facts.session_id == session.session_id:
        return
    expected, session.session_id = session.session_id, facts.session_id
    session.save(update_fields=["session_id"])
    if facts.session_id:
        recorder.note(
            "warning",
            f"The CLI named the conversation {facts.session_id}, not {expected} as asked.",
            "warning",
        )
        return
    recorder.note(
        "warning",
        f"The CLI reported no session_id (Tier {session.tier}, model {session.model}, asked for "
        f"{expected}, CLI {session.cli_version}): this conversation cannot be resumed.",
        "warning",
    )


def _stored_facts(facts: RunFacts) -> dict[str, Any]:
    tokens = facts.own_tokens
    stop_reason = facts.result.get("terminal_reason") or facts.result.get("stop_reason") or ""
    return {
        "model_used": facts.model[:100],
        "cost_usd": facts.own_cost_usd,
        "reported_cost_usd": facts.reported_cost_usd,
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_tokens": tokens.cache_read,
        "cache_creation_tokens": tokens.cache_creation,
        "context_tokens": facts.context_tokens,
        "context_window": facts.context_window,
        "turns": facts.turns,
        "stop_reason": str(stop_reason)[:100],
        "result": facts.result_text,
    }


def _conclude_failure(
    session: Session, recorder: Recorder, message: str, status: str, enqueue: Enqueue
) -> None:
    end = RunEnd(
        tier=session.tier,
        went_well=False,
        error=message,
        asked_again=session.purpose == Session.Purpose.REPORT,
        asked_for_by_tier=supervisor.tier_that_asked(session),
    )
    _conclude(session, recorder, end, status, {"error": message}, enqueue)


def _conclude_crash(
    session: Session, recorder: Recorder, error: BaseException, enqueue: Enqueue
) -> None:
    session.refresh_from_db()
    if not session.is_open:
        return
    if isinstance(error, Exception):
        logger.exception("Session %s: Claude Ops itself failed", session.pk)
        detail = "".join(traceback.format_exception_only(error)).strip()
        message, status = f"Claude Ops itself failed: {detail}", Session.Status.FAILED
    else:
        message = f"The run was cut off ({type(error).__name__}). Start the cycle again."
        status = Session.Status.INTERRUPTED
    _conclude_failure(session, recorder, message, status, enqueue)
