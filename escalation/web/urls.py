"""URL patterns of the web interface."""

from django.urls import path, re_path

from escalation.web import (
    approvals,
    autonomy,
    changes,
    channels,
    costs,
    cycle,
    cycle_list,
    drills,
    events,
    health,
    incidents,
    ingress,
    live,
    overview,
    probes,
    remedies,
    responses,
    sandbox,
    sessions,
    sources,
    start,
    transcripts,
    watches,
)

app_name = "web"

pages = [
    path("", overview.overview, name="overview"),
    path("start/", start.start, name="start"),
    path("sessions/", sessions.sessions, name="sessions"),
    path("sessions/<int:pk>/", sessions.session, name="session"),
    path("sessions/<int:pk>/live/", live.session_live, name="session_live"),
    path("sessions/<int:pk>/events/", sessions.session_events, name="session_events"),
    path("sessions/<int:pk>/transcript/", transcripts.transcript, name="transcript"),
    path("sessions/<int:pk>/commands/", sandbox.session_commands, name="session_commands"),
    path("incidents/", incidents.incidents, name="incidents"),
    path("incidents/<int:pk>/", incidents.incident, name="incident"),
    path("watches/", watches.watches, name="watches"),
    path("watches/new/", watches.new_watch, name="new_watch"),
    path("watches/<int:pk>/", watches.watch, name="watch"),
    path("watches/<int:pk>/settings/", watches.watch_settings, name="watch_settings"),
    path("watches/<int:pk>/removal/", watches.watch_removal, name="watch_removal"),
    path("watches/<int:pk>/probes/", probes.probes, name="probes"),
    path("services/", events.services, name="services"),
    path("events/", events.events, name="events"),
    path("watches/<int:pk>/autonomy/", autonomy.autonomy, name="autonomy"),
    path("watches/<int:pk>/remedies/", remedies.watch_remedies, name="watch_remedies"),
    path("remedies/<int:pk>/", remedies.remedy, name="remedy"),
    path("approvals/", approvals.approval_list, name="approvals"),
    path("approvals/<int:pk>/", approvals.approval, name="approval"),
    path("sandbox/", sandbox.sandbox, name="sandbox"),
    path("channels/", channels.channels, name="channels"),
    path("channels/<int:pk>/", channels.channel, name="channel"),
    path("sources/", sources.sources, name="sources"),
    path("sources/<int:pk>/", sources.source, name="source"),
    path("health/", health.health, name="health"),
    path("costs/", costs.costs, name="costs"),
    path("changes/", changes.changes, name="changes"),
    path("changes/<int:pk>/", changes.change, name="change"),
    path("cycles/", cycle_list.cycles, name="cycles"),
    path("cycles/<int:pk>/", cycle.cycle, name="cycle"),
    path("cycles/<int:pk>/live/", live.cycle_live, name="cycle_live"),
    path("cycles/<int:pk>/events/", cycle.cycle_events, name="cycle_events"),
]

