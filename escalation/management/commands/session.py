"""Lists, shows, stops and continues sessions."""

from __future__ import annotations

import contextlib
import os
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from escalation.agent.process import Terminal
from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import (
    SESSION_HELP,
    account_named,
    add_choice_options,
    add_stretch_options,
    choice_in,
    of_watch,
    session_named,
    terminal_user,
)
from escalation.management.commands.logs import log_for
from escalation.management.commands.run_cycle import confirm_or_stop, finish_command
from escalation.management.output import (
    ExitCode,
    Refused,
    TerminalCommand,
    add_verbose_option,
    write_table,
)
from escalation.management.session_text import (
    HEADINGS,
    attached_line,
    list_row,
    message_lines,
    show_lines,
    stretch_line,
)
from escalation.queue import leave_to_caller
from escalation.run.terminal import attach, require_attachable
from escalation.supervisor import manual
from escalation.supervisor.manual import WAITING, stop_cycle
from sessions_app.archive.messages import messages_of
from sessions_app.history.chain import session_as_data, session_in_full
from sessions_app.models import Approval, Session
from sessions_app.text import json_text
from sessions_app.tiers import LOWEST_TIER

STDIN, STDOUT = 0, 1
SHOWING = {
    "list": "the latest sessions, newest first",
    "show": "all that is known about a session",
    "messages": "the messages of its conversation, as they are stored",
}
STOP = "stop a running session, or cancel one that waits; nothing follows it"
TELL = "tell a running session something; it reads it before its next step"
ATTACH = "talk in the conversation of an ended session, in this terminal"
COMMAND_LINE = "the command line"
GOING_ON = {
    "follow_up": "ask a question in the same conversation, with reading tools only",
    "fork": "try another approach from where the session ended",
    "retry": "run a tier that did not end well again, from its parent's state",
    "escalate": "send the findings on to the next tier, with a reason",
}


class Command(TerminalCommand):
    help = "List and show sessions, stop a running one, or continue from a finished one."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, meaning in SHOWING.items():
            _add_showing(verbs.add_parser(verb, help=meaning), verb)
        verbs.add_parser("stop", help=STOP).add_argument("id", help=SESSION_HELP)
        telling = verbs.add_parser("tell", help=TELL)
        telling.add_argument("id", help=SESSION_HELP)
        telling.add_argument("text", help="what to tell it")
        attaching = verbs.add_parser("attach", help=ATTACH)
        attaching.add_argument("id", help=SESSION_HELP)
        attaching.add_argument("--as", metavar="USER", help="the account that talks")
        attaching.add_argument(
            "--no-input", action="store_true", help="do not ask before higher tiers"
        )
        for verb, meaning in GOING_ON.items():
            _add_going_on(verbs.add_parser(verb, help=meaning), verb)

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list":
                self._list(options)
            case "show":
                self._show(session_named(options["id"]), as_json=options["json"])
            case "messages":
                self._messages(session_named(options["id"]), options)
            case "stop":
                self._stop(session_named(options["id"]))
            case "tell":
                self._tell(session_named(options["id"]), options["text"])
            case "attach":
                self._attach(session_named(options["id"]), options)
            case _:
                self._go_on(session_named(options["id"]), options)

    def _list(self, options: dict[str, Any]) -> None:
        apart = Session.objects.drills() if options["drills"] else Session.objects.real()
        found = apart.for_list().order_by("-pk")
        if options["watch"]:
            found = found.filter(of_watch(options["watch"]))
        if options["status"]:
            found = found.filter(status=options["status"])
        start = options["offset"]
        shown = found[start : start + options["limit"]]
        if options["json"]:
            return self._print_json([session_as_data(session) for session in shown.defer(None)])
        write_table(self, HEADINGS, [list_row(session) for session in shown])
        self.stdout.write(stretch_line(len(shown), found.count(), start, "sessions"))

    def _show(self, session: Session, *, as_json: bool) -> None:
        if as_json:
            return self._print_json(session_in_full(session))
        self.stdout.write("\n".join(show_lines(session)))

    def _messages(self, session: Session, options: dict[str, Any]) -> None:
        stored = messages_of(session)
        shown = stored[options["offset"] : options["offset"] + options["limit"]]
        if options["json"]:
            return self._print_json([asdict(message) for message in shown])
        for message in shown:
            self.stdout.write("\n".join(message_lines(message)))
        self.stdout.write(stretch_line(len(shown), len(stored), options["offset"], "messages"))

    def _stop(self, session: Session) -> None:
        if session.status in WAITING:
            stop_cycle(session.cycle, by=COMMAND_LINE)
            self.stdout.write(f"Session {session.pk} was cancelled: nothing more starts.")
        elif manual.stop(session, by=COMMAND_LINE):
            self.stdout.write(f"Session {session.pk} is being stopped.")
        else:
            raise Refused(
                RefusalCode.SESSION_STATUS,
                f"Session {session.pk} is not running, or is being stopped already.",
            )

    def _tell(self, session: Session, text: str) -> None:
        try:
            said = manual.tell(session, text, by=terminal_user())
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        self.stdout.write(said)

    def _attach(self, session: Session, options: dict[str, Any]) -> None:
        if not (os.isatty(STDIN) and os.isatty(STDOUT)):
            raise Refused(
                RefusalCode.NO_TERMINAL,
                "There is no terminal. Over ssh, ask for one: ssh -t HOST claudeops session attach "
                f"{session.pk}",
            )
        account = account_named(options["as"])
        try:
            require_attachable(session, by=account)
            if session.tier > LOWEST_TIER and not options["no_input"]:
                asked = f"Tier {session.tier} may change {session.workdir}. Start it? [y/N] "
                confirm_or_stop(self, asked)
            created = attach(session, Terminal(STDIN, STDOUT), by=account)
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        with contextlib.suppress(OSError):
            # The connection may be lost.
            self.stdout.write(attached_line(created))
        if created.status != Session.Status.COMPLETED:
            raise SystemExit(ExitCode.PERSON)

    def _go_on(self, session: Session, options: dict[str, Any]) -> None:
        try:
            self._confirm(session, options)
            with leave_to_caller(unless=options["queue"]):
                created = _operate(session, options)
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        finish_command(
            self,
            created.cycle,
            queued=options["queue"],
            as_json=options["json"],
            log=log_for(options, indent="   "),
            shown=created,
        )

    def _confirm(self, session: Session, options: dict[str, Any]) -> None:
        """Ask for confirmation, after everything that could be refused."""
        tier = session.tier + (options["verb"] == "escalate")
        asked_again = options["verb"] == "retry" and session.purpose == Session.Purpose.FOLLOW_UP
        if options["verb"] == "follow_up" or asked_again:
            return
        if options.get("once"):
            _require_no_other_choice(options)
            account_named(options["as"])
        else:
            manual.require_policy(session, tier)
            choice_in(options).fields(tier)
        if tier > LOWEST_TIER and not options["no_input"]:
            confirm_or_stop(self, f"Tier {tier} may change {session.workdir}. Start it? [y/N] ")

    def _print_json(self, data: Any) -> None:
        self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))


