"""A link in a message that answers without a login, for the one account that it was made for.

Opening it only shows a page: mail programs and scanners open links by themselves. What it may do is
decided when the form on that page is sent: the account must be active and may approve then, and the
question must still wait, which makes it good for one answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from django.contrib.auth.models import User
from django.core import signing
from django.urls import reverse

from sessions_app.models import Approval

if TYPE_CHECKING:
    from collections.abc import Mapping

SALT = "escalation.approvals.links"
LONGEST_TOKEN = 300


class Link(NamedTuple):
    approval: Approval
    user: User


def link_for(approval: Approval, user: User) -> str:
    """The path alone: who sends it knows the address of this installation."""
    token = signing.dumps({"approval": approval.pk, "user": user.pk}, salt=SALT)
    return reverse("escalation:approval_link", args=[token])


def opened(token: str) -> Link | None:
    """None for whatever is not a link of ours to something that is still there."""
    if len(token) > LONGEST_TOKEN:
        return None
    try:
        named: Mapping[str, int] = signing.loads(token, salt=SALT)
        approval = Approval.objects.select_related("session__cycle__watch", "decided_by")
        return Link(approval.get(pk=named["approval"]), User.objects.get(pk=named["user"]))
    except (signing.BadSignature, Approval.DoesNotExist, User.DoesNotExist, KeyError, TypeError):
        return None
