"""Naming a session or a watch in a terminal.

A session is named by its number, or by `latest:NAME`: the latest session of that watch.
"""

from __future__ import annotations

from django.db.models import Q

from escalation.management.refusal import Refused
from sessions_app.models import Incident, Session, Watch

LATEST = "latest:"
NOTHING_WATCHED = "Nothing is watched yet: claudeops watch add NAME DIRECTORY adds a watch."
SESSION_HELP = f"the number of the session, or {LATEST}NAME for the latest session of a watch"


def session_named(reference: str) -> Session:
    sessions = Session.objects.select_related("cycle__watch", "parent_session")
    if reference.startswith(LATEST):
        name = reference.removeprefix(LATEST)
        latest = sessions.filter(of_watch(name)).order_by("-pk").first()
        if latest is None:
            raise Refused(f"The watch {name} has no session yet.")
        return latest
    number = _number(reference)
    if number is None:
        raise Refused(f"{reference!r} names no session. Give {SESSION_HELP}.")
    session = sessions.filter(pk=number).first()
    if session is None:
        raise Refused(f"There is no session {number}.")
    return session


def incident_named(reference: str) -> Incident:
    number = _number(reference)
    if number is None:
        raise Refused(f"{reference!r} names no incident. Give its number: see incident list.")
    incident = Incident.objects.select_related("watch", "owner").filter(pk=number).first()
    if incident is None:
        raise Refused(f"There is no incident {number}.")
    return incident


def _number(reference: str) -> int | None:
    number = reference.removeprefix("#")
    is_one = number.isascii() and number.isdecimal() and len(number) < 19
    return int(number) if is_one else None


def of_watch(name: str) -> Q:
    """The sessions of a watch, also of one that was removed. Refuses a name that nobody knows."""
    if Watch.objects.filter(name=name).exists():
        return Q(cycle__watch__name=name)
    removed = Q(cycle__watch=None, cycle__drill="", cycle__watch_name=name)
    if not Session.objects.filter(removed).exists():
        raise Refused(_unknown(name))
    return removed


def watch_named(name: str) -> Watch:
    watch = Watch.objects.select_related("schedule").filter(name=name).first()
    if watch is None:
        raise Refused(_unknown(name))
    return watch


def _unknown(name: str) -> str:
    known = ", ".join(Watch.objects.values_list("name", flat=True))
    if not known:
        return f"There is no watch {name!r}. {NOTHING_WATCHED}"
    return f"There is no watch {name!r}. Known watches: {known}."
