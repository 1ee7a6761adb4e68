import contextlib
from pathlib import Path

from django.apps import AppConfig
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from claudeops.private_files import close_to_others
from claudeops.state_directory import make_state_directory


class ClaudeOpsConfig(AppConfig):
    name = "claudeops"

    def ready(self) -> None:
        from claudeops import checks  # noqa: F401  (registers the system checks)

        # Before the first connection: SQLite makes its file, not the directory around it.
        with contextlib.suppress(ImproperlyConfigured):  # a check says so to the operator
            make_state_directory(settings.CLAUDEOPS_STATE_DIR)
        close_to_others(Path(settings.CLAUDEOPS_STATE_DIR), *checks.database_files())
