from django.apps import AppConfig
from django.db.models.signals import post_migrate, pre_migrate


class SessionsAppConfig(AppConfig):
    name = "sessions_app"
    verbose_name = "Record"

    def ready(self) -> None:
        from sessions_app.models import search

        pre_migrate.connect(search.before_migrate, sender=self)
        post_migrate.connect(search.after_migrate, sender=self)
