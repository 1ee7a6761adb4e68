"""Threads and connections of what outlives a request, or lasts as long as somebody watches.

Django gives every request a thread, and the thread its connection to the database, until the
answer has ended. A stream ends after minutes: it gives both back, and what is read for several
streams runs in a thread that belongs to none of them.
"""

from __future__ import annotations

import contextvars

from asgiref.sync import SyncToAsync, sync_to_async
from django.db import connections


def own_context() -> contextvars.Context:
    """For a task that serves several requests: without the thread of the one that began it."""
    context = contextvars.copy_context()
    context.run(SyncToAsync.thread_sensitive_context.set, None)  # type: ignore[arg-type]
    return context


async def give_thread_back() -> None:
    """The request gets another one when it needs it."""
    await sync_to_async(_close_connections)()
    request = SyncToAsync.thread_sensitive_context.get(None)
    executor = SyncToAsync.context_to_thread_executor.pop(request, None) if request else None
    if executor is not None:
        executor.shutdown(wait=False)


def _close_connections() -> None:
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()
