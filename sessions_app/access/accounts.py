"""Accounts: one role each, invitation by link, disabling, and who was seen last."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, User
from django.contrib.auth.signals import user_logged_in
from django.contrib.auth.tokens import default_token_generator
from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.encoding import force_bytes
from django.utils.http import urlsafe_base64_encode

from sessions_app.access.roles import (
    Right,
    Role,
    accounts_that_may,
    note_added,
    note_changed,
)
from sessions_app.models import AccountSeen


class AccountProblem(StrEnum):
    EXISTS = "exists"
    INVALID = "invalid"
    LAST_ADMIN = "last admin"
    DISABLED = "disabled"


class AccountRefused(Exception):
    """Raised for a change of accounts that is not made; the message says what to do."""

    def __init__(self, problem: AccountProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


INVITATION_LASTS = timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)


def all_accounts() -> QuerySet[User]:
    return User.objects.prefetch_related("groups").select_related("seen").order_by("username")


def role_of(account: User) -> str:
    """Return the highest role of an account, or an empty text."""
    if account.is_superuser:
        return Role.ADMIN.value
    names = {group.name for group in account.groups.all()}
    return next((role.value for role in reversed(Role) if role in names), "")


def seen_at(account: User) -> datetime | None:
    """Return the time of the last request, or of the last login of an older version."""
    seen = AccountSeen.objects.filter(user=account).values_list("at", flat=True).first()
    return seen or account.last_login


def add_account(name: str, role: Role, *, password: str = "", by: User | None = None) -> User:
    """Add an account. Without a password it cannot log in until a link gives it one."""
    account = User(username=name)
    if User.objects.filter(username=account.username).exists():
        raise AccountRefused(
            AccountProblem.EXISTS,
            f"There is an account {name} already. Change its role instead: "
            f"`claudeops account role {name} ROLE`, or the page Accounts.",
        )
    if password:
        account.set_password(password)
    else:
        account.set_unusable_password()
    try:
        account.full_clean()
    except ValidationError as error:
        raise AccountRefused(AccountProblem.INVALID, "\n".join(error.messages)) from error
    with transaction.atomic():
        account.save()
        _give(account, role)
        if by is not None:
            note_added(by, account)
    return account


def change_role(account: User, role: Role, *, by: User | None = None) -> None:
    with transaction.atomic():
        _require_another_admin(account, role)
        _give(account, role)
        _note(by, account, f"Role: {role.value}.")


def disable(account: User, *, by: User | None = None) -> None:
    """Let an account log in no more; its sessions end with their next request."""
    with transaction.atomic():
        _require_another_admin(account, "")
        _switch(account, is_active=False)
        _note(by, account, "Disabled.")


def enable(account: User, *, by: User | None = None) -> None:
    with transaction.atomic():
        _switch(account, is_active=True)
        _note(by, account, "Enabled.")


def invitation(account: User, *, by: User | None = None) -> str:
    """Return the path of a signed link that lets a person choose the password, once.

    An earlier link of an account that has no password yet is void.
    """
    if not account.is_active:
        raise AccountRefused(
            AccountProblem.DISABLED, f"{account.username} is disabled. Enable the account first."
        )
    with transaction.atomic():
        if not account.has_usable_password():
            account.set_unusable_password()
            account.save(update_fields=["password"])
        _note(by, account, "A link to choose the password was made.")
    number = urlsafe_base64_encode(force_bytes(account.pk))
    token = default_token_generator.make_token(account)
    return reverse("invited", args=[number, token])


def _give(account: User, role: Role) -> None:
    account.groups.set([Group.objects.get_or_create(name=role)[0]])
    if account.is_superuser and role != Role.ADMIN:
        account.is_superuser = False
        account.save(update_fields=["is_superuser"])


def _switch(account: User, *, is_active: bool) -> None:
    account.is_active = is_active
    account.save(update_fields=["is_active"])


def _note(by: User | None, account: User, what: str) -> None:
    if by is not None:
        note_changed(by, account, what)


def _require_another_admin(account: User, role: str) -> None:
    """Refuse to take the rights of the last account that can give them back."""
    # Locked, so that two administrators cannot disable each other at once.
    list(User.objects.select_for_update().order_by("pk").values_list("pk", flat=True))
    admins = accounts_that_may(Right.MANAGE_KEYS)
    is_admin = admins.filter(pk=account.pk).exists()
    if role != Role.ADMIN and is_admin and not admins.exclude(pk=account.pk).exists():
        raise AccountRefused(
            AccountProblem.LAST_ADMIN,
            f"{account.username} is the last administrator. Make another one first: "
            "`claudeops account add NAME --role admin`, or the page Accounts.",
        )


# When an account was last seen: noted at a login, and at a request a while after the last note.

SEEN, SEEN_EVERY = "seen_at", timedelta(minutes=5)


def note_seen(request: HttpRequest, user: User) -> None:
    """Store that the account of a request was seen, unless it was stored lately."""
    now = timezone.now()
    last = request.session.get(SEEN, 0)
    if now.timestamp() - last < SEEN_EVERY.total_seconds():
        return
    request.session[SEEN] = now.timestamp()
    AccountSeen.objects.update_or_create(user=user, defaults={"at": now})


def _logged_in(request: HttpRequest, user: User, **_signal: Any) -> None:
    note_seen(request, user)


user_logged_in.connect(_logged_in, dispatch_uid="account_seen")
