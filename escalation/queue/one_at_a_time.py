"""A transaction that no other process of the installation is inside at the same time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from sessions_app.models import PauseSwitch


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """SQLite takes its write lock where a transaction begins; elsewhere the switch's row is one."""
    with transaction.atomic():
        if connection.features.has_select_for_update:
            switch = PauseSwitch.objects.select_for_update().filter(pk=PauseSwitch.THE_ONE)
            if switch.first() is None:
                PauseSwitch.objects.get_or_create(pk=PauseSwitch.THE_ONE)
                switch.get()
        yield
