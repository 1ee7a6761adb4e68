"""What people do outside the admin stands in the admin's own log too: one list of who did what."""

from __future__ import annotations

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import AnonymousUser, User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Model

LONGEST_NAME = 200


def note_added(user: User | AnonymousUser, thing: Model) -> None:
    _note(user, thing, ADDITION, "")


def note_changed(user: User | AnonymousUser, thing: Model, what: str) -> None:
    _note(user, thing, CHANGE, what)


def note_removed(user: User | AnonymousUser, thing: Model) -> None:
    """Before it is gone: afterwards it has no number."""
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
