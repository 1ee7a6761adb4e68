"""Lists, shows, approves and rejects approvals."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import account_named, add_stretch_options
from escalation.management.output import Cell, Refused, TerminalCommand, write_table
from escalation.supervisor import approval_answers as answers
from escalation.web.approvals import approvals_of, with_subject
from sessions_app.models import Approval
from sessions_app.text import json_text, money, one_line

HEADINGS = ("approval", "state", "time", "for", "what")


def approval_row(approval: Approval) -> tuple[Cell | str, ...]:
    state = approval.get_state_display()
    return (
        str(approval.pk),
        Cell(state, "warn") if approval.is_waiting else state,
        _time(approval),
        approval.session.cycle.subject,
        _what(approval, 80),
    )


def show_lines(approval: Approval) -> list[str]:
    facts = {
        "Approval": f"{approval.pk}, {approval.get_state_display()}, {_time(approval)}",
        "For": f"{approval.session.cycle.subject}, session {approval.session_id}",
        "What": _what(approval, 4_000),
        "Why": approval.why,
        "Does": "; ".join(map(str, approval.actions)),
        "Grants": ", ".join(map(str, approval.grants)),
        "In": approval.cwd,
        "Allowed": "" if approval.budget_usd is None else f"once, for {money(approval.budget_usd)}",
        "Answer": approval.answer_text,
        "Plan" if approval.has_plan else "Said": approval.plan,
    }
    return [f"{name + ':':<10}{value}" for name, value in facts.items() if value]


def approval_as_data(approval: Approval) -> dict[str, Any]:
    return {
        "id": approval.pk,
        "kind": approval.kind,
        "state": approval.state,
        "subject": approval.session.cycle.subject,
        "session": approval.session_id,
        "tier": approval.session.tier,
        "command": approval.command,
        "why": approval.why,
        "asked_at": approval.asked_at,
        "expires_at": approval.expires_at,
    }


def approval_in_full(approval: Approval) -> dict[str, Any]:
    return {
        **approval_as_data(approval),
        "actions": approval.actions,
        "grants": approval.grants,
        "cwd": approval.cwd,
        "plan": approval.plan,
        "note": approval.note,
        "decided_by": approval.decided_by.get_username() if approval.decided_by else None,
        "decided_at": approval.decided_at,
        "way": approval.way or None,
        "used_at": approval.used_at,
        "budget_usd": approval.budget_usd,
    }


def _what(approval: Approval, limit: int) -> str:
    if approval.kind == Approval.Kind.COMMAND:
        return one_line(approval.command, limit)
    return f"start Tier {approval.session.tier}"


def _time(approval: Approval) -> str:
    if approval.is_overdue:
        return "too late"
    moment = approval.expires_at if approval.is_waiting else approval.decided_at
    words = "until" if approval.is_waiting else "on"
    return f"{words} {timezone.localtime(moment):%Y-%m-%d %H:%M}" if moment else ""


VERBS = {
    "list": "what waits, longest first; --all for what is over, too",
    "show": "all that is known about an approval",
    "approve": "let the tier start, or the command run",
    "reject": "say no, with a note that the run is told",
}


class Command(TerminalCommand):
    help = "List, show, approve and reject what waits for a person."

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
        found = approvals_of(drills=options["drills"]).order_by("expires_at", "pk")
        if options["all"]:
            found = found.order_by("-pk")
        else:
            found = found.filter(state=Approval.State.WAITING)
        shown = found[options["offset"] : options["offset"] + options["limit"]]
        if options["json"]:
            return self._print_json([approval_as_data(approval) for approval in shown])
        write_table(self, HEADINGS, [approval_row(approval) for approval in shown])
        if not shown:
            self.stdout.write("Nothing waits for a person.")

    def _show(self, approval: Approval, *, as_json: bool) -> None:
        if as_json:
            return self._print_json(approval_in_full(approval))
        self.stdout.write("\n".join(show_lines(approval)))

    def _answer(self, verb: str, approval: Approval, options: dict[str, Any]) -> None:
        give = answers.approve if verb == "approve" else answers.reject
        try:
            answered = give(
                approval,
                by=account_named(options["as"]),
                way=Approval.Way.TERMINAL,
                note=options["note"],
            )
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        if options["json"]:
            return self._print_json(approval_in_full(answered))
        self.stdout.write(f"Approval {answered.pk} is {answered.get_state_display()}.")

    def _print_json(self, data: Any) -> None:
        self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))


def _add_options(parser: ArgumentParser, verb: str) -> None:
    if verb == "list":
        parser.add_argument("--drills", action="store_true", help="only those of drills")
        parser.add_argument("--all", action="store_true", help="decided ones too, newest first")
        add_stretch_options(parser, limit=20)
    else:
        parser.add_argument("id", help="the approval's number")
    if verb in {"approve", "reject"}:
        needed = " (needed)" if verb == "reject" else ""
        parser.add_argument(
            "--note", default="", help=f"for the record and for the session{needed}"
        )
        parser.add_argument("--as", metavar="USER", help="the account that decides")
    parser.add_argument("--json", action="store_true", help="print it all as JSON")


def _numbered(number: str) -> Approval:
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    approval = with_subject().filter(pk=number).first() if is_number else None
    if approval is None:
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"There is no approval {number}. `claudeops approval list` shows them.",
        )
    return approval
