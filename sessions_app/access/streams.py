"""Rights and threads of long-lived streams.

The rights of all viewers of a process are checked together every few seconds.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from asgiref.sync import SyncToAsync, sync_to_async
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, connections
from django.http import HttpRequest
from django.utils.crypto import constant_time_compare

from sessions_app.access.roles import Right, rights_of

# Django keeps a thread and a database connection for each request until its response ends. A stream
# lasts for minutes, so it releases both, and reads for several streams run in another thread.


def own_context() -> contextvars.Context:
    """Return a context for a task that serves several requests, without a request's thread."""
    context = contextvars.copy_context()
    context.run(SyncToAsync.thread_sensitive_context.set, None)  # type: ignore[arg-type]
    return context


async def give_thread_back() -> None:
    """Release the thread of the request. It gets another one when needed."""
    await sync_to_async(_close_connections)()
    request = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(request, None) if request else None
    if executor is not None:
        executor.shutdown(wait=False)


def _close_connections() -> None:
    for opened in connections.all(initialized_only=True):
        if not opened.in_atomic_block:
            opened.close()


logger = logging.getLogger(__name__)

ASK_AGAIN_SECONDS = 5.0
"""Longest time for which a stream goes on after the right was removed."""


@dataclass(eq=False, slots=True)
class Ticket:
    """Permission of one viewer to read a stream."""

    user_pk: int
    auth_hash: str
    """Session hash of the account; a new password invalidates the ticket."""
    right: Right
    is_good: bool = True

    def __enter__(self) -> Ticket:
        _keeper().add(self)
        return self

    def __exit__(self, *_error: object) -> None:
        _keeper().remove(self)


def ticket_for(request: HttpRequest, right: Right) -> Ticket:
    """Return a ticket for a request whose right was checked."""
    user = request.user
    assert isinstance(user, User), "the request has no account"
    return Ticket(user_pk=user.pk, auth_hash=user.get_session_auth_hash(), right=right)


class Keeper:
    """Checks all tickets of one event loop."""

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
                logger.warning(
                    "Could not check the rights of stream viewers; retrying", exc_info=True
                )
                await sync_to_async(connection.close)()


def look_at(tickets: Iterable[Ticket]) -> None:
    """Update the tickets, with two queries."""
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
