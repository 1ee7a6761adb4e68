from django.apps import AppConfig


class EscalationConfig(AppConfig):
    name = "escalation"

    def ready(self) -> None:
        from escalation import checks  # noqa: F401  (register checks and signals)
        from escalation.host import schedules  # noqa: F401  (register checks and signals)
