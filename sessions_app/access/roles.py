"""Who may what: the one table. Pages, endpoints and the admin ask it, and nothing else decides.

A role is a Django group of that name, made by a migration. Each role includes the one before it, so
an account needs one. `is_staff` and Django's own permissions mean nothing here: two rules for one
question would differ some day.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet, prefetch_related_objects

if TYPE_CHECKING:
    from django.contrib.auth.models import AnonymousUser


class Role(StrEnum):
    VIEWER = "viewer"
    OPERATOR = "operator"
    APPROVER = "approver"
    ADMIN = "admin"


class Right(StrEnum):
    """Each reads on from "your account may not"."""

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
        """As templates write it: `may.see_output`."""
        return self.name.lower()


# Output may hold what a log or a program printed, so it is more than the fact that a run was.
# Switching a watch on or letting it go further approves its runs in advance: an approver's right.
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


def rights_of(user: User | AnonymousUser) -> frozenset[Right]:
    """Looked up anew for every request, so that a right that was taken is gone at once, and only
    once in it: a list asks for every row."""
    if not user.is_active:
        return frozenset()
    if user.is_superuser:
        return TABLE[Role.ADMIN]
    prefetch_related_objects([user], "groups")
    names = [group.name for group in user.groups.all()]
    return frozenset[Right]().union(*(TABLE[Role(name)] for name in names if name in list(Role)))


def may(user: User | AnonymousUser, right: Right) -> bool:
    return right in rights_of(user)


def accounts_that_may(right: Right) -> QuerySet[User]:
    names = [role for role, rights in TABLE.items() if right in rights]
    those = User.objects.filter(Q(is_superuser=True) | Q(groups__name__in=names), is_active=True)
    return those.distinct().order_by("username")


def refusal(user: User | AnonymousUser, right: Right) -> str:
    """What somebody is told who may not, with whom to ask."""
    if not rights_of(user):
        return f"Your account has no role yet, so it sees nothing here. {_whom_to_ask()}"
    lowest = next(role for role, rights in TABLE.items() if right in rights)
    return f"Your account may not {right}: that takes the role {lowest}. {_whom_to_ask()}"


def _whom_to_ask() -> str:
    admins = User.objects.filter(Q(is_superuser=True) | Q(groups__name=Role.ADMIN), is_active=True)
    names = list(admins.distinct().order_by("username").values_list("username", flat=True)[:5])
    return f"Ask an administrator: {', '.join(names)}." if names else "Ask an administrator."
