from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class SessionsAppConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Record"

    def ready(self) -> None:
        from sessions_app.models import search_triggers

        pre_migrate.connect(search_triggers.before_migrate, sender=self)
        post_migrate.connect(search_triggers.after_migrate, sender=self)
