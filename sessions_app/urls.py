"""Pages that show."""

from django.urls import path

from sessions_app.pages import (
    approvals_views,
    chain_views,
    changes_views,
    cycles_views,
    health_views,
    incident_views,
    live_views,
    record_views,
    start_views,
    target_views,
    transcript_views,
    trust_views,
    views,
    walls_views,
    watch_views,
)

app_name = "sessions_app"

urlpatterns = [
    path("", views.dashboard, name="dashboard"),
    path("start/", start_views.start, name="start"),
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/<int:pk>/", views.session, name="session"),
    path("sessions/<int:pk>/live/", live_views.session_live, name="session_live"),
    path("sessions/<int:pk>/events/", views.session_events, name="session_events"),
    path("sessions/<int:pk>/transcript/", transcript_views.transcript, name="transcript"),
    path("sessions/<int:pk>/commands/", walls_views.session_commands, name="session_commands"),
    path("incidents/", incident_views.incidents, name="incidents"),
    path("incidents/<int:pk>/", incident_views.incident, name="incident"),
    path("watches/", watch_views.watches, name="watches"),
    path("watches/new/", watch_views.new_watch, name="new_watch"),
    path("watches/<int:pk>/", watch_views.watch, name="watch"),
    path("watches/<int:pk>/settings/", watch_views.watch_settings, name="watch_settings"),
    path("watches/<int:pk>/removal/", watch_views.watch_removal, name="watch_removal"),
    path("services/", record_views.services, name="services"),
    path("events/", record_views.events, name="events"),
    path("watches/<int:pk>/trust/", trust_views.trust, name="trust"),
    path("approvals/", approvals_views.approvals, name="approvals"),
    path("approvals/<int:pk>/", approvals_views.approval, name="approval"),
    path("walls/", walls_views.walls, name="walls"),
    path("targets/", target_views.targets, name="targets"),
    path("targets/<int:pk>/", target_views.target, name="target"),
    path("health/", health_views.health, name="health"),
    path("costs/", views.costs, name="costs"),
    path("changes/", changes_views.changes, name="changes"),
    path("cycles/", cycles_views.cycles, name="cycles"),
    path("cycles/<int:pk>/", chain_views.cycle, name="cycle"),
    path("cycles/<int:pk>/live/", live_views.cycle_live, name="cycle_live"),
    path("cycles/<int:pk>/events/", chain_views.cycle_events, name="cycle_events"),
]
