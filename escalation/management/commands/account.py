"""Lists, adds and changes accounts and their roles."""

from __future__ import annotations

import secrets
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import Group, User
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction

from escalation.errors import RefusalCode
from escalation.management.output import Refused, TerminalCommand, refused_for, write_table
from escalation.management.session_text import moment
from sessions_app.access.roles import Right, Role, accounts_that_may

FROM_STDIN = "read the password from standard input; without it one is made and printed once"


class Command(TerminalCommand):
    help = "List, add and change accounts: one role each."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list", help="all accounts with role and last login")
        add = verbs.add_parser("add", help="a new account")
        role = verbs.add_parser("role", help="give an account another role")
        password = verbs.add_parser("password", help="set a new password")
        disable = verbs.add_parser("disable", help="let an account log in no more")
        enable = verbs.add_parser("enable", help="let it log in again")
        for verb in (add, role, password, disable, enable):
            verb.add_argument("name", help="the name of the account")
        role.add_argument("role", choices=[role.value for role in Role])
        add.add_argument("--role", choices=[role.value for role in Role], default=Role.VIEWER.value)
        for verb in (add, password):
            verb.add_argument("--password-stdin", action="store_true", help=FROM_STDIN)
        for verb in verbs.choices.values():
            verb.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["verb"] == "list":
            return self._list(as_json=options["json"])
        with transaction.atomic():
            account, password = _change(options)
        if options["json"]:
            self.stdout.write_json(account_as_data(account), indent=2)
        else:
            self.stdout.write(_sentence(account, options["verb"]))
        if password:
            # To standard error with --json, so that the data stays data.
            out = self.stderr if options["json"] else self.stdout
            assert isinstance(out, type(self.stdout))
            out.write_secret(f"Password of {account.username}, shown only this once: {password}")
        return None

    def _list(self, *, as_json: bool) -> None:
        accounts = list(User.objects.prefetch_related("groups").order_by("username"))
        if as_json:
            self.stdout.write_json([account_as_data(account) for account in accounts], indent=2)
            return
        write_table(
            self,
            ("account", "role", "may log in", "last login"),
            [
                (
                    account.username,
                    role_of(account) or "none",
                    "yes" if account.is_active else "no",
                    moment(account.last_login) if account.last_login else "never",
                )
                for account in accounts
            ],
        )


def _change(options: dict[str, Any]) -> tuple[User, str]:
    """Carry out a verb. Return the account, and the password if one was made."""
    match options["verb"]:
        case "add":
            return _added(options)
        case "role":
            account = _named(options["name"])
            _require_another_admin(account, options["role"])
            _give(account, Role(options["role"]))
            return account, ""
        case "password":
            account = _named(options["name"])
            made = _set_password(account, from_stdin=options["password_stdin"])
            account.save(update_fields=["password"])
            return account, made
        case verb:
            account = _named(options["name"])
            if verb == "disable":
                _require_another_admin(account, "")
            account.is_active = verb == "enable"
            account.save(update_fields=["is_active"])
            return account, ""


def _added(options: dict[str, Any]) -> tuple[User, str]:
    account = User(username=options["name"])
    if User.objects.filter(username=account.username).exists():
        raise Refused(
            RefusalCode.RECORD_EXISTS,
            f"There is an account {account.username} already. Change its role with "
            f"`claudeops account role {account.username} ROLE`.",
        )
    made = _set_password(account, from_stdin=options["password_stdin"])
    try:
        account.full_clean()
    except ValidationError as error:
        raise refused_for(RefusalCode.INVALID_ARGUMENTS, error.messages) from error
    account.save()
    _give(account, Role(options["role"]))
    return account, made


def _set_password(account: User, *, from_stdin: bool) -> str:
    """Set the password on the instance. Return it if it was made here."""
    password = sys.stdin.readline().rstrip("\n") if from_stdin else secrets.token_urlsafe(12)
    try:
        validate_password(password, account)
    except ValidationError as error:
        raise refused_for(RefusalCode.INVALID_ARGUMENTS, error.messages) from error
    account.set_password(password)
    return "" if from_stdin else password


def _give(account: User, role: Role) -> None:
    account.groups.set([Group.objects.get_or_create(name=role)[0]])
    if account.is_superuser and role != Role.ADMIN:
        account.is_superuser = False
        account.save(update_fields=["is_superuser"])


def _named(name: str) -> User:
    account = User.objects.filter(username=name).first()
    if account is None:
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"There is no account {name}. `claudeops account list` lists them.",
        )
    return account


def _require_another_admin(account: User, role: str) -> None:
    """Refuse to take the rights of the last account that can give them back."""
    admins = accounts_that_may(Right.MANAGE_KEYS)
    is_admin = admins.filter(pk=account.pk).exists()
    if role != Role.ADMIN and is_admin and not admins.exclude(pk=account.pk).exists():
        raise Refused(
            RefusalCode.NOT_PERMITTED,
            f"{account.username} is the last administrator. Make another one first: "
            "`claudeops account add NAME --role admin`.",
        )


def role_of(account: User) -> str:
    """Return the highest role of an account, or an empty text."""
    if account.is_superuser:
        return Role.ADMIN.value
    names = {group.name for group in account.groups.all()}
    return next((role.value for role in reversed(Role) if role in names), "")


def account_as_data(account: User) -> dict[str, Any]:
    return {
        "name": account.username,
        "role": role_of(account) or None,
        "active": account.is_active,
        "last_login": account.last_login.isoformat() if account.last_login else None,
    }


def _sentence(account: User, verb: str) -> str:
    name = account.username
    match verb:
        case "add":
            return f"The account {name} was added with the role {role_of(account)}."
        case "role":
            return f"{name} has the role {role_of(account)} now."
        case "password":
            return f"The password of {name} was changed."
        case "disable":
            return f"{name} can no longer log in."
        case _:
            return f"{name} can log in again."
