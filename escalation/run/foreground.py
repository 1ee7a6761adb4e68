"""Running a cycle in the foreground: tier after tier, with a line for everything that happens."""

from __future__ import annotations

from collections.abc import Callable

from escalation.next_step.cycles import leave_to_caller
from escalation.run import runner
from escalation.run.admission import objection
from escalation.run.stop import stop_on_signals
from sessions_app.models import Approval, Cycle, Session, SessionEvent
from sessions_app.reading.event_text import describe_event, summary_line


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
    for approval in waiting_for(cycle):
        print_line(
            f"   Tier {approval.session.tier} waits for a person: "
            f"claudeops approval approve {approval.pk}, or on the page Approvals. "
            "Then the worker starts it."
        )
    cycle.refresh_from_db()
    return cycle


def waiting_for(cycle: Cycle) -> list[Approval]:
    waiting = Approval.objects.filter(
        session__cycle=cycle, kind=Approval.Kind.TIER, state=Approval.State.WAITING
    )
    return list(waiting.select_related("session"))


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
