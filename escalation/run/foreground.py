"""Running a cycle in the foreground: tier after tier, with a line for everything that happens."""

from __future__ import annotations

from collections.abc import Callable

from escalation.next_step.cycles import leave_to_caller
from escalation.run import runner
from escalation.run.admission import objection
from escalation.run.stop import stop_on_signals
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.reading.event_text import describe_event, summary_line

HEALTHY_EXIT, NEEDS_PERSON_EXIT, COULD_NOT_RUN_EXIT = 0, 1, 2


def run_to_end(cycle: Cycle, print_line: Callable[[str], None]) -> Cycle:
    """Run the queued sessions of a cycle until none is left."""
    with stop_on_signals(Session.StopCause.FOREGROUND, "in the foreground") as asked_to_stop:
        while session := next_session(cycle):
            print_line(f"── Session {session.pk}: Tier {session.tier}, {session.model}")
            taken = runner.run(
                session,
                enqueue=leave_to_caller,
                listener=lambda event: print_event(event, print_line),
                asked_to_stop=asked_to_stop,
            )
            if not taken:
                why = objection(session) or "another process has taken it"
                print_line(f"   It does not start now: {why}. It stays queued for the worker.")
                break
    cycle.refresh_from_db()
    return cycle


def next_session(cycle: Cycle) -> Session | None:
    return (
        cycle.sessions.filter(status=Session.Status.QUEUED)
        .select_related("cycle__watch", "parent_session")
        .order_by("pk")
        .first()
    )


def print_event(event: SessionEvent, print_line: Callable[[str], None]) -> None:
    for line in describe_event(event.source, event.kind, event.payload):
        print_line(f"   {summary_line(line)}")


def exit_code(cycle: Cycle) -> int:
    if cycle.outcome in Cycle.GOOD_OUTCOMES:
        return HEALTHY_EXIT
    if cycle.is_active or cycle.outcome == Cycle.Outcome.COULD_NOT_RUN:
        return COULD_NOT_RUN_EXIT
    return NEEDS_PERSON_EXIT
