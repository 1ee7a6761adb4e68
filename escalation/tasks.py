"""What the queue calls: ids in, one sentence out."""

from __future__ import annotations

from escalation import queue
from escalation.agent import NO_CREDENTIALS, credentials_configured
from escalation.errors import CycleActive
from escalation.host import cleaning
from escalation.next_step import cycles
from escalation.queue import places
from escalation.recovery.recover import recover
from escalation.run import runner
from escalation.run.stop import stop_on_signals
from sessions_app.models import Cycle, PauseSwitch, Session, Watch


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


def recover_orphans() -> str:
    recovered = recover(enqueue=queue.enqueue)
    places.start_waiting()
    return f"{len(recovered)} sessions needed recovery."


def clean_up() -> str:
    return str(cleaning.clean())


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
    if not credentials_configured():
        return f"Watch {watch.name} was skipped. {NO_CREDENTIALS}"
    try:
        cycle = cycles.start(watch, trigger=Cycle.Trigger.SCHEDULE, enqueue=queue.enqueue)
    except CycleActive as active:
        return str(active)
    return f"Cycle {cycle.pk} of {watch.name} was started."
