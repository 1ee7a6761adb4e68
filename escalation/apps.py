"""Configuration of the app: registers checks and schedules at start-up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from django.apps import AppConfig

if TYPE_CHECKING:
    from sessions_app.models import Session


class EscalationConfig(AppConfig):
    name = "escalation"

    def ready(self) -> None:
        from escalation import checks  # noqa: F401  (registers the system checks)
        from escalation.worker import schedules  # noqa: F401  (keeps schedules in step with watches)

    def drill_environment(self, session: Session) -> AbstractContextManager[Mapping[str, str]]:
        """Return what a drill adds to its session's environment; `run` does not import drills."""
        from escalation.drills.drill import drill_environment

        return drill_environment(session)
