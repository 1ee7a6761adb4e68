"""Lists, adds and changes accounts and their roles."""

from __future__ import annotations

import secrets
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from escalation.errors import RefusalCode
from escalation.management.arguments import address_of
from escalation.management.output import Refused, TerminalCommand, refused_for, write_table
from escalation.management.session_text import moment
from sessions_app.access import accounts
from sessions_app.access.accounts import AccountProblem, AccountRefused, role_of
from sessions_app.access.roles import Role

CODES = {
    AccountProblem.EXISTS: RefusalCode.RECORD_EXISTS,
    AccountProblem.INVALID: RefusalCode.INVALID_ARGUMENTS,
    AccountProblem.LAST_ADMIN: RefusalCode.NOT_PERMITTED,
    AccountProblem.DISABLED: RefusalCode.NOT_PERMITTED,
}
FROM_STDIN = "read the password from standard input; without it one is made and printed once"


class Command(TerminalCommand):
    help = "List, add and change accounts: one role each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="all accounts with role and last login")
        add = verbs.add_parser("add", help="a new account")
        invite = verbs.add_parser("invite", help="a new account, whose password its link chooses")
        role = verbs.add_parser("role", help="give an account another role")
        password = verbs.add_parser("password", help="set a new password")
        disable = verbs.add_parser("disable", help="let an account log in no more")
        enable = verbs.add_parser("enable", help="let it log in again")
        for verb in (add, invite, role, password, disable, enable):
            verb.add_argument("name", help="the name of the account")
        role.add_argument("role", choices=[role.value for role in Role])
        for verb in (add, invite):
            verb.add_argument(
                "--role", choices=[role.value for role in Role], default=Role.VIEWER.value
            )
        for verb in (add, password):
            verb.add_argument("--password-stdin", action="store_true", help=FROM_STDIN)
        for verb in verbs.choices.values():
            verb.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            return self._list(as_json=options["json"])
        try:
            with transaction.atomic():
                account, shown_once = _change(options)
        except AccountRefused as refused:
            raise Refused(CODES[refused.problem], refused) from refused
        if options["json"]:
            self.stdout.write_json(account_as_data(account), indent=2)
        else:
            self.stdout.write(_sentence(account, options["verb"]))
        if shown_once:
            # To standard error with --json, so that the data stays data.
            out = self.stderr if options["json"] else self.stdout
            assert isinstance(out, type(self.stdout))
            what = "Link" if options["verb"] == "invite" else "Password"
            out.write_secret(f"{what} of {account.username}, shown only this once: {shown_once}")
        return None

    def _list(self, *, as_json: bool) -> None:
        rows = list(accounts.all_accounts())
        if as_json:
            self.stdout.write_json([account_as_data(account) for account in rows], indent=2)
            return
        write_table(
            self,
            ("account", "role", "may log in", "last seen"),
            [
                (
                    account.username,
                    role_of(account) or "none",
                    "yes" if account.is_active else "no",
                    moment(seen) if (seen := accounts.seen_at(account)) else "never",
                )
                for account in rows
            ],
        )


def _change(options: dict[str, Any]) -> tuple[User, str]:
    """Carry out a verb. Return the account, and what is shown only once: a password or a link."""
    verb, name = options["verb"], options["name"]
    if verb in {"add", "invite"}:
        return _added(options)
    account = _named(name)
    match verb:
        case "role":
            accounts.change_role(account, Role(options["role"]))
        case "password":
            password, made = _password_for(account, from_stdin=options["password_stdin"])
            account.set_password(password)
            account.save(update_fields=["password"])
            return account, made
        case "disable":
            accounts.disable(account)
        case _:
            accounts.enable(account)
    return account, ""


def _added(options: dict[str, Any]) -> tuple[User, str]:
    name, role = options["name"], Role(options["role"])
    if options["verb"] == "invite":
        account = User.objects.filter(username=name).first() or accounts.add_account(name, role)
        return account, address_of(accounts.invitation(account))
    password, made = _password_for(User(username=name), from_stdin=options["password_stdin"])
    return accounts.add_account(name, role, password=password), made


def _password_for(account: User, *, from_stdin: bool) -> tuple[str, str]:
    """Return the password, and once more if it was made here."""
    password = sys.stdin.readline().rstrip("\n") if from_stdin else secrets.token_urlsafe(12)
    try:
        validate_password(password, account)
    except ValidationError as error:
        raise refused_for(RefusalCode.INVALID_ARGUMENTS, error.messages) from error
    return password, "" if from_stdin else password


def _named(name: str) -> User:
    account = User.objects.filter(username=name).first()
    if account is None:
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"There is no account {name}. `claudeops account list` lists them.",
        )
    return account


def account_as_data(account: User) -> dict[str, Any]:
    return {
        "name": account.username,
        "role": role_of(account) or None,
        "active": account.is_active,
        "last_seen": seen.isoformat() if (seen := accounts.seen_at(account)) else None,
        "last_login": account.last_login.isoformat() if account.last_login else None,
    }


def _sentence(account: User, verb: str) -> str:
    name = account.username
    match verb:
        case "add":
            return f"The account {name} was added with the role {role_of(account)}."
        case "invite":
            return f"{name} has the role {role_of(account)}, and chooses the password by the link."
        case "role":
            return f"{name} has the role {role_of(account)} now."
        case "password":
            return f"The password of {name} was changed."
        case "disable":
            return f"{name} can no longer log in."
        case _:
            return f"{name} can log in again."
