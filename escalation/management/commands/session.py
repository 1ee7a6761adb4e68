"""Ask, try another way, try again or escalate, from a terminal."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from escalation import queue
from escalation.errors import OperationRefused
from escalation.management.commands.run_cycle import confirm_or_stop, finish_command
from escalation.next_step import by_person, cycles
from escalation.run.foreground import COULD_NOT_RUN_EXIT
from sessions_app.models import Session

VERBS = {
    "stop": "stop a running session",
    "follow_up": "ask a question in the same conversation, with reading tools only",
    "fork": "try another approach from where the session ended",
    "retry": "run a tier that did not end well again, from its parent's state",
    "escalate": "send the findings on to the next tier, with a reason",
}


class Command(BaseCommand):
    help = (
        "Stop a running session, or continue from a finished one: follow up, fork, retry, escalate."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, meaning in VERBS.items():
            sub = verbs.add_parser(verb, help=meaning)
            sub.add_argument("id", type=int)
            if verb not in {"retry", "stop"}:
                sub.add_argument("text", help="the question, the approach or the reason")
            if verb in {"retry", "escalate"}:
                sub.add_argument("--fresh", action="store_true", help="a new conversation")
            sub.add_argument(
                "--no-input", action="store_true", help="do not ask before Tier 2 or 3"
            )
            sub.add_argument("--queue", action="store_true", help="hand the run to the worker")
            sub.add_argument("--json", action="store_true", help="print the chain as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        session = Session.objects.select_related("cycle__watch").filter(pk=options["id"]).first()
        if session is None:
            raise CommandError(f"There is no session {options['id']}.", returncode=2)
        if options["verb"] == "stop":
            return self._stop(session)
        try:
            self._confirm(session, options)
            created = self._operate(session, options)
        except OperationRefused as refused:
            raise CommandError(str(refused), returncode=COULD_NOT_RUN_EXIT) from refused
        finish_command(
            self, created.cycle, queued=options["queue"], as_json=options["json"], shown=created
        )

    def _stop(self, session: Session) -> None:
        if not by_person.stop(session, by="the command line"):
            raise CommandError(f"Session {session.pk} is not running.", returncode=2)
        self.stdout.write(f"Session {session.pk} is being stopped.")

    def _operate(self, session: Session, options: dict[str, Any]) -> Session:
        enqueue = queue.enqueue if options["queue"] else cycles.leave_to_caller
        match options["verb"]:
            case "follow_up":
                return by_person.follow_up(session, options["text"], enqueue=enqueue)
            case "fork":
                return by_person.fork(session, options["text"], enqueue=enqueue)
            case "retry":
                return by_person.retry(session, enqueue=enqueue, force_fresh=options["fresh"])
        return by_person.escalate(
            session, options["text"], enqueue=enqueue, force_fresh=options["fresh"]
        )

    def _confirm(self, session: Session, options: dict[str, Any]) -> None:
        """Refuse first: nobody is asked about what is not going to happen."""
        asked_again = options["verb"] == "retry" and session.purpose == Session.Purpose.FOLLOW_UP
        if options["verb"] == "follow_up" or asked_again:
            return
        tier = session.tier + (options["verb"] == "escalate")
        by_person.require_policy(session, tier)
        if tier > 1 and not options["no_input"]:
            confirm_or_stop(self, f"Tier {tier} may change {session.workdir}. Start it? [y/N] ")
