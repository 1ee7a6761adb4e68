"""Endpoints that act."""

from django.urls import path

from escalation import views

app_name = "escalation"

urlpatterns = [
    path("watches/<int:pk>/run/", views.run_watch, name="run_watch"),
    path("watches/<int:pk>/pause/", views.pause_watch, name="pause_watch"),
    path("watches/<int:pk>/resume/", views.resume_watch, name="resume_watch"),
    path("drills/", views.start_drill, name="start_drill"),
]
