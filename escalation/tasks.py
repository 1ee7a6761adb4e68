"""What the queue calls: ids in, one sentence out."""

from __future__ import annotations

from django.conf import settings

from escalation import queue
from escalation.agent import NO_CREDENTIALS, credentials_configured
from escalation.errors import CannotRun, CycleActive, OperationRefused
from escalation.host import cleaning
from escalation.host.homeless import note_homeless
from escalation.incidents import book
from escalation.next_step import cycles, verification
from escalation.next_step.approval import expire_overdue
from escalation.policy.budgets import refusal_for
from escalation.queue import places
from escalation.queue.failures import with_masked_failure
from escalation.recovery.recover import recover
from escalation.rehearsal.drills.drill import verify_drills
from escalation.rehearsal.walls.proof import prove_if_due
from escalation.run import runner
from escalation.run.stop import stop_on_signals
from sessions_app.models import AccountClock, Cycle, PauseSwitch, Session, Watch


@with_masked_failure
def run_session(session_number: int) -> str:
    session = Session.objects.select_related("cycle__watch").get(pk=session_number)
    if not places.is_turn_of(session):
        places.wait_for_place(session)
        places.start_waiting()
        return f"Session {session_number} waits: older sessions come first."
    with stop_on_signals(Session.StopCause.WORKER, "the worker was told to stop") as asked_to_stop:
        taken = runner.run(session, enqueue=queue.enqueue, asked_to_stop=asked_to_stop)
    if not taken:
        return f"Session {session_number} waits, or was already taken."
    return f"Session {session_number} ended as {session.get_status_display()}."


@with_masked_failure
def recover_orphans() -> str:
    recovered = recover(enqueue=queue.enqueue)
    expire_overdue()
    places.start_waiting()
    note_homeless()
    return f"{len(recovered)} sessions needed recovery."


@with_masked_failure
def clean_up() -> str:
    return str(cleaning.clean())


@with_masked_failure
def verify_fixes() -> str:
    """Fresh rounds for the fixes that are old enough to be looked at."""
    if PauseSwitch.is_on():
        return "Claude Ops is paused: fixes wait to be looked at."
    started = verify_drills(queue.enqueue)
    if credentials_configured():
        started += verification.verify_due(queue.enqueue)
    elif verification.due().filter(drill="").exists():
        book.note_no_credentials(NO_CREDENTIALS)
    return f"Rounds that look whether a fix holds: {len(started)}."


@with_masked_failure
def prove_walls() -> str:
    """Only where the CLI or the kernel is another than in the last proof."""
    try:
        proofs = prove_if_due()
    except CannotRun as error:
        return f"The walls could not be tried: {error}"
    return "; ".join(map(str, proofs)) or "The walls are proved for this CLI and this kernel."


@with_masked_failure
def start_scheduled_cycle(watch_id: int) -> str:
    watch = Watch.objects.filter(pk=watch_id, enabled=True).first()
    if watch is None:
        return f"Watch {watch_id} is paused or gone."
    if PauseSwitch.is_on():
        return f"Watch {watch.name} was skipped: Claude Ops is paused."
    if watch.is_backed_off:
        return (
            f"Watch {watch.name} was skipped: it failed {watch.failures_in_a_row} times in a row "
            f"and waits until {watch.backed_off_until:%Y-%m-%d %H:%M}."
        )
    if crowded := _beyond_reserve():
        return f"Watch {watch.name} was skipped: {crowded}."
    if spent := refusal_for(watch):
        return f"Watch {watch.name} was skipped: {spent}"
    if not credentials_configured():
        book.note_no_credentials(NO_CREDENTIALS)
        return f"Watch {watch.name} was skipped. {NO_CREDENTIALS}"
    try:
        cycle = cycles.start(watch, trigger=Cycle.Trigger.SCHEDULE, enqueue=queue.enqueue)
    except CycleActive as active:
        return str(active)
    except OperationRefused as refused:
        return f"Watch {watch.name} was skipped. {refused}"
    return f"Cycle {cycle.pk} of {watch.name} was started."


def _beyond_reserve() -> str:
    """Why a routine round gives way: so that an incident still finds room in the account."""
    reserve, use = settings.CLAUDEOPS_LIMIT_RESERVE, AccountClock.current().fullest
    if reserve is None or use is None or use.share < reserve:
        return ""
    return f"{use} (CLAUDEOPS_LIMIT_RESERVE is {reserve:.0%})"
