import contextlib
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.contrib.admin import autodiscover, site
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_dependencies
from django.core.checks import CheckMessage, Tags, register
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


class OpsAdminConfig(SimpleAdminConfig):
    """The admin, which `claudeops/urls.py` loads with the pages: commands do not need it."""

    default_site = "sessions_app.access.admin_site.OpsAdminSite"

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_admin, Tags.admin)


def check_admin(**options: Any) -> list[CheckMessage]:
    """Run Django's checks of the admin, which see only what is loaded."""
    autodiscover()
    return site.check(options.get("app_configs"))
