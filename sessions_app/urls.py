"""Pages that show."""

from django.urls import path

from sessions_app.pages import transcript_views, views

app_name = "sessions_app"

urlpatterns = [
    path("", views.dashboard, name="dashboard"),
    path("sessions/", views.sessions, name="sessions"),
    path("sessions/<int:pk>/", views.session, name="session"),
    path("sessions/<int:pk>/live/", views.session_live, name="session_live"),
    path("sessions/<int:pk>/events/", views.session_events, name="session_events"),
    path("sessions/<int:pk>/transcript/", transcript_views.transcript, name="transcript"),
    path("costs/", views.costs, name="costs"),
    path("cycles/<int:pk>/", views.cycle, name="cycle"),
]
