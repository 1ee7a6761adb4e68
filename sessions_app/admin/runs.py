"""Cycles, the runs of their tiers, and what those said."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.utils.safestring import SafeString

from sessions_app.access.admin_lists import CreatedOn, FoundByWords, among_latest, lately_seen
from sessions_app.admin.cost_summary import costs_by_tier
from sessions_app.admin.past import LONGEST_WORD, PastAdmin, ReadInline, link_to
from sessions_app.models import Cycle, Session, SessionEvent
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.models.search import number_in
from sessions_app.reading import formatting
from sessions_app.reading.plain_text import one_line


class ChainInline(ReadInline):
    """The runs of a cycle, in the order in which they began."""

    model = Session
    fk_name = "cycle"
    verbose_name_plural = "chain"
    ordering = ("id",)
    fields = readonly_fields = (
        *("page", "came_from", "tier", "status", "purpose", "asked_model", "continued_by"),
        *("cost", "took"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        runs: QuerySet[Any] = super().get_queryset(request)
        return runs.defer(*LONG_FIELDS)

    @admin.display(description="session")
    def page(self, session: Session) -> SafeString:
        return link_to(session, f"#{session.pk}")

    @admin.display(description="after")
    def came_from(self, session: Session) -> str:
        return f"#{session.parent_session_id}" if session.parent_session_id else "–"

    @admin.display(description="model")
    def asked_model(self, session: Session) -> str:
        return one_line(session.model, LONGEST_WORD)

    @admin.display(description="cost")
    def cost(self, session: Session) -> str:
        return formatting.cost(session.cost_usd, session.estimated_cost_usd)

    @admin.display(description="took")
    def took(self, session: Session) -> str:
        return formatting.duration(session.duration_ms)


@admin.register(Cycle)
class CycleAdmin(FoundByWords, PastAdmin):
    list_display = ["id", "page", "trigger", "requested_by", "state", "outcome", "created_at"]
    list_filter = [CreatedOn, "state", "outcome", "trigger", "dry_run", "watch"]
    list_select_related = ["watch", "requested_by"]
    search_fields = ["pk"]
    search_help_text = "Part of a reason, a request, a name, an error or an id"
    matched_by = "sessions"
    inlines = (ChainInline,)

    @admin.display(description="subject")
    def page(self, cycle: Cycle) -> SafeString:
        return link_to(cycle, cycle.subject)


@admin.register(Session)
class SessionAdmin(FoundByWords, PastAdmin):
    list_display = [
        *("id", "page", "tier_number", "asked_model", "status", "purpose"),
        *("continued", "cost", "parent", "started"),
    ]
    change_list_template = "admin/sessions_app/session/change_list.html"
    list_filter = [
        *(CreatedOn, "status", "tier", "watch", "continued_by", lately_seen("continued_guard")),
        *("purpose", "cost_basis", lately_seen("model")),
    ]
    list_select_related = ["cycle__watch"]
    search_fields = ["pk"]
    list_per_page = 30
    search_help_text = "#18, or part of an id, an error, a reason, a request or a name"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """A list reads nothing that is long; the page of one session shows all of it."""
        sessions: QuerySet[Any] = super().get_queryset(request)
        found = request.resolver_match
        if found is not None and str(found.url_name).endswith("_changelist"):
            return sessions.defer(*LONG_FIELDS)
        return sessions.select_related("cycle__watch", "parent_session", "requested_by")

    @admin.display(description="subject")
    def page(self, session: Session) -> SafeString:
        return link_to(session, session.cycle.subject)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """With what the runs of the list cost together, by tier."""
        response: HttpResponse = super().changelist_view(request, extra_context)
        context = getattr(response, "context_data", None)
        if context and "cl" in context:
            context["tier_costs"] = costs_by_tier(context["cl"].queryset)
        return response

    @admin.display(description="model")
    def asked_model(self, session: Session) -> str:
        return one_line(session.model, LONGEST_WORD)

    @admin.display(description="continued")
    def continued(self, session: Session) -> str:
        """How, and which guard forbade another way."""
        guard = f" ({one_line(session.continued_guard, LONGEST_WORD)})"
        return session.continued_by + (guard if session.continued_guard else "")

    @admin.display(description="started")
    def started(self, session: Session) -> str:
        if session.started_at is None:
            return "–"
        return timezone.localtime(session.started_at).strftime("%Y-%m-%d %H:%M")

    @admin.display(description="tier")
    def tier_number(self, session: Session) -> str:
        return str(session.tier)

    @admin.display(description="cost")
    def cost(self, session: Session) -> str:
        return formatting.cost(session.cost_usd, session.estimated_cost_usd)

    @admin.display(description="parent")
    def parent(self, session: Session) -> SafeString | str:
        number = session.parent_session_id
        return link_to(Session(pk=number), f"#{number}") if number else "–"


@admin.register(SessionEvent)
class SessionEventAdmin(PastAdmin):
    list_display = ["id", "page", "sequence", "source", "kind", "created_at"]
    list_filter = [lately_seen("source", indexed=False), lately_seen("kind", indexed=False)]
    search_fields = ["session"]
    search_help_text = "The number of a session, or a kind of event"
    ordering = ["-id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """What was said stands on the page of one event."""
        return super().get_queryset(request).defer("payload")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        number = number_in(search_term)
        if number is not None:
            return queryset.filter(session=number), False
        kind = search_term.strip()
        return (among_latest(queryset).filter(kind=kind) if kind else queryset), False

    @admin.display(description="session")
    def page(self, event: SessionEvent) -> SafeString:
        return link_to(Session(pk=event.session_id), f"#{event.session_id}")
