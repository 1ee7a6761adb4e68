"""Normalises stored names of services: `/web` becomes `web`. Rows that then have the same name are
merged: unresolved incidents into the oldest, states of services into one with all marks."""

from typing import Any

from django.apps.registry import Apps
from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.models import Q

SLASH, KEPT_MARKS = "/", 40


def normalise(apps: Apps, schema_editor: BaseDatabaseSchemaEditor) -> None:
    normalise_incidents(apps)
    normalise_services(apps)


def normalise_incidents(apps: Apps) -> None:
    incidents = apps.get_model("sessions_app", "Incident").objects
    named = Q(cause__startswith=SLASH) | Q(cause__endswith=SLASH)
    for incident in incidents.filter(named, kind="problem").order_by("pk"):
        cause = incident.cause.strip(SLASH) or "unnamed"
        same = incidents.filter(kind="problem", scope=incident.scope, cause=cause)
        other = same.exclude(state="resolved").exclude(pk=incident.pk).first()
        if other is not None and incident.state != "resolved":
            merge(apps, incident, other)
        else:
            incidents.filter(pk=incident.pk).update(cause=cause)


def merge(apps: Apps, incident: Any, other: Any) -> None:
    for name in ("IncidentEvent", "Notification"):
        rows = apps.get_model("sessions_app", name).objects.filter(incident=incident)
        rows.update(incident=other)
    other.cycles.add(*incident.cycles.all())
    other.first_seen_at = min(other.first_seen_at, incident.first_seen_at)
    other.last_seen_at = max(other.last_seen_at, incident.last_seen_at)
    other.severity = max(other.severity, incident.severity)
    other.times_seen += incident.times_seen
    other.save()
    incident.delete()


def normalise_services(apps: Apps) -> None:
    states = apps.get_model("sessions_app", "ServiceState").objects
    named = Q(service__startswith=SLASH) | Q(service__endswith=SLASH)
    for state in states.filter(named).order_by("pk"):
        service = state.service.strip(SLASH) or "unnamed"
        other = states.filter(watch=state.watch_id, service=service).first()
        marks = {mark[0]: mark for mark in (*state.marks, *(other.marks if other else ()))}
        newer = other if other and other.seen_at >= state.seen_at else state
        newer.marks = [marks[cycle] for cycle in sorted(marks)][-KEPT_MARKS:]
        if other is not None:
            (state if newer is other else other).delete()
        newer.service, newer.name = service, newer.name.strip(SLASH) or service
        newer.save()


class Migration(migrations.Migration):
    dependencies = [("sessions_app", "0028_manifest")]

    operations = [migrations.RunPython(normalise, migrations.RunPython.noop)]
