"""The functions that django-q2 calls, with ids as arguments. Each returns one sentence.

Schedules and queued tasks in the database name these functions, so that a function that is renamed
keeps its old name for one version.
"""

from __future__ import annotations

from django.conf import settings

from escalation.agent.binary import credentials_configured, no_credentials
from escalation.drills import drill
from escalation.errors import CannotRun, CycleActive, OperationRefused
from escalation.incidents import recorder
from escalation.queue import is_turn_of, start_waiting, wait_for_slot
from escalation.queue.broker import with_redacted_failure
from escalation.run import manifest, remedies, runner
from escalation.run.recovery import recover
from escalation.run.runner import stop_on_signals
from escalation.sandbox.proof.proof import prove_if_due
from escalation.supervisor import cycles, verification
from escalation.supervisor.approval_answers import expire_overdue
from escalation.supervisor.budgets import refusal_for
from escalation.worker import housekeeping
from escalation.worker.housekeeping import note_unschedulable
from sessions_app.models import Cycle, PauseSwitch, RateLimit, Session, Watch


@with_redacted_failure
def run_session(session_number: int) -> str:
    session = Session.objects.select_related("cycle__watch").get(pk=session_number)
    if not is_turn_of(session):
        wait_for_slot(session)
        start_waiting()
        return f"Session {session_number} waits: older sessions start first."
    with stop_on_signals(Session.StopCause.WORKER, "the worker was told to stop") as asked_to_stop:
        taken = runner.run(session, asked_to_stop=asked_to_stop)
    if not taken:
        return f"Session {session_number} waits, or was already taken."
    return f"Session {session_number} ended as {session.get_status_display()}."


@with_redacted_failure
def run_remedy(number: int) -> str:
    """Runs a remedy for a person or for Tier 0, and lets its probe prove it."""
    run = remedies.carry_out(number)
    if run is None:
        return f"The run {number} of a remedy was already taken."
    remedies.prove(run)
    remedies.tell(run)
    cycles.after_tier0(run)
    return str(run)


@with_redacted_failure
def wake_drill(number: int) -> str:
    """Plays the probe or the alerts that start a drill."""
    return drill.wake_drill(Cycle.objects.get(pk=number))


@with_redacted_failure
def recover_orphans() -> str:
    recovered = recover()
    for run in remedies.end_lost():
        remedies.tell(run)
        cycles.after_tier0(run)
    expire_overdue()
    start_waiting()
    note_unschedulable()
    return f"{len(recovered)} sessions needed recovery."


@with_redacted_failure
def clean_up() -> str:
    return str(housekeeping.clean())


@with_redacted_failure
def verify_fixes() -> str:
    """Starts the cycles that verify fixes whose waiting time is over."""
    if PauseSwitch.is_on():
        return "Claude Ops is paused: fixes are verified later."
    started = drill.verify_drills()
    if credentials_configured():
        started += verification.verify_due()
    elif verification.due().filter(drill="").exists():
        recorder.note_no_credentials(no_credentials())
    return f"Verification cycles started: {len(started)}."


@with_redacted_failure
def look_at_manifests() -> str:
    return f"Manifests that wait for acceptance: {manifest.note_waiting()}."


@with_redacted_failure
def prove_sandbox() -> str:
    """Proves the sandboxes if the CLI or the kernel has changed since the last proof."""
    try:
        proofs = prove_if_due()
    except CannotRun as error:
        return f"The sandboxes could not be proved: {error}"
    return "; ".join(map(str, proofs)) or "The sandboxes are proved for this CLI and this kernel."


prove_walls = prove_sandbox
"""The name up to version 0.2. Queued tasks may still use it."""


@with_redacted_failure
def start_scheduled_cycle(watch_id: int) -> str:
    watch = Watch.objects.filter(pk=watch_id, enabled=True).first()
    if watch is None:
        return f"Watch {watch_id} is disabled or was removed."
    if PauseSwitch.is_on():
        return f"Watch {watch.name} was skipped: Claude Ops is paused."
    if watch.is_backed_off:
        return (
            f"Watch {watch.name} was skipped: it failed {watch.failures_in_a_row} times in a row "
            f"and waits until {watch.backed_off_until:%Y-%m-%d %H:%M}."
        )
    if why := _beyond_reserve():
        return f"Watch {watch.name} was skipped: {why}."
    if spent := refusal_for(watch):
        return f"Watch {watch.name} was skipped: {spent}"
    if not credentials_configured():
        recorder.note_no_credentials(no_credentials())
        return f"Watch {watch.name} was skipped. {no_credentials()}"
    try:
        cycle = cycles.start(watch, trigger=Cycle.Trigger.SCHEDULE)
    except CycleActive as active:
        return str(active)
    except OperationRefused as refused:
        return f"Watch {watch.name} was skipped. {refused}"
    return f"Cycle {cycle.pk} of {watch.name} was started."


def _beyond_reserve() -> str:
    """Returns why a routine cycle is skipped: the rest of the rate limit is kept for incidents."""
    reserve, use = settings.CLAUDEOPS_RATE_LIMIT_RESERVE, RateLimit.current().fullest
    if reserve is None or use is None or use.share < reserve:
        return ""
    return f"{use} (CLAUDEOPS_RATE_LIMIT_RESERVE is {reserve:.0%})"
