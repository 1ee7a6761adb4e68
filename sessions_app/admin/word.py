"""Whom people are told by, and what they were told."""

from __future__ import annotations

from django.contrib import admin

from sessions_app.access.roles import Right
from sessions_app.admin.past import PastAdmin
from sessions_app.models import Happening, Message, Target


@admin.register(Target)
class TargetAdmin(PastAdmin):
    """To look at: a target is made and changed on its own page. Its address is shown nowhere."""

    seen_with = Right.MANAGE_KEYS
    list_display = ["name", "service", "enabled", "last_sent_at", "failures_in_a_row", "last_error"]
    list_filter = ["enabled"]
    search_fields = ["name", "service"]
    exclude = ["sealed_address"]


@admin.register(Happening)
class HappeningAdmin(PastAdmin):
    list_display = ["id", "kind", "severity", "title", "watch", "at", "passed_on_at"]
    list_filter = ["kind", "severity", "at"]
    list_select_related = ["watch"]
    search_fields = ["title", "text"]
    ordering = ["-id"]


@admin.register(Message)
class MessageAdmin(PastAdmin):
    list_display = ["id", "target", "title", "state", "tries", "due_at", "sent_at", "error"]
    list_filter = ["state", "target", "created_at"]
    list_select_related = ["target"]
    search_fields = ["title", "body", "error"]
    exclude = ["happenings"]
