"""A transaction that no other process of the installation is inside at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from sessions_app.models import PauseSwitch


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """SQLite takes its write lock where a transaction begins; elsewhere the switch's row is one.

    Whoever changes a session or its sums in such a transaction enters it **first**. To take the
    session's row and then this lock, while a start has this lock and wants the row, is a deadlock.
    """
    with transaction.atomic():
        if connection.features.has_select_for_update:
            switch = PauseSwitch.objects.select_for_update().filter(pk=PauseSwitch.THE_ONE)
            if switch.first() is None:
                PauseSwitch.objects.get_or_create(pk=PauseSwitch.THE_ONE)
                switch.get()
        yield
