"""Arguments of commands: sessions, incidents and watches by name, and shared options."""

from __future__ import annotations

import getpass
import os
from argparse import ArgumentParser, ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import Q

from escalation.errors import RefusalCode
from escalation.management.output import Refused
from escalation.supervisor.successors import RunChoice
from sessions_app.models import Change, Incident, Session, Watch

LATEST = "latest:"
NOTHING_WATCHED = "There is no watch yet. Add one: claudeops watch add NAME DIRECTORY."
SESSION_HELP = f"the number of the session, or {LATEST}NAME for the latest session of a watch"


def session_named(reference: str) -> Session:
    sessions = Session.objects.select_related("cycle__watch", "parent_session")
    if reference.startswith(LATEST):
        name = reference.removeprefix(LATEST)
        latest = sessions.filter(of_watch(name)).order_by("-pk").first()
        if latest is None:
            raise Refused(RefusalCode.NOT_FOUND, f"The watch {name} has no session yet.")
        return latest
    number = _number(reference)
    if number is None:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS, f"{reference!r} is not a session. Give {SESSION_HELP}."
        )
    session = sessions.filter(pk=number).first()
    if session is None:
        raise Refused(RefusalCode.NOT_FOUND, f"There is no session {number}.")
    return session


def incident_named(reference: str) -> Incident:
    number = _number(reference)
    if number is None:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS,
            f"{reference!r} is not an incident. Give its number: see `claudeops incident list`.",
        )
    incident = Incident.objects.select_related("watch", "owner").filter(pk=number).first()
    if incident is None:
        raise Refused(RefusalCode.NOT_FOUND, f"There is no incident {number}.")
    return incident


def change_named(reference: str) -> Change:
    number = _number(reference)
    if number is None:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS,
            f"{reference!r} is not a change. Give its number: see `claudeops change list`.",
        )
    related = ("session__cycle__watch", "before_content", "undone_by")
    change = Change.objects.select_related(*related).filter(pk=number).first()
    if change is None:
        raise Refused(RefusalCode.NOT_FOUND, f"There is no change {number}.")
    return change


def _number(reference: str) -> int | None:
    number = reference.removeprefix("#")
    is_one = number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if is_one else None


def of_watch(name: str) -> Q:
    """Return a filter for the sessions of a watch, also of a removed one; refuse other names."""
    if Watch.objects.filter(name=name).exists():
        return Q(cycle__watch__name=name)
    removed = Q(cycle__watch=None, cycle__drill="", cycle__watch_name=name)
    if not Session.objects.filter(removed).exists():
        raise Refused(RefusalCode.NOT_FOUND, _unknown(name))
    return removed


def watch_named(name: str) -> Watch:
    watch = Watch.objects.select_related("schedule").filter(name=name).first()
    if watch is None:
        raise Refused(RefusalCode.NOT_FOUND, _unknown(name))
    return watch


def terminal_user() -> str:
    """Return the name of the terminal's user, or the number of a user without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def account_named(name: str | None) -> User:
    """Return the account that decides: the given one, that of the terminal's user, or the only one.

    A terminal has no roles, so the only account of an installation acts for its user.
    """
    wanted = name or terminal_user()
    account = User.objects.filter(username=wanted).first()
    if account is None and name is None:
        active = list(User.objects.filter(is_active=True)[:2])
        account = active[0] if len(active) == 1 else None
    if account is None:
        raise Refused(
            RefusalCode.ACCOUNT_MISSING,
            f"There is no account {wanted}. Say who answers with --as NAME.",
        )
    return account


def _unknown(name: str) -> str:
    known = ", ".join(Watch.objects.values_list("name", flat=True))
    if not known:
        return f"There is no watch {name!r}. {NOTHING_WATCHED}"
    return f"There is no watch {name!r}. Known watches: {known}."


def add_choice_options(parser: ArgumentParser, whose: str = "this session") -> None:
    """Add options that reduce the limits of a tier."""
    parser.add_argument(
        "--model",
        default="",
        help=f"the model of {whose}: that of its tier, or of a lower one",
    )
    parser.add_argument(
        "--max-turns", type=int, metavar="N", help=f"fewer turns for {whose} than its tier has"
    )
    parser.add_argument(
        "--budget", type=dollars, metavar="USD", help=f"less money for {whose} than its tier has"
    )


def choice_in(options: dict[str, Any]) -> RunChoice:
    return RunChoice(
        model=options["model"],
        max_turns=options["max_turns"],
        max_budget_usd=options["budget"],
    )


def add_stretch_options(parser: ArgumentParser, *, limit: int) -> None:
    parser.add_argument(
        "--limit", type=count, default=limit, metavar="N", help=f"how many ({limit})"
    )
    parser.add_argument(
        "--offset", type=count, default=0, metavar="N", help="how many to skip first (0)"
    )


def dollars(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars, such as 0.50") from error
    if not amount.is_finite():
        raise ArgumentTypeError(f"{text!r} is not an amount of dollars, such as 0.50")
    return amount


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ArgumentTypeError(f"{text!r} is not a number from 0 on")
    return int(text)


EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 (compared, not bound)


def address_of(path: str = "/") -> str:
    """Return the address of a page; behind a proxy with the origin of the proxy."""
    if origins := settings.CSRF_TRUSTED_ORIGINS:
        return f"{origins[0]}{path}"
    return f"{local_address(settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT)}{path}"


def local_address(host: str, port: int) -> str:
    reachable = EVERYWHERE.get(host) or (f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"
