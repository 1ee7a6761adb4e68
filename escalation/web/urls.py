"""Endpoints that act."""

from django.urls import path

from escalation.web import health_views, session_views, views

urlpatterns = [
    path("watches/<int:pk>/run/", views.run_watch, name="run_watch"),
    path("watches/<int:pk>/pause/", views.pause_watch, name="pause_watch"),
    path("watches/<int:pk>/unpause/", views.unpause_watch, name="unpause_watch"),
    path("pause/", views.pause_all, name="pause_all"),
    path("unpause/", views.unpause_all, name="unpause_all"),
    path("healthz", health_views.healthz, name="healthz"),
    path("readyz", health_views.readyz, name="readyz"),
    path("sessions/<int:pk>/stop/", session_views.stop_session, name="stop_session"),
    path("sessions/<int:pk>/follow-up/", session_views.follow_up, name="follow_up"),
    path("sessions/<int:pk>/fork/", session_views.fork_session, name="fork_session"),
    path("sessions/<int:pk>/retry/", session_views.retry_session, name="retry_session"),
    path("sessions/<int:pk>/escalate/", session_views.escalate_session, name="escalate_session"),
]
