"""Roles and their rights, in one table that pages, endpoints and the admin read.

A role is a Django group of that name, made by a migration. Each role includes the one before it, so
an account needs one role. `is_staff` and Django's permissions are not used.
"""

from __future__ import annotations

from enum import StrEnum

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model, Q, QuerySet, prefetch_related_objects


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"

    @property
    def meaning(self) -> str:
        return MEANINGS[self]


MEANINGS = {
    Role.VIEWER: "sees incidents, reports and costs, and changes nothing",
    Role.OPERATOR: "sees output too, runs and stops, handles incidents",
    Role.APPROVER: "approves and changes watches too",
    Role.ADMIN: "manages accounts, channels and keys too",
}


class Right(StrEnum):
    """Rights; each completes the sentence "your account may not"."""

    SEE = "see"
    SEE_OUTPUT = "see output"
    RUN = "run"
    STOP = "stop"
    FOLLOW_UP = "follow up"
    ESCALATE = "escalate"
    HANDLE_INCIDENTS = "handle incidents"
    PAUSE_ALL = "pause all"
    CHANGE_WATCHES = "change watches"
    APPROVE = "approve"
    MANAGE_KEYS = "manage keys"

    @property
    def attribute(self) -> str:
        """Name in templates, as in `may.see_output`."""
        return self.name.lower()


# Output may contain text of programs, so viewers do not see it. Enabling a watch or raising
# its autonomy approves its sessions in advance, so it is a right of approvers.
VIEWER = frozenset({Right.SEE})
OPERATOR = VIEWER | {
    Right.SEE_OUTPUT,
    Right.RUN,
    Right.STOP,
    Right.FOLLOW_UP,
    Right.ESCALATE,
    Right.HANDLE_INCIDENTS,
    Right.PAUSE_ALL,
}
APPROVER = OPERATOR | {Right.CHANGE_WATCHES, Right.APPROVE}
TABLE: dict[Role, frozenset[Right]] = {
    Role.VIEWER: VIEWER,
    Role.OPERATOR: OPERATOR,
    Role.APPROVER: APPROVER,
    Role.ADMIN: APPROVER | {Right.MANAGE_KEYS},
}


LIMIT = "_claudeops_rights"


def limit_rights(user: User, rights: frozenset[Right]) -> None:
    """Let this instance have no more than these rights, as for a request with a token."""
    setattr(user, LIMIT, rights)


def rights_of(user: User | AnonymousUser) -> frozenset[Right]:
    """Return the rights of an account, within the limit of its token if it came with one."""
    held, limit = _rights_by_role(user), getattr(user, LIMIT, None)
    return held if limit is None else held & limit


def _rights_by_role(user: User | AnonymousUser) -> frozenset[Right]:
    """Return the rights of the roles. The groups are read once for each request."""
    if not user.is_active:
        return frozenset()
    if user.is_superuser:
        return TABLE[Role.ADMIN]
    # A page of the admin asks dozens of times; `prefetch_related_objects` is slow to see that
    # nothing is to be read.
    if "groups" not in getattr(user, "_prefetched_objects_cache", {}):
        prefetch_related_objects([user], "groups")
    groups = user._prefetched_objects_cache["groups"]  # type: ignore[attr-defined]
    return frozenset[Right]().union(*(TABLE.get(group.name, frozenset()) for group in groups))


def may(user: User | AnonymousUser, right: Right) -> bool:
    return right in rights_of(user)


def accounts_that_may(right: Right) -> QuerySet[User]:
    names = [role for role, rights in TABLE.items() if right in rights]
    those = User.objects.filter(Q(is_superuser=True) | Q(groups__name__in=names), is_active=True)
    return those.distinct().order_by("username")


def refusal(user: User | AnonymousUser, right: Right) -> str:
    """Return the message for a missing right, with the administrators to ask."""
    if not rights_of(user):
        return f"Your account has no role yet, so it sees nothing here. {_whom_to_ask()}"
    lowest = next(role for role, rights in TABLE.items() if right in rights)
    return f"Your account may not {right}: that takes the role {lowest}. {_whom_to_ask()}"


def _whom_to_ask() -> str:
    admins = User.objects.filter(Q(is_superuser=True) | Q(groups__name=Role.ADMIN), is_active=True)
    names = list(admins.distinct().order_by("username").values_list("username", flat=True)[:5])
    return f"Ask an administrator: {', '.join(names)}." if names else "Ask an administrator."


# Actions of people outside the admin are added to the admin's log.
LONGEST_NAME = 200


def note_added(user: User | AnonymousUser, thing: Model) -> None:
    _note(user, thing, ADDITION, "")


def note_changed(user: User | AnonymousUser, thing: Model, what: str) -> None:
    _note(user, thing, CHANGE, what)


def note_removed(user: User | AnonymousUser, thing: Model) -> None:
    """Log a removal. Must be called before it, while the row has an id."""
    _note(user, thing, DELETION, "")


def _note(user: User | AnonymousUser, thing: Model, flag: int, what: str) -> None:
    LogEntry.objects.create(
        user_id=str(user.pk),
        content_type=ContentType.objects.get_for_model(thing),
        object_id=str(thing.pk),
        object_repr=str(thing)[:LONGEST_NAME],
        action_flag=flag,
        change_message=what,
    )
