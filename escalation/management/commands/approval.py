"""Look at what waits for a person, and answer it, from a terminal."""

from __future__ import annotations

import getpass
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.serializers.json import DjangoJSONEncoder

from escalation.errors import OperationRefused
from escalation.management.approval_text import (
    approval_as_data,
    approval_in_full,
    list_line,
    show_lines,
)
from escalation.management.refusal import Refused
from escalation.management.run_options import add_stretch_options
from escalation.management.terminal import TerminalCommand
from escalation.next_step import approval as answers
from sessions_app.models import Approval
from sessions_app.pages.approvals_page import with_subject
from sessions_app.reading.plain_text import json_text

VERBS = {
    "list": "what waits, longest first; --all for what is over, too",
    "show": "all that is known about an approval",
    "approve": "let the tier start, or the command run",
    "reject": "say no, with a note that the run is told",
}


class Command(TerminalCommand):
    help = "Look at approvals and answer them."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        for verb, meaning in VERBS.items():
            _add_options(verbs.add_parser(verb, help=meaning), verb)

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list":
                self._list(options)
            case "show":
                self._show(_numbered(options["id"]), as_json=options["json"])
            case verb:
                self._answer(verb, _numbered(options["id"]), options)

    def _list(self, options: dict[str, Any]) -> None:
        found = with_subject().order_by("expires_at", "pk")
        if options["all"]:
            found = with_subject().order_by("-pk")
        else:
            found = found.filter(state=Approval.State.WAITING)
        shown = found[options["offset"] : options["offset"] + options["limit"]]
        if options["json"]:
            return self._print_json([approval_as_data(approval) for approval in shown])
        for approval in shown:
            self.stdout.write(list_line(approval))
        if not shown:
            self.stdout.write("Nothing waits for a person.")

    def _show(self, approval: Approval, *, as_json: bool) -> None:
        if as_json:
            return self._print_json(approval_in_full(approval))
        self.stdout.write("\n".join(show_lines(approval)))

    def _answer(self, verb: str, approval: Approval, options: dict[str, Any]) -> None:
        give = answers.approve if verb == "approve" else answers.reject
        try:
            answered = give(approval, by=_account(options["as"]), note=options["note"])
        except OperationRefused as refused:
            raise Refused(refused) from refused
        if options["json"]:
            return self._print_json(approval_in_full(answered))
        self.stdout.write(f"Approval {answered.pk} is {answered.get_state_display()}.")

    def _print_json(self, data: Any) -> None:
        self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))


def _add_options(parser: ArgumentParser, verb: str) -> None:
    if verb == "list":
        parser.add_argument("--all", action="store_true", help="what is over, too, newest first")
        add_stretch_options(parser, limit=20)
    else:
        parser.add_argument("id", help="the approval's number")
    if verb in {"approve", "reject"}:
        needed = " (needed)" if verb == "reject" else ""
        parser.add_argument("--note", default="", help=f"for the record and for the run{needed}")
        parser.add_argument("--as", metavar="USER", help="the account that answers")
    parser.add_argument("--json", action="store_true", help="print it all as JSON")


def _numbered(number: str) -> Approval:
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    approval = with_subject().filter(pk=number).first() if is_number else None
    if approval is None:
        raise Refused(f"There is no approval {number}. `claudeops approval list` shows them.")
    return approval


def _account(name: str | None) -> User:
    """Whoever answers is in the record: the account of that name, or of the terminal's user."""
    wanted = name or getpass.getuser()
    account = User.objects.filter(username=wanted).first()
    if account is None:
        raise Refused(f"There is no account {wanted}. Say who answers with --as NAME.")
    return account
