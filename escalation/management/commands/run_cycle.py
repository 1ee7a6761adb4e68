"""Run one cycle of a watch."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from escalation import queue
from escalation.errors import CycleActive, OperationRefused
from escalation.host.default_watch import ensure_default_watch
from escalation.management.chain_text import chain_lines
from escalation.management.references import watch_named
from escalation.management.refusal import Refused
from escalation.management.run_options import add_choice_options, choice_in
from escalation.next_step import cycles
from escalation.run.foreground import exit_code, run_to_end
from escalation.tiers import HIGHEST_TIER, LOWEST_TIER, get_tier
from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.policy import refusal
from sessions_app.reading.chain import chain_of
from sessions_app.reading.chain_data import chain_as_data


class Command(BaseCommand):
    help = (
        "Run one cycle of a watch in the foreground. --model, --max-turns and --budget are for its "
        "first tier alone. Exit code: 0 healthy or fixed, 1 needs a person, 2 could not run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--watch", default=Watch.DEFAULT_NAME, help="the watch to run")
        parser.add_argument("--prompt", default="", help="what to look at besides the usual round")
        parser.add_argument(
            "--tier",
            type=int,
            default=LOWEST_TIER,
            choices=range(LOWEST_TIER, HIGHEST_TIER + 1),
            help="the tier to begin with",
        )
        parser.add_argument("--no-input", action="store_true", help="do not ask before Tier 2 or 3")
        parser.add_argument(
            "--fresh", action="store_true", help="higher tiers start anew, by handoff"
        )
        parser.add_argument(
            "--ephemeral",
            action="store_true",
            help="keep no conversation: none is archived, and higher tiers get a handoff",
        )
        add_choice_options(parser, "the first tier")
        parser.add_argument("--queue", action="store_true", help="hand the cycle to the worker")
        parser.add_argument("--json", action="store_true", help="print the finished chain as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_default_watch()
        watch = watch_named(options["watch"])
        try:
            # Refused before anybody is asked: what cannot be done needs no yes.
            choice_in(options).fields(options["tier"])
            self._confirm(watch, options["tier"], asked=not options["no_input"])
            cycle = cycles.start(
                watch,
                trigger=Cycle.Trigger.MANUAL,
                enqueue=queue.enqueue if options["queue"] else cycles.leave_to_caller,
                prompt=options["prompt"],
                tier=options["tier"],
                force_fresh=options["fresh"],
                ephemeral=options["ephemeral"],
                choice=choice_in(options),
            )
        except (CycleActive, OperationRefused) as refused:
            raise Refused(refused) from refused
        finish_command(self, cycle, queued=options["queue"], as_json=options["json"])

    def _confirm(self, watch: Watch, number: int, *, asked: bool) -> None:
        """Starting above Tier 1 skips the observer: a person says yes to that first."""
        if why := refusal(number, watch.policy):
            raise Refused(why)
        if number == LOWEST_TIER or not asked:
            return
        confirm_or_stop(
            self,
            f"Tier {number} ({get_tier(number).name}) may change {watch.workdir}. Start it? [y/N] ",
        )


def confirm_or_stop(command: BaseCommand, question: str) -> None:
    # On stderr, because stdout may be the JSON that a script reads.
    command.stderr.write(question, ending="")
    command.stderr.flush()
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        raise Refused("Nothing was done. Answer y, or give --no-input in a script.")


def finish_command(
    command: BaseCommand,
    cycle: Cycle,
    *,
    queued: bool,
    as_json: bool,
    shown: Session | None = None,
) -> None:
    """Run or announce the cycle, print its chain, and leave with its exit code."""
    # With --json, stdout is the data and nothing else.
    talk = command.stderr if as_json else command.stdout

    def print_line(line: str) -> None:
        talk.write(line, ending="\n")
        talk.flush()

    if not queued:
        run_to_end(cycle, print_line)
    chain = chain_of(shown or cycle.sessions.all()[0])
    if as_json:
        command.stdout.write(json.dumps(chain_as_data(chain), indent=2, ensure_ascii=False))
    elif queued:
        command.stdout.write(f"Cycle {cycle.pk} of {cycle.subject} is queued.")
    else:
        command.stdout.write("\n".join(chain_lines(chain)))
    if not queued:
        sys.exit(exit_code(cycle))
