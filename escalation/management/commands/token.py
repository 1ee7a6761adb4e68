"""Makes, lists and revokes tokens of the API."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from datetime import timedelta
from typing import Any

from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import account_named
from escalation.management.output import Refused, TerminalCommand, write_table
from escalation.management.session_text import moment
from escalation.probes.manage import seconds_in
from sessions_app.access import tokens
from sessions_app.access.tokens import ALERTS, Scope
from sessions_app.models import ApiToken

SHOWN_ONCE = "It is not shown again."
EMPTY = "There is no token yet. Make one: claudeops token create NAME --scope read."
HEADINGS = ("token", "owner", "scopes", "expires", "last used", "state", "begins")


class Command(TerminalCommand):
    help = "Make, list and revoke tokens of the API. A token is printed once."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        create = verbs.add_parser("create", help="make a token, and print it")
        create.add_argument("name")
        create.add_argument(
            "--scope",
            required=True,
            metavar="SCOPES",
            help=f"separated by commas: {', '.join(Scope)}, {ALERTS}SOURCE",
        )
        create.add_argument("--expires", metavar="90d", help="like 90d or 12h; without it: never")
        verbs.add_parser("list", help="list all tokens that were not revoked")
        revoke = verbs.add_parser("revoke", help="refuse a token from now on")
        revoke.add_argument("name")
        for verb in (create, revoke):
            verb.add_argument("--as", metavar="USER", help="the account that owns it")
        for verb in verbs.choices.values():
            verb.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "create":
                self._create(options)
            case "list":
                self._list(as_json=options["json"])
            case "revoke":
                self._revoke(options)

    def _create(self, options: dict[str, Any]) -> None:
        account = account_named(options["as"])
        scopes = [scope.strip() for scope in options["scope"].split(",") if scope.strip()]
        try:
            made = tokens.create(
                account, options["name"], scopes, expires_in=_lifetime(options), by=account
            )
        except tokens.TokenRefused as refused:
            raise Refused(RefusalCode.INVALID_ARGUMENTS, refused) from refused
        if options["json"]:
            data = {**token_as_data(made.row), "token": made.token}
            self.stdout.write_secret(json.dumps(data, indent=2))
        else:
            self.stdout.write_secret(made.token)
            self.stderr.write(SHOWN_ONCE)

    def _list(self, *, as_json: bool) -> None:
        rows = list(ApiToken.objects.select_related("user").filter(revoked_at=None))
        if as_json:
            self.stdout.write_json([token_as_data(row) for row in rows], indent=2)
            return
        write_table(self, HEADINGS, [_table_row(row) for row in rows])
        if not rows:
            self.stdout.write(EMPTY)

    def _revoke(self, options: dict[str, Any]) -> None:
        account = account_named(options["as"])
        row = ApiToken.objects.filter(user=account, name=options["name"], revoked_at=None).first()
        if row is None:
            raise Refused(
                RefusalCode.NOT_FOUND,
                f"{account.get_username()} has no token {options['name']}. Another account's "
                "token: --as USER. See `claudeops token list`.",
            )
        tokens.revoke(row, by=account)
        row.refresh_from_db()
        if options["json"]:
            self.stdout.write_json(token_as_data(row), indent=2)
        else:
            self.stdout.write(f"The token {row.name} was revoked.")


def _lifetime(options: dict[str, Any]) -> timedelta | None:
    if options["expires"] is None:
        return None
    try:
        return timedelta(seconds=seconds_in(options["expires"]))
    except (OperationRefused, OverflowError) as error:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS,
            f"{options['expires']!r} is not a time: write it like 90d or 12h.",
        ) from error


def _table_row(row: ApiToken) -> tuple[str, ...]:
    return (
        row.name,
        row.user.get_username(),
        row.scopes.replace(" ", ","),
        moment(row.expires_at) if row.expires_at else "never",
        moment(row.last_used_at) if row.last_used_at else "never",
        row.state,
        f"{row.prefix}…",
    )


def token_as_data(row: ApiToken) -> dict[str, Any]:
    return {
        "name": row.name,
        "owner": row.user.get_username(),
        "scopes": row.scope_list,
        "begins": row.prefix,
        "state": row.state,
        "created_at": row.created_at.isoformat(),
        "expires_at": row.expires_at.isoformat() if row.expires_at else None,
        "last_used_at": row.last_used_at.isoformat() if row.last_used_at else None,
    }
