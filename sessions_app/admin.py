"""The record in the admin: to be searched and read, never changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, Model, QuerySet
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app.models import Conversation, Cycle, Session, SessionEvent, Transcript
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.reading import formatting


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
    search_fields = ["watch__name", "watch_name", "drill", "outcome_reason", "prompt"]
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
        "purpose",
        "continued_by",
        "continued_guard",
        "cost",
        "cost_basis",
        "parent",
        "started_at",
    ]
    list_filter = [
        *("status", "tier", "continued_by", "continued_guard", "purpose", "cost_basis", "model"),
        "started_at",
    ]
    list_select_related = ["cycle__watch"]
    search_fields = ["session_id", "error", "escalation_reason", "request", "cycle__watch__name"]
    date_hierarchy = "started_at"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """A list reads no transcripts; the page of one session fetches them when it shows them."""
        return super().get_queryset(request).defer(*LONG_FIELDS)

    @admin.display(description="subject", ordering="cycle__watch__name")
    def page(self, session: Session) -> SafeString:
        return link_to(session, session.cycle.subject)

    @admin.display(description="tier", ordering="tier")
    def tier_number(self, session: Session) -> str:
        return str(session.tier)

    @admin.display(description="cost", ordering="cost_usd")
    def cost(self, session: Session) -> str:
        return formatting.cost(session.cost_usd, session.estimated_cost_usd)

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


@admin.register(Conversation)
class ConversationAdmin(PastAdmin):
    list_display = ["session_id", "state", "reason", "holder", "last_used_at"]
    list_filter = ["state", "last_used_at"]
    list_select_related = ["in_use_by"]
    search_fields = ["session_id", "reason"]

    @admin.display(description="in use by", ordering="in_use_by")
    def holder(self, conversation: Conversation) -> SafeString | str:
        run = conversation.in_use_by
        return link_to(run, f"#{run.pk}") if run else "–"


@admin.register(Transcript)
class TranscriptAdmin(PastAdmin):
    """Only which transcripts are kept: what they hold is on the page of the session."""

    list_display = ["session_id", "subpath", "project_key", "chunks_kept", "updated_at"]
    list_filter = ["updated_at"]
    search_fields = ["session_id", "project_key"]
    ordering = ["-updated_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        transcripts: QuerySet[Any] = super().get_queryset(request)
        counted: QuerySet[Any] = transcripts.annotate(kept=Count("chunks"))
        return counted

    @admin.display(description="chunks", ordering="kept")
    def chunks_kept(self, transcript: Any) -> int:
        return int(transcript.kept)
