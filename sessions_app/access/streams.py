"""Whether those who watch something for long still may: asked for all of them together, every few
seconds, so that two hundred viewers cost as much as one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import DatabaseError, connection
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from sessions_app.access.own_thread import own_context
from sessions_app.access.roles import Right, rights_of

logger = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 5.0
"""How long something is still shown to somebody whose right was taken."""


@dataclass(eq=False, slots=True)
class Ticket:
    """One viewer's leave to watch, for as long as it is good."""

    user_pk: int
    auth_hash: str
    """Of the password with which they came: a new one ends what was opened with the old."""
    right: Right
    is_good: bool = True

    def __enter__(self) -> Ticket:
        _keeper().add(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _keeper().remove(self)


def ticket_for(request: HttpRequest, right: Right) -> Ticket:
    """For a request that has been let in."""
    user = request.user
    assert isinstance(user, User), "a stranger was let in"
    return Ticket(user_pk=user.pk, auth_hash=user.get_session_auth_hash(), right=right)


class Keeper:
    """Looks at all tickets of one event loop."""

    def __init__(self) -> None:
        self._tickets: set[Ticket] = set()
        self._task: asyncio.Task[None] | None = None

    def add(self, ticket: Ticket) -> None:
        self._tickets.add(ticket)
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._look(), context=own_context())

    def remove(self, ticket: Ticket) -> None:
        self._tickets.discard(ticket)
        if not self._tickets and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            try:
                await sync_to_async(look_at)(tuple(self._tickets))
            except DatabaseError:
                # Without a database nothing is shown either; it is asked again.
                logger.warning("It could not be asked who still may watch", exc_info=True)
                await sync_to_async(connection.close)()


def look_at(tickets: Iterable[Ticket]) -> None:
    """Two queries."""
    tickets = list(tickets)
    users = User.objects.prefetch_related("groups").in_bulk({ticket.user_pk for ticket in tickets})
    for ticket in tickets:
        user = users.get(ticket.user_pk)
        ticket.is_good = user is not None and _may_still(user, ticket)


def _may_still(user: User, ticket: Ticket) -> bool:
    same_password = constant_time_compare(user.get_session_auth_hash(), ticket.auth_hash)
    return same_password and ticket.right in rights_of(user)


_keepers: WeakKeyDictionary[asyncio.AbstractEventLoop, Keeper] = WeakKeyDictionary()


def _keeper() -> Keeper:
    return _keepers.setdefault(asyncio.get_running_loop(), Keeper())
