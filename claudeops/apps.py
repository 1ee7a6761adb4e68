import contextlib
from pathlib import Path

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin.apps import AdminConfig
from django.core.exceptions import ImproperlyConfigured

from claudeops.state import close_to_others, make_state_directory


class ClaudeOpsConfig(AppConfig):
    name = "claudeops"

    def ready(self) -> None:
        from claudeops import checks  # noqa: F401  (registers the system checks)

        # SQLite makes its file, not the directory around it.
        with contextlib.suppress(ImproperlyConfigured):  # reported by a system check
            make_state_directory(settings.CLAUDEOPS_STATE_DIR)
        close_to_others(Path(settings.CLAUDEOPS_STATE_DIR), *checks.database_files())


class OpsAdminConfig(AdminConfig):
    default_site = "sessions_app.access.admin_site.OpsAdminSite"
