"""Django's admin, with the site that asks our table of roles."""

from __future__ import annotations

from django.contrib.admin.apps import AdminConfig


class OpsAdminConfig(AdminConfig):
    default_site = "sessions_app.access.admin_site.OpsAdminSite"
