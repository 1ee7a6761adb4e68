"""The endpoint that starts a drill."""

from django.urls import path

from escalation.rehearsal import views

urlpatterns = [
    path("drills/", views.start_drill, name="start_drill"),
]
