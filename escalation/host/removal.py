"""A watch is removed: nobody looks after it any more, and the record keeps its name."""

from __future__ import annotations

from django.db import transaction

from escalation.errors import OperationRefused
from sessions_app.models import Cycle, Watch


def remove(watch: Watch) -> None:
    with transaction.atomic():
        active = Cycle.active_of(watch)
        if active is not None:
            raise OperationRefused(
                f"Cycle {active.pk} of {watch.name} is still {active.get_state_display()}: wait "
                "for it to finish, or stop its session first."
            )
        watch.delete()
