from django.apps import AppConfig


class ClaudeOpsConfig(AppConfig):
    name = "claudeops"

    def ready(self) -> None:
        from claudeops import checks  # noqa: F401  (registers the system checks)
