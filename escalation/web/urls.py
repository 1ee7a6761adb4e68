"""Endpoints that act."""

from django.urls import path

from escalation.web import (
    approval_views,
    cycle_views,
    health_views,
    incident_views,
    session_views,
    start_views,
    target_views,
    trust_views,
    views,
    walls_views,
    watch_views,
)

urlpatterns = [
    path("watches/add/", watch_views.add_watch, name="add_watch"),
    path("watches/<int:pk>/edit/", watch_views.edit_watch, name="edit_watch"),
    path("watches/<int:pk>/remove/", watch_views.remove_watch, name="remove_watch"),
    path("start/watch/", start_views.first_watch, name="first_watch"),
    path("watches/<int:pk>/run/", views.run_watch, name="run_watch"),
    path("watches/<int:pk>/pause/", views.pause_watch, name="pause_watch"),
    path("watches/<int:pk>/unpause/", views.unpause_watch, name="unpause_watch"),
    path("watches/<int:pk>/trust/set/", trust_views.set_trust, name="set_trust"),
    path("pause/", views.pause_all, name="pause_all"),
    path("unpause/", views.unpause_all, name="unpause_all"),
    path("limit/lift/", views.lift_limit, name="lift_limit"),
    path("walls/<int:pk>/accept/", walls_views.accept_walls, name="accept_walls"),
    path("targets/add/", target_views.add_target, name="add_target"),
    path("targets/<int:pk>/edit/", target_views.edit_target, name="edit_target"),
    path("targets/<int:pk>/test/", target_views.test_target, name="test_target"),
    path("targets/<int:pk>/enable/", target_views.enable_target, name="enable_target"),
    path("targets/<int:pk>/disable/", target_views.disable_target, name="disable_target"),
    path("targets/<int:pk>/remove/", target_views.remove_target, name="remove_target"),
    path("approvals/<int:pk>/approve/", approval_views.approve, name="approve"),
    path("approvals/<int:pk>/reject/", approval_views.reject, name="reject"),
    path("approvals/<int:pk>/plan/", approval_views.plan, name="plan"),
    path("approvals/link/<str:token>/", approval_views.by_link, name="approval_link"),
    path("cycles/<int:pk>/stop/", cycle_views.stop_cycle, name="stop_cycle"),
    path("healthz", health_views.healthz, name="healthz"),
    path("readyz", health_views.readyz, name="readyz"),
    path("sessions/<int:pk>/stop/", session_views.stop_session, name="stop_session"),
    path("sessions/<int:pk>/follow-up/", session_views.follow_up, name="follow_up"),
    path("sessions/<int:pk>/fork/", session_views.fork_session, name="fork_session"),
    path("sessions/<int:pk>/retry/", session_views.retry_session, name="retry_session"),
    path("sessions/<int:pk>/escalate/", session_views.escalate_session, name="escalate_session"),
    *(
        path(f"incidents/<int:pk>/{address}/", view, name=view.__name__)
        for address, view in (
            ("acknowledge", incident_views.acknowledge_incident),
            ("snooze", incident_views.snooze_incident),
            ("take", incident_views.take_incident),
            ("hand-over", incident_views.hand_over_incident),
            ("note", incident_views.note_incident),
            ("resolve", incident_views.resolve_incident),
            ("reopen", incident_views.reopen_incident),
        )
    ),
]
