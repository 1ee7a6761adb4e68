from django.apps import AppConfig


class EscalationConfig(AppConfig):
    name = "escalation"

    def ready(self) -> None:
        from escalation import checks, schedules  # noqa: F401  (register checks and signals)
