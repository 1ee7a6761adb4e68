"""All endpoints that act, under one name: those on real systems, and those that rehearse."""

from django.urls import include, path

app_name = "escalation"

urlpatterns = [
    path("", include("escalation.web.urls")),
    path("", include("escalation.rehearsal.urls")),
]
