"""Configuration of the app: registers checks, schedules and providers at start-up."""

from django.apps import AppConfig


class EscalationConfig(AppConfig):
    name = "escalation"

    def ready(self) -> None:
        from escalation import checks  # noqa: F401  (registers the system checks)
        from escalation.drills.drill import drill_environment
        from escalation.run.runner import provide_for_drills
        from escalation.worker import schedules  # noqa: F401  (keeps schedules in step with watches)

        provide_for_drills(drill_environment)