actions = [
    path("watches/add/", watches.add_watch, name="add_watch"),
    path("watches/<int:pk>/edit/", watches.edit_watch, name="edit_watch"),
    path("watches/<int:pk>/remove/", watches.remove_watch, name="remove_watch"),
    path("watches/<int:pk>/manifest/", watches.accept_manifest, name="accept_manifest"),
    path("start/watch/", start.first_watch, name="first_watch"),
    path("watches/<int:pk>/run/", watches.run_watch, name="run_watch"),
    path("watches/<int:pk>/pause/", watches.pause_watch, name="pause_watch"),
    path("watches/<int:pk>/unpause/", watches.unpause_watch, name="unpause_watch"),
    path("watches/<int:pk>/autonomy/set/", autonomy.set_autonomy, name="set_autonomy"),
    path("watches/<int:pk>/probes/add/", probes.add_probe, name="add_probe"),
    path("probes/<int:pk>/run/", probes.run_probe, name="run_probe"),
    path("probes/<int:pk>/mute/", probes.mute_probe, name="mute_probe"),
    path("probes/<int:pk>/remove/", probes.remove_probe, name="remove_probe"),
    path("watches/<int:pk>/maintenance/start/", probes.start_maintenance, name="start_maintenance"),
    path("watches/<int:pk>/maintenance/end/", probes.end_maintenance, name="end_maintenance"),
    path("watches/<int:pk>/remedies/add/", remedies.add_remedy, name="add_remedy"),
    path("watches/<int:pk>/remedies/adopt/", remedies.adopt_remedy, name="adopt_remedy"),
    path("remedies/<int:pk>/edit/", remedies.edit_remedy, name="edit_remedy"),
    path("remedies/<int:pk>/accept/", remedies.accept_remedy, name="accept_remedy"),
    path("remedies/<int:pk>/remove/", remedies.remove_remedy, name="remove_remedy"),
    path("remedies/<int:pk>/run/", remedies.run_remedy, name="run_remedy"),
    path("pause/", overview.pause_all, name="pause_all"),
    path("unpause/", overview.unpause_all, name="unpause_all"),
    path("limit/lift/", overview.lift_limit, name="lift_limit"),
    path("sandbox/<int:pk>/accept/", sandbox.accept_proof, name="accept_proof"),
    path("channels/add/", channels.add_channel, name="add_channel"),
    path("channels/<int:pk>/edit/", channels.edit_channel, name="edit_channel"),
    path("channels/<int:pk>/test/", channels.test_channel, name="test_channel"),
    path("channels/<int:pk>/enable/", channels.enable_channel, name="enable_channel"),
    path("channels/<int:pk>/disable/", channels.disable_channel, name="disable_channel"),
    path("channels/<int:pk>/remove/", channels.remove_channel, name="remove_channel"),
    path("sources/add/", sources.add_source, name="add_source"),
    path("sources/<int:pk>/edit/", sources.edit_source, name="edit_source"),
    path("sources/<int:pk>/renew/", sources.renew_source, name="renew_source"),
    path("sources/<int:pk>/test/", sources.test_source, name="test_source"),
    path("sources/<int:pk>/enable/", sources.enable_source, name="enable_source"),
    path("sources/<int:pk>/disable/", sources.disable_source, name="disable_source"),
    path("sources/<int:pk>/remove/", sources.remove_source, name="remove_source"),
    path("approvals/<int:pk>/approve/", approvals.approve, name="approve"),
    path("approvals/<int:pk>/reject/", approvals.reject, name="reject"),
    path("approvals/<int:pk>/plan/", approvals.plan, name="plan"),
    path("approvals/link/<str:token>/", approvals.by_link, name="approval_link"),
    path("changes/<int:pk>/undo/", changes.undo_change, name="undo_change"),
    path("cycles/<int:pk>/stop/", cycle.stop_cycle, name="stop_cycle"),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("sessions/<int:pk>/stop/", sessions.stop_session, name="stop_session"),
    path("sessions/<int:pk>/follow-up/", sessions.follow_up, name="follow_up"),
    path("sessions/<int:pk>/fork/", sessions.fork_session, name="fork_session"),
    path("sessions/<int:pk>/retry/", sessions.retry_session, name="retry_session"),
    path("sessions/<int:pk>/escalate/", sessions.escalate_session, name="escalate_session"),
    path("sessions/<int:pk>/tell/", sessions.tell_session, name="tell_session"),
    path("sessions/<int:pk>/allow/", sessions.allow_session, name="allow_session"),
    *(
        path(f"incidents/<int:pk>/{address}/", view, name=view.__name__)
        for address, view in (
            ("acknowledge", incidents.acknowledge_incident),
            ("snooze", incidents.snooze_incident),
            ("take", incidents.take_incident),
            ("hand-over", incidents.hand_over_incident),
            ("note", incidents.note_incident),
            ("resolve", incidents.resolve_incident),
            ("reopen", incidents.reopen_incident),
        )
    ),
    path("drills/", drills.start_drill, name="start_drill"),
]

# Called by other systems, with a token in the address or in the body.
from_outside = [
    path("in/<str:token>", ingress.deliver, name="deliver"),
    path("in/<str:token>/<path:rest>", ingress.deliver, name="deliver_below"),
    path("v2/enqueue", ingress.enqueue, name="enqueue"),
]

# Called by jobs, without a login.
heartbeats = [
    path("heartbeat/<str:token>", probes.heartbeat, name="heartbeat"),
    path("heartbeat/<str:token>/<str:part>", probes.heartbeat, name="heartbeat_part"),
]

# Addresses of versions before 0.3, by the expression that matches them.
moved = {
    r"^walls/(?P<rest>.*)$": "/sandbox/{rest}",
    r"^targets/(?P<rest>.*)$": "/channels/{rest}",
    r"^watches/(?P<pk>[0-9]+)/trust/(?P<rest>.*)$": "/watches/{pk}/autonomy/{rest}",
}

urlpatterns = [
    *pages,
    *actions,
    *heartbeats,
    *from_outside,
    *(re_path(old, responses.moved, {"to": new}, name="moved") for old, new in moved.items()),
]
