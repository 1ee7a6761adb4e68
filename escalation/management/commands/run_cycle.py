"""Runs one cycle of a watch."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Callable
from typing import Any

from django.core.management.base import BaseCommand

from escalation.agent.event_text import EventLines
from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import add_choice_options, choice_in, watch_named
from escalation.management.commands.logs import CallLines, log_for
from escalation.management.output import (
    Refused,
    TerminalCommand,
    add_verbose_option,
    exit_code_of,
    waiting,
)
from escalation.management.session_text import answer_lines, chain_lines
from escalation.queue import leave_to_caller
from escalation.run.runner import run_to_end, waiting_for
from escalation.supervisor import cycles
from escalation.tiers import get_tier
from escalation.worker.schedules import ensure_default_watch
from sessions_app.history.chain import chain_as_data, chain_of, chain_of_cycle
from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.autonomy import refusal
from sessions_app.text import json_text
from sessions_app.tiers import LOWEST_TIER, tier_numbers

PrintLine = Callable[[str], None]


class Command(TerminalCommand):
    help = (
        "Run one cycle of a watch in the foreground. --model, --max-turns and --budget are for its "
        "first session only. Exit code: 0 healthy or fixed, 1 needs a person, 2 could not run."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--watch", default=Watch.DEFAULT_NAME, help="the watch to run")
        parser.add_argument("--prompt", default="", help="what to look at besides the usual")
        parser.add_argument(
            "--tier",
            type=int,
            default=LOWEST_TIER,
            choices=tier_numbers(),
            help="the first tier",
        )
        parser.add_argument(
            "--no-input", action="store_true", help="do not ask before higher tiers"
        )
        parser.add_argument(
            "--fresh", action="store_true", help="higher tiers start a new conversation, by handoff"
        )
        parser.add_argument(
            "--ephemeral",
            action="store_true",
            help="keep no conversation: none is archived, and higher tiers get a handoff",
        )
        add_choice_options(parser, "the first tier")
        parser.add_argument("--queue", action="store_true", help="hand the cycle to the worker")
        add_verbose_option(parser)
        parser.add_argument("--json", action="store_true", help="print the finished chain as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_default_watch()
        watch = watch_named(options["watch"])
        try:
            # Refuse before asking for confirmation.
            choice_in(options).fields(options["tier"])
            self._confirm(watch, options["tier"], asked=not options["no_input"])
            with leave_to_caller(unless=options["queue"]):
                cycle = cycles.start(
                    watch,
                    trigger=Cycle.Trigger.MANUAL,
                    prompt=options["prompt"],
                    tier=options["tier"],
                    force_fresh=options["fresh"],
                    ephemeral=options["ephemeral"],
                    choice=choice_in(options),
                )
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        finish_command(
            self,
            cycle,
            queued=options["queue"],
            as_json=options["json"],
            log=log_for(options, indent="   "),
        )

    def _confirm(self, watch: Watch, number: int, *, asked: bool) -> None:
        """Ask for confirmation of a start above Tier 1."""
        if why := refusal(number, watch.policy):
            raise Refused(RefusalCode.POLICY, why)
        if number == LOWEST_TIER or not asked:
            return
        confirm_or_stop(
            self,
            f"Tier {number} ({get_tier(number).name}) may change {watch.workdir}. Start it? [y/N] ",
        )


def confirm_or_stop(command: BaseCommand, question: str) -> None:
    # On standard error: standard output may be JSON.
    command.stderr.write(question, ending="")
    command.stderr.flush()
    try:
        answer = input()
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        raise Refused(
            RefusalCode.NOT_CONFIRMED, "Nothing was done. Answer y, or give --no-input in a script."
        )


def finish_command(
    command: BaseCommand,
    cycle: Cycle,
    *,
    queued: bool,
    as_json: bool,
    log: EventLines | None = None,
    shown: Session | None = None,
    first: Callable[[PrintLine], None] | None = None,
    and_then: Callable[[PrintLine], Cycle | None] | None = None,
) -> None:
    """Run or queue the cycle, print its chain, and exit with its code or that of `and_then`.

    `first` is called in the foreground before the first session.
    """
    talk = command.stderr if as_json else command.stdout

    if not queued:
        with waiting(command.stderr, "Working") as progress:

            def print_line(line: str) -> None:
                progress.make_room()
                talk.write(line, ending="\n")
                talk.flush()

            if first is not None:
                first(print_line)
            run_to_end(cycle, print_line, log or CallLines(indent="   "))
    chain = chain_of(shown) if shown else chain_of_cycle(cycle)
    if as_json:
        command.stdout.write(json_text(chain_as_data(chain), indent=2))
    elif not queued and not chain.sessions:
        command.stdout.write(f"{cycle}: {cycle.result_text}. {cycle.outcome_reason}")
    elif queued:
        waits = " Its tier waits for an approval." if waiting_for(cycle) else ""
        command.stdout.write(f"Cycle {cycle.pk} of {cycle.subject} is queued.{waits}")
    else:
        command.stdout.write("\n".join(chain_lines(chain)))
        if shown is not None:
            shown.refresh_from_db()
            command.stdout.write("\n".join(answer_lines(shown)))
    if not queued:
        later = (and_then(print_line) if and_then else None) or cycle
        code = exit_code_of(
            later,
            waits_for_person=bool(waiting_for(later)),
            branch_outcome=_branch_outcome(shown) if shown and shown.in_branch else "",
        )
        sys.exit(code)


def _branch_outcome(session: Session) -> str:
    """Return the outcome of a branch. A session that could not start is repeated by another."""
    begun = Session.objects.filter(cycle=session.cycle_id, pk__gte=session.pk)
    return begun.exclude(branch_outcome="").values_list("branch_outcome", flat=True).last() or ""
