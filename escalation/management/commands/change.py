"""Lists and shows changes of sessions, and undoes edits of files."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.serializers.json import DjangoJSONEncoder

from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import (
    account_named,
    add_stretch_options,
    change_named,
    watch_named,
)
from escalation.management.output import Cell, Refused, TerminalCommand, write_table
from escalation.run.undo import undo, undo_now
from escalation.web.changes import ChangeRow, rows_of
from sessions_app.access.roles import Right, may, refusal
from sessions_app.models import Change
from sessions_app.models.installation import moment_text
from sessions_app.text import clean, json_text, one_line

HEADINGS = ("change", "when", "session", "result", "what")
LISTED = 30
WIDTH = 80
NOT_CONFIRMED = "Nothing was undone: confirm it with --yes."


class Command(TerminalCommand):
    help = (
        "List and show what sessions changed, and undo an edit of a file. Exit code of undo: 0 if "
        "it was undone, 2 if it could not be."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="list changes, newest first")
        listed.add_argument("--watch", help="only of this watch")
        listed.add_argument("--kind", choices=Change.Kind.values, help="only of this kind")
        listed.add_argument("--drills", action="store_true", help="only those of drills")
        add_stretch_options(listed, limit=LISTED)
        shown = verbs.add_parser("show", help="show a change, and what undoing it would do")
        undone = verbs.add_parser("undo", help="put the content before an edit back")
        for chosen in (shown, undone):
            chosen.add_argument("number", help="the number of the change")
        undone.add_argument("--as", dest="account", metavar="NAME", help="the account that undoes")
        undone.add_argument("--yes", action="store_true", help="do not ask")
        for chosen in verbs.choices.values():
            chosen.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            return self._list(options)
        change = change_named(options["number"])
        if options["verb"] == "undo":
            self._undo(change, options)
        self._show(change, as_json=options["json"])

    def _list(self, options: dict[str, Any]) -> None:
        found = Change.objects.select_related("session__cycle__watch")
        drills = {"session__cycle__drill": ""}
        found = found.exclude(**drills) if options["drills"] else found.filter(**drills)
        if options["watch"]:
            found = found.filter(watch=watch_named(options["watch"]))
        if options["kind"]:
            found = found.filter(kind=options["kind"])
        first = options["offset"]
        rows = rows_of(found[first : first + options["limit"]])
        if options["json"]:
            data = [change_as_data(row) for row in rows]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        elif rows:
            write_table(self, HEADINGS, [_table_row(row) for row in rows])
        else:
            self.stdout.write("Nothing was changed.")

    def _undo(self, change: Change, options: dict[str, Any]) -> None:
        account = account_named(options["account"])
        if not may(account, Right.APPROVE):
            raise Refused(RefusalCode.NOT_PERMITTED, refusal(account, Right.APPROVE))
        now = undo_now(change)
        if now.code is None and not options["yes"]:
            self.stdout.write("\n".join(now.difference))
            if not sys.stdin.isatty() or input("Undo this edit? [y/N] ").lower() != "y":
                raise Refused(RefusalCode.NOT_CONFIRMED, NOT_CONFIRMED)
        try:
            undo(change, by=account, way="terminal")
        except OperationRefused as refused:
            difference = "".join(f"\n{line}" for line in now.difference)
            raise Refused(refused.code, f"{refused}{difference}") from refused

    def _show(self, change: Change, *, as_json: bool) -> None:
        row = rows_of([change])[0]
        now = undo_now(change) if change.is_edit else None
        if as_json:
            data = {**change_as_data(row), "undo": None}
            if now is not None:
                data["undo"] = {
                    "possible": now.code is None,
                    "code": now.code,
                    "difference": list(now.difference),
                }
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
            return
        self.stdout.write(f"Change {change.pk}: {change.action}")
        self.stdout.write(f"  session       {change.session_id}, Tier {change.session.tier}")
        self.stdout.write(f"  when          {moment_text(change.at)}")
        self.stdout.write(f"  result        {row.result}")
        if change.undone_at:
            who = change.undone_by.get_username() if change.undone_by else "an operator"
            self.stdout.write(f"  undone        {moment_text(change.undone_at)} by {who}")
        elif now is not None:
            can = f"claudeops change undo {change.pk}" if now.code is None else now.objection
            self.stdout.write(f"  to undo it    {can}")
        else:
            self.stdout.write(f"  to reverse it {row.reversal.text}")
        if change.diff:
            self.stdout.write(clean(change.diff))


def _table_row(row: ChangeRow) -> tuple[Cell | str, ...]:
    change = row.change
    return (
        str(change.pk),
        moment_text(change.at),
        str(change.session_id),
        Cell(row.result, "bad" if row.tone == "bad" else ""),
        one_line(change.action, WIDTH),
    )


def change_as_data(row: ChangeRow) -> dict[str, Any]:
    change = row.change
    cycle = change.session.cycle
    return {
        "id": change.pk,
        "at": change.at,
        "session": change.session_id,
        "cycle": cycle.pk,
        "watch": cycle.watch.name if cycle.watch else cycle.watch_name or None,
        "drill": cycle.drill or None,
        "kind": change.kind,
        "service": change.service or None,
        "action": change.action,
        "path": change.path or None,
        "exit_code": change.exit_code,
        "result": row.result,
        "reversal": row.reversal.text if row.reversal.is_known else None,
        "can_be_undone": change.can_be_undone,
        "undone_at": change.undone_at,
        "diff": change.diff or None,
    }
