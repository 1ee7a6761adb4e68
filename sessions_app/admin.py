"""The record in the admin: to be searched and read, never changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app.formatting import money
from sessions_app.models import Cycle, Session, SessionEvent


def link_to(target: Session | Cycle, text: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', target.get_absolute_url(), text)


class PastAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Records of the past: a history that can be edited proves nothing."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


@admin.register(Cycle)
class CycleAdmin(PastAdmin):
    list_display = ["id", "page", "trigger", "requested_by", "state", "outcome", "created_at"]
    list_filter = ["state", "outcome", "trigger", "dry_run", "watch", "created_at"]
    list_select_related = ["watch", "requested_by"]
    search_fields = ["watch__name", "drill", "outcome_reason", "prompt"]
    date_hierarchy = "created_at"

    @admin.display(description="subject", ordering="watch__name")
    def page(self, cycle: Cycle) -> SafeString:
        return link_to(cycle, cycle.subject)


@admin.register(Session)
class SessionAdmin(PastAdmin):
    list_display = [
        "id",
        "page",
        "tier_number",
        "model",
        "status",
        "cost",
        "parent",
        "started_at",
    ]
    list_filter = ["status", "tier", "continued_by", "purpose", "model", "started_at"]
    list_select_related = ["cycle__watch"]
    search_fields = ["session_id", "error", "escalation_reason", "cycle__watch__name"]
    date_hierarchy = "started_at"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """A list reads no transcripts; the page of one session fetches them when it shows them."""
        return super().get_queryset(request).defer("prompt", "result", "argv", "report")

    @admin.display(description="subject", ordering="cycle__watch__name")
    def page(self, session: Session) -> SafeString:
        return link_to(session, session.cycle.subject)

    @admin.display(description="tier", ordering="tier")
    def tier_number(self, session: Session) -> str:
        return str(session.tier)

    @admin.display(description="cost", ordering="cost_usd")
    def cost(self, session: Session) -> str:
        return money(session.cost_usd)

    @admin.display(description="parent", ordering="parent_session")
    def parent(self, session: Session) -> SafeString | str:
        number = session.parent_session_id
        return link_to(Session(pk=number), f"#{number}") if number else "–"


@admin.register(SessionEvent)
class SessionEventAdmin(PastAdmin):
    list_display = ["id", "page", "sequence", "source", "kind", "created_at"]
    list_filter = ["source", "kind"]
    list_select_related = ["session"]
    search_fields = ["=session__id", "kind"]
    ordering = ["-id"]

    @admin.display(description="session", ordering="session")
    def page(self, event: SessionEvent) -> SafeString:
        return link_to(event.session, f"#{event.session.pk}")