def _add_showing(parser: ArgumentParser, verb: str) -> None:
    if verb == "list":
        parser.add_argument("--watch", metavar="NAME", help="only sessions of this watch")
        parser.add_argument("--drills", action="store_true", help="only those of drills")
        parser.add_argument("--status", choices=Session.Status.values)
    else:
        parser.add_argument("id", help=SESSION_HELP)
    if verb != "show":
        add_stretch_options(parser, limit=20 if verb == "list" else 50)
    parser.add_argument("--json", action="store_true", help="print it all as JSON")


def _add_going_on(parser: ArgumentParser, verb: str) -> None:
    parser.add_argument("id", help=SESSION_HELP)
    add_verbose_option(parser)
    if verb == "escalate":
        parser.add_argument("text", nargs="?", default="", help="the reason; a note with --once")
        parser.add_argument(
            "--once",
            action="store_true",
            help="approve the withheld tier once, whatever the policy of the watch",
        )
        parser.add_argument("--as", metavar="USER", help="the account that approves, with --once")
    elif verb != "retry":
        parser.add_argument("text", help="the question or the approach")
    if verb in {"retry", "escalate"}:
        parser.add_argument("--fresh", action="store_true", help="a new conversation, by handoff")
    if verb != "follow_up":
        parser.add_argument(
            "--no-input", action="store_true", help="do not ask before higher tiers"
        )
    add_choice_options(parser)
    parser.add_argument("--queue", action="store_true", help="hand the session to the worker")
    parser.add_argument("--json", action="store_true", help="print the chain as JSON")


def _require_no_other_choice(options: dict[str, Any]) -> None:
    """Refuse options that an approval does not record."""
    if options["model"] or options["max_turns"] or options["fresh"]:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS,
            "With --once only --budget can be chosen: the tier continues the conversation with its "
            "own model and turns.",
        )


def _operate(session: Session, options: dict[str, Any]) -> Session:
    choice = choice_in(options)
    match options["verb"]:
        case "follow_up":
            return manual.follow_up(session, options["text"], choice=choice)
        case "fork":
            return manual.fork(session, options["text"], choice=choice)
        case "retry":
            return manual.retry(session, choice=choice, force_fresh=options["fresh"])
        case "escalate" if options["once"]:
            return manual.allow_once(
                session,
                by=account_named(options["as"]),
                way=Approval.Way.TERMINAL,
                note=options["text"],
                budget_usd=options["budget"],
            )
    return manual.escalate(session, options["text"], choice=choice, force_fresh=options["fresh"])
