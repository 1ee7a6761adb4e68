"""Conversations of the CLI, and what is kept of them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils.safestring import SafeString

from sessions_app.admin.past import PastAdmin, link_to
from sessions_app.models import Conversation, Session, Transcript, TranscriptChunk


@admin.register(Conversation)
class ConversationAdmin(PastAdmin):
    list_display = ["session_id", "state", "reason", "holder", "last_used_at"]
    list_filter = ["state", "last_used_at"]
    search_fields = ["session_id__exact"]
    search_help_text = "The whole id of a conversation"
    sortable_by = ("last_used_at",)

    @admin.display(description="in use by")
    def holder(self, conversation: Conversation) -> SafeString | str:
        number = conversation.in_use_by_id
        return link_to(Session(pk=number), f"#{number}") if number else "–"


@admin.register(Transcript)
class TranscriptAdmin(PastAdmin):
    """Only which transcripts are kept: what they hold is on the page of the session."""

    list_display = ["session_id", "subpath", "project_key", "chunks_kept", "updated_at"]
    list_filter = ["updated_at"]
    search_fields = ["session_id__exact", "project_key__exact"]
    search_help_text = "The whole id of a conversation, or a whole project key"
    sortable_by = ("updated_at",)
    ordering = ["-updated_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Counted for the rows that are shown, not for all."""
        transcripts: QuerySet[Any] = super().get_queryset(request)
        own = TranscriptChunk.objects.filter(transcript=OuterRef("pk")).order_by()
        counts = own.values("transcript").annotate(count=Count("pk")).values("count")
        counted: QuerySet[Any] = transcripts.annotate(kept=Coalesce(Subquery(counts), 0))
        return counted

    @admin.display(description="chunks")
    def chunks_kept(self, transcript: Any) -> int:
        return int(transcript.kept)
