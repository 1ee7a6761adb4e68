"""Incidents, and the questions to people."""

from __future__ import annotations

from django.contrib import admin
from django.utils.safestring import SafeString

from sessions_app.access.admin_lists import AskedOn, FirstSeenOn
from sessions_app.admin.past import PastAdmin, link_to
from sessions_app.models import Approval, Incident, IncidentEvent, ServiceState
from sessions_app.reading.plain_text import one_line


@admin.register(Incident)
class IncidentAdmin(PastAdmin):
    list_display = [
        *("id", "page", "subject", "kind", "severity", "state", "owner", "times_seen"),
        *("first_seen_at", "resolved_as"),
    ]
    list_filter = [FirstSeenOn, "state", "kind", "severity", "resolved_as", "watch"]
    list_select_related = ["watch", "owner"]
    search_fields = ["title", "cause", "watch_name", "drill", "remedy"]

    @admin.display(description="incident", ordering="title")
    def page(self, incident: Incident) -> SafeString:
        return link_to(incident, incident.title)


@admin.register(IncidentEvent)
class IncidentEventAdmin(PastAdmin):
    list_display = ["id", "page", "kind", "by", "at"]
    list_filter = ["kind", "at"]
    list_select_related = ["incident", "by"]
    search_fields = ["=incident__id", "text"]
    ordering = ["-id"]

    @admin.display(description="incident", ordering="incident")
    def page(self, event: IncidentEvent) -> SafeString:
        return link_to(event.incident, f"#{event.incident.pk}")


@admin.register(Approval)
class ApprovalAdmin(PastAdmin):
    list_display = ["id", "page", "kind", "what", "state", "decided_by", "asked_at", "expires_at"]
    list_filter = [AskedOn, "state", "kind"]
    list_select_related = ["session__cycle__watch", "decided_by"]
    search_fields = ["command", "why", "note"]

    @admin.display(description="subject")
    def page(self, approval: Approval) -> SafeString:
        return link_to(approval, approval.session.cycle.subject)

    @admin.display(description="what")
    def what(self, approval: Approval) -> str:
        return one_line(approval.command, 120) or f"Tier {approval.session.tier}"


@admin.register(ServiceState)
class ServiceStateAdmin(PastAdmin):
    list_display = ["id", "name", "watch", "status", "since", "seen_at"]
    list_filter = ["status", "watch"]
    list_select_related = ["watch"]
    search_fields = ["name", "service"]
    exclude = ["marks"]
