"""The admin: records are read, watches are edited, and actions start, stop and answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.db.models import Count, Model, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from escalation.errors import OperationRefused
from escalation.incidents import recorder as incidents_by_person
from escalation.run.manifest import accept_first
from escalation.supervisor import approval_answers as answers
from escalation.supervisor import cycles, manual
from escalation.supervisor.successors import what_it_waits_for
from escalation.web.sessions import dollars_in
from escalation.web.watches import grants_table
from sessions_app import text
from sessions_app.access.admin_site import (
    AskedOn,
    BoundedPaginator,
    CreatedOn,
    FirstSeenOn,
    FoundByWords,
    TableAdmin,
    among_latest,
    drills_apart,
    lately_seen,
)
from sessions_app.access.roles import Right, may
from sessions_app.costs.check import check_costs
from sessions_app.history.chain import chain_of, session_cost
from sessions_app.models import (
    Alert,
    ApiToken,
    AppliedDeclaration,
    Approval,
    BudgetNotice,
    Change,
    Channel,
    Conversation,
    Cycle,
    DailyVerdict,
    Delivery,
    HeartbeatPing,
    Incident,
    IncidentEvent,
    Maintenance,
    Manifest,
    Message,
    MetricTotal,
    Notification,
    PauseSwitch,
    PeriodCost,
    Probe,
    ProbeChange,
    ProbeLease,
    ProbeProposal,
    ProbeSum,
    RateLimit,
    RefusedDeliveries,
    Remedy,
    RemedyRun,
    SandboxProof,
    ServiceState,
    Session,
    SessionEvent,
    Source,
    TelegramBot,
    TraceExport,
    Transcript,
    TranscriptChunk,
    Watch,
    WorkerHeartbeat,
)
from sessions_app.models.search import number_in
from sessions_app.models.session import LONG_FIELDS
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean, money, one_line

# Costs of the listed sessions by tier; they follow the filters and the search.

MOST_ADDED = 2_000
"""Newest matching sessions that are added up, so that a large table stays fast."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCostSummary:
    tier: int
    runs: int
    cost_usd: Decimal
    without_figure: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TierCosts:
    tiers: tuple[TierCostSummary, ...]

    @property
    def runs(self) -> int:
        return sum(tier.runs for tier in self.tiers)

    @property
    def total(self) -> Decimal:
        return sum((tier.cost_usd for tier in self.tiers), Decimal(0))

    @property
    def is_cut(self) -> bool:
        return self.runs >= MOST_ADDED


def costs_by_tier(listed: QuerySet[Session]) -> TierCosts:
    """Add up the listed sessions without drills, which nobody pays."""
    newest = listed.order_by("-pk").values("pk")[:MOST_ADDED]
    real = Session.objects.real().filter(pk__in=newest)
    added: Any = real.order_by("tier").values("tier")
    rows = added.annotate(
        runs=Count("pk"),
        spent=Sum("cost_usd", default=Decimal(0)),
        without=Count("pk", filter=Q(cost_usd=None, finished_at__isnull=False)),
    )
    return TierCosts(
        tiers=tuple(
            TierCostSummary(
                tier=row["tier"],
                runs=row["runs"],
                cost_usd=row["spent"],
                without_figure=row["without"],
            )
            for row in rows
        )
    )


# Read-only pages of records.

LONGEST_WORD = 24
"""Characters of a name in a list; the page of the row shows all of it."""


def link_to(target: Session | Cycle | Incident | Approval, text: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', target.get_absolute_url(), text)


class PastAdmin(TableAdmin):
    """Read-only admin of a record."""

    list_per_page = 50
    show_full_result_count = False
    paginator = BoundedPaginator
    show_facets = admin.ShowFacets.NEVER  # counting facets would scan the whole table
    # Any other column would sort the whole table.
    sortable_by = ("id",)


class ReadInline(admin.TabularInline):  # type: ignore[type-arg]
    """Read-only rows of a parent's page."""

    extra = 0
    max_num = 0
    can_delete = False
    show_change_link = True

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, Right.SEE_OUTPUT)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


# Cycles, sessions and events.


class ChainInline(ReadInline):
    """Sessions of a cycle in the order of their start."""

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
        return session_cost(session)

    @admin.display(description="took")
    def took(self, session: Session) -> str:
        return text.duration(session.duration_ms)


@admin.register(Cycle)
class CycleAdmin(FoundByWords, PastAdmin):
    list_display = ["id", "page", "trigger", "requested_by", "state", "outcome", "created_at"]
    list_filter = [
        *(CreatedOn, drills_apart("drill")),
        *("state", "outcome", "trigger", "dry_run", "watch"),
    ]
    list_select_related = ["watch", "requested_by"]
    search_fields = ["pk"]
    search_help_text = "Part of a reason, a request, a name, an error or an id"
    matched_by = "sessions"
    inlines = (ChainInline,)

    @admin.display(description="subject")
    def page(self, cycle: Cycle) -> SafeString:
        return link_to(cycle, cycle.subject)


class RequestActionForm(ActionForm):
    """Text field of the session actions: a question, an approach or a reason."""

    request = forms.CharField(required=False, label="Question, approach, reason or note:")
    budget = forms.CharField(required=False, label="Dollars (to allow a tier once):")


SESSION_STORY = (
    *("cycle", "parent_session", "tier", "purpose", "status", "requested_by", "request"),
    *("escalation_reason", "error", "report", "started_at", "finished_at"),
)
SESSION_GROUPS = {
    "Cost and tokens": (
        *("cost_usd", "reported_cost_usd", "baseline_cost_usd", "spent_so_far_usd"),
        *("estimated_cost_usd", "cost_basis", "max_budget_usd", "allowed_once"),
        *("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens"),
        *("context_tokens", "context_window", "turns", "max_turns", "messages", "duration_ms"),
    ),
    "Conversation": (
        *("session_id", "model", "model_used", "continued_by", "continued_why"),
        *("continued_guard", "continuation_facts", "force_fresh", "handoff", "compactions"),
        *("prompt", "result"),
    ),
}
IN_GROUPS = {*SESSION_STORY, *(name for names in SESSION_GROUPS.values() for name in names)}


@admin.register(Session)
class SessionAdmin(FoundByWords, PastAdmin):
    list_display = [
        *("id", "page", "tier_number", "asked_model", "status", "purpose"),
        *("continued", "cost", "parent", "started"),
    ]
    change_list_template = "admin/sessions_app/session/change_list.html"
    change_form_template = "admin/sessions_app/session/change_form.html"
    list_filter = [
        *(
            CreatedOn,
            drills_apart("cycle__drill"),
            "status",
            "tier",
            "watch",
            "continued_by",
            lately_seen("continued_guard"),
        ),
        *("purpose", "cost_basis", lately_seen("model")),
    ]
    list_select_related = ["cycle__watch"]
    search_fields = ["pk"]
    list_per_page = 30
    search_help_text = "#18, or part of an id, an error, a reason, a request or a name"
    action_form = RequestActionForm
    actions = ["stop", "retry", "expire", "follow_up", "fork", "escalate", "allow_once"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Defers long columns in the list; the page of one session loads all of them."""
        sessions: QuerySet[Any] = super().get_queryset(request)
        found = request.resolver_match
        if found is not None and str(found.url_name).endswith("_changelist"):
            return sessions.defer(*LONG_FIELDS)
        return sessions.select_related("cycle__watch", "parent_session", "requested_by")

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Shows the story first; the rest is folded, in groups."""
        rest = [name for name in self.get_fields(request, obj) if name not in IN_GROUPS]
        folded = {"classes": ["collapse"]}
        return [
            (None, {"fields": SESSION_STORY}),
            *((title, {"fields": names, **folded}) for title, names in SESSION_GROUPS.items()),
            ("Process and host", {"fields": rest, **folded}),
        ]

    @admin.display(description="subject")
    def page(self, session: Session) -> SafeString:
        return link_to(session, session.cycle.subject)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        """Adds the chain of the session with its costs."""
        session: Session = context["original"]
        chain = chain_of(session)
        added = {"session": session, "chain": chain, "checks": check_costs(chain)}
        found: HttpResponse = super().render_change_form(
            request, {**context, **added}, *args, **options
        )
        return found

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Adds the costs of the listed sessions by tier."""
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
        """Returns the way of continuing and the guard that refused another one."""
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
        return session_cost(session)

    @admin.display(description="parent")
    def parent(self, session: Session) -> SafeString | str:
        number = session.parent_session_id
        return link_to(Session(pk=number), f"#{number}") if number else "–"

    @admin.action(description="Stop (a run that is under way)", permissions=["stop"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        for session in queryset:
            if manual.stop(session, by=request.user.get_username()):
                self.log_change(request, session, "Asked to stop.")
                self.message_user(request, f"Session {session.pk} is being stopped.")
            else:
                text = f"Session {session.pk} is not running."
                self.message_user(request, text, messages.WARNING)

    @admin.action(description="Expire (what is queued or cut off)", permissions=["stop"])
    def expire(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        for session in queryset.select_related("cycle"):
            try:
                manual.expire(session, by=request.user.get_username())
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, session, "Expired.")
                self.message_user(request, f"Session {session.pk} has expired.")

    @admin.action(description="Follow up (ask a question)", permissions=["follow_up"])
    def follow_up(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, manual.follow_up, with_text=True)

    @admin.action(description="Fork (try another approach)", permissions=["run"])
    def fork(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, manual.fork, with_text=True)

    @admin.action(description="Retry (a run that did not end well)", permissions=["run"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, manual.retry, with_text=False)

    @admin.action(description="Escalate (with a reason)", permissions=["escalate"])
    def escalate(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, manual.escalate, with_text=True)

    @admin.action(description="Allow the withheld tier once", permissions=["approve"])
    def allow_once(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        for session in queryset:
            try:
                created = manual.allow_once(
                    session,
                    by=cast(User, request.user),
                    way=Approval.Way.ADMIN,
                    note=request.POST.get("request", ""),
                    budget_usd=dollars_in(request.POST.get("budget", "")),
                )
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, session, f"allow_once: session {created.pk}.")
                self.message_user(request, what_it_waits_for(created))

    def has_approve_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.APPROVE)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.RUN)

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.STOP)

    def has_follow_up_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.FOLLOW_UP)

    def has_escalate_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.ESCALATE)

    def _operate(
        self,
        request: HttpRequest,
        queryset: QuerySet[Session],
        operate: Callable[..., Session],
        *,
        with_text: bool,
    ) -> None:
        text = (request.POST.get("request", ""),) if with_text else ()
        for session in queryset:
            try:
                created = operate(
                    session,
                    *text,
                    requested_by=cast(User, request.user),
                )
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, session, f"{operate.__name__}: session {created.pk}.")
                self.message_user(request, what_it_waits_for(created))


@admin.register(SessionEvent)
class SessionEventAdmin(PastAdmin):
    list_display = ["id", "page", "sequence", "source", "kind", "created_at"]
    list_filter = [
        drills_apart("session__cycle__drill"),
        lately_seen("source", indexed=False),
        lately_seen("kind", indexed=False),
    ]
    search_fields = ["session"]
    search_help_text = "The number of a session, or a kind of event"
    ordering = ["-id"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Defers the payload, which only the page of one event shows."""
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


# Incidents and approvals.


@admin.register(Incident)
class IncidentAdmin(PastAdmin):
    list_display = [
        *("id", "page", "subject", "kind", "severity", "state", "owner", "times_seen"),
        *("first_seen_at", "resolved_as"),
    ]
    list_filter = [
        *(FirstSeenOn, drills_apart("drill")),
        *("state", "kind", "severity", "resolved_as", "watch"),
    ]
    list_select_related = ["watch", "owner"]
    search_fields = ["title", "cause", "watch_name", "drill", "remedy"]
    actions = ["acknowledge", "resolve"]

    @admin.display(description="incident", ordering="title")
    def page(self, incident: Incident) -> SafeString:
        return link_to(incident, incident.title)

    def has_handle_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.HANDLE_INCIDENTS)

    @admin.action(description="Acknowledge", permissions=["handle"])
    def acknowledge(self, request: HttpRequest, queryset: QuerySet[Incident]) -> None:
        self._operate(request, queryset, incidents_by_person.acknowledge, "Acknowledged")

    @admin.action(description="Resolve", permissions=["handle"])
    def resolve(self, request: HttpRequest, queryset: QuerySet[Incident]) -> None:
        self._operate(request, queryset, incidents_by_person.resolve, "Resolved")

    def _operate(
        self,
        request: HttpRequest,
        queryset: QuerySet[Incident],
        operate: Callable[..., Incident],
        done: str,
    ) -> None:
        for incident in queryset:
            try:
                operate(incident, by=cast(User, request.user))
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, incident, f"{done}.")
                self.message_user(request, f"{done}: incident {incident.pk}.")


@admin.register(IncidentEvent)
class IncidentEventAdmin(PastAdmin):
    list_display = ["id", "page", "kind", "by", "at"]
    list_filter = [drills_apart("incident__drill"), "kind", "at"]
    list_select_related = ["incident", "by"]
    search_fields = ["=incident__id", "text"]
    ordering = ["-id"]

    @admin.display(description="incident", ordering="incident")
    def page(self, event: IncidentEvent) -> SafeString:
        return link_to(event.incident, f"#{event.incident.pk}")


class NoteActionForm(ActionForm):
    note = forms.CharField(required=False, label="Note (needed to reject):")


@admin.register(Approval)
class ApprovalAdmin(PastAdmin):
    list_display = ["id", "page", "kind", "what", "state", "decided_by", "asked_at", "expires_at"]
    list_filter = [AskedOn, drills_apart("session__cycle__drill"), "state", "kind"]
    list_select_related = ["session__cycle__watch", "decided_by"]
    search_fields = ["command", "why", "note"]
    action_form = NoteActionForm
    actions = ["approve", "reject"]

    @admin.display(description="subject")
    def page(self, approval: Approval) -> SafeString:
        return link_to(approval, approval.session.cycle.subject)

    @admin.display(description="what")
    def what(self, approval: Approval) -> str:
        return one_line(approval.command, 120) or f"Tier {approval.session.tier}"

    def has_approve_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.APPROVE)

    @admin.action(description="Approve", permissions=["approve"])
    def approve(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        self._answer(request, queryset, answers.approve, "approved")

    @admin.action(description="Reject (with a note)", permissions=["approve"])
    def reject(self, request: HttpRequest, queryset: QuerySet[Approval]) -> None:
        self._answer(request, queryset, answers.reject, "rejected")

    def _answer(
        self,
        request: HttpRequest,
        queryset: QuerySet[Approval],
        give: Callable[..., Approval],
        done: str,
    ) -> None:
        for approval in queryset.select_related("session__cycle"):
            try:
                give(
                    approval,
                    by=cast(User, request.user),
                    way=Approval.Way.ADMIN,
                    note=request.POST.get("note", ""),
                )
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, approval, f"{done.capitalize()}.")
                self.message_user(request, f"Approval {approval.pk} is {done}.")


@admin.register(ServiceState)
class ServiceStateAdmin(PastAdmin):
    list_display = ["id", "name", "watch", "status", "since", "seen_at"]
    list_filter = ["status", "watch"]
    list_select_related = ["watch"]
    search_fields = ["name", "service"]
    exclude = ["marks"]


LAST_CYCLE = ("id", "state", "outcome")


@admin.register(Watch)
class WatchAdmin(TableAdmin):
    changed_with = Right.CHANGE_WATCHES
    list_display = [
        "name",
        "rhythm",
        "enabled",
        "autonomy",
        "workdir",
        "next_run",
        "last_cycle",
    ]
    list_filter = ["enabled", "dry_run", "max_tier"]
    list_select_related = ["schedule"]
    search_fields = ["name", "workdir", "instructions"]
    actions = ["run_now", "pause", "unpause"]
    readonly_fields = ["manifest_waits", "manifest_accepted", "manifest_text"]

    @admin.display(description="manifest accepted")
    def manifest_accepted(self, watch: Watch) -> str:
        manifest: Manifest | None = getattr(watch, "manifest", None)
        if manifest is None or manifest.accepted_at is None:
            return "–"
        at = timezone.localtime(manifest.accepted_at)
        return f"by {manifest.accepted_by}, {at:%Y-%m-%d %H:%M}"

    @admin.display(description="accepted text")
    def manifest_text(self, watch: Watch) -> str:
        manifest: Manifest | None = getattr(watch, "manifest", None)
        return clean(redacted(manifest.text)) if manifest and manifest.text else "–"

    def save_model(self, request: HttpRequest, obj: Watch, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        moved = form.initial.get("workdir") != obj.workdir
        accept_first(obj, by=request.user.get_username(), moved=moved)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        watch = context.get("original")
        grants = grants_table(watch.grants if watch else "")
        return super().render_change_form(request, {**context, "grants": grants}, *args, **options)

    def view_on_site(self, watch: Watch) -> str:
        return reverse("web:autonomy", args=[watch.pk])

    @admin.display(description="autonomy", ordering="max_tier")
    def autonomy(self, watch: Watch) -> SafeString:
        url = reverse("web:autonomy", args=[watch.pk])
        return format_html('<a href="{}">{}</a>', url, watch.autonomy_title)

    @admin.display(description="next run")
    def next_run(self, watch: Watch) -> str:
        if watch.next_run is None:
            return "–"
        return timezone.localtime(watch.next_run).strftime("%Y-%m-%d %H:%M")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Adds the last cycle of each watch in the same query."""
        own = Cycle.objects.filter(watch=OuterRef("pk")).order_by("-id")
        watches: QuerySet[Any] = super().get_queryset(request)
        last = {f"last_{name}": Subquery(own.values(name)[:1]) for name in LAST_CYCLE}
        annotated: QuerySet[Any] = watches.annotate(**last)
        return annotated

    @admin.display(description="last cycle")
    def last_cycle(self, watch: Any) -> SafeString | str:
        if watch.last_id is None:
            return "–"
        cycle = Cycle(**{name: getattr(watch, f"last_{name}") for name in LAST_CYCLE})
        said = cycle.result_text
        return format_html('<a href="{}">{}</a>', cycle.get_absolute_url(), said)

    def has_run_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.RUN)

    def has_stop_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Right.STOP)

    @admin.action(description="Run now", permissions=["run"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Watch]) -> None:
        for watch in queryset:
            try:
                cycle = cycles.start(
                    watch,
                    trigger=Cycle.Trigger.MANUAL,
                    requested_by=cast(User, request.user),
                )
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, watch, f"Run now: cycle {cycle.pk}.")
                self.message_user(request, f"Cycle {cycle.pk} of {watch.name} is queued.")

    @admin.action(description="Pause", permissions=["stop"])
    def pause(self, request: HttpRequest, queryset: QuerySet[Watch]) -> None:
        self._set_enabled(request, queryset, enabled=False)

    @admin.action(description="Unpause", permissions=["change"])
    def unpause(self, request: HttpRequest, queryset: QuerySet[Watch]) -> None:
        self._set_enabled(request, queryset, enabled=True)

    def _set_enabled(
        self, request: HttpRequest, queryset: QuerySet[Watch], *, enabled: bool
    ) -> None:
        """Saves one by one, since the schedule follows the save signal."""
        for watch in queryset:
            watch.enabled = enabled
            watch.save(update_fields=["enabled"])
            self.log_change(request, watch, "Unpaused." if enabled else "Paused.")
        names = ", ".join(watch.name for watch in queryset)
        self.message_user(request, f"{'Unpaused' if enabled else 'Paused'}: {names}.")


# Records about the installation: sums, switches, proofs and the admin's own log.

LONGEST_LINE = 90


@admin.register(Change)
class ChangeAdmin(PastAdmin):
    list_display = [
        "id",
        "page",
        "what",
        "kind",
        "service",
        "exit_code",
        "is_cleared",
        "undone_at",
        "at",
    ]
    list_filter = [drills_apart("session__cycle__drill"), "kind", "is_cleared", "watch", "at"]
    exclude = ["before_content"]
    search_fields = ["service", "action", "command"]
    list_select_related = ["session"]

    @admin.display(description="session")
    def page(self, change: Change) -> SafeString:
        return link_to(Session(pk=change.session_id), f"#{change.session_id}")

    @admin.display(description="what")
    def what(self, change: Change) -> str:
        return one_line(change.action, LONGEST_LINE)


@admin.register(SandboxProof)
class SandboxProofAdmin(PastAdmin):
    list_display = [
        "id",
        "kind",
        "host",
        "cli_version",
        "tried",
        "failed",
        "is_worse",
        "finished_at",
    ]
    list_filter = ["kind", "is_worse", "finished_at"]
    search_fields = ["host", "cli_version", "kernel"]
    date_hierarchy = "finished_at"
    exclude = ["rows"]
    view_on_site = False


@admin.register(PeriodCost)
class PeriodCostAdmin(PastAdmin):
    list_display = ["id", "span", "first_day", "watch", "tier", "model", "runs", "cost"]
    list_filter = [drills_apart("drill"), "span", "tier", "first_day"]
    search_fields = ["watch_name", "drill", "=model"]
    ordering = ["-id"]

    @admin.display(description="watch")
    def watch(self, row: PeriodCost) -> str:
        return one_line(f"drill {row.drill}" if row.drill else row.watch_name, LONGEST_LINE)

    @admin.display(description="cost")
    def cost(self, row: PeriodCost) -> str:
        return money(row.cost_usd)


@admin.register(DailyVerdict)
class DailyVerdictAdmin(PastAdmin):
    list_display = ["id", "day", "verdict", "count"]
    list_filter = ["verdict", "day"]
    search_fields = ["=verdict"]
    date_hierarchy = "day"
    ordering = ["-id"]


@admin.register(MetricTotal)
class MetricTotalAdmin(PastAdmin):
    list_display = ["id", "name", "labels", "count", "seconds", "last_at"]
    list_filter = ["name"]
    search_fields = ["=labels"]
    ordering = ["-id"]


@admin.register(TraceExport)
class TraceExportAdmin(PastAdmin):
    list_display = ["id", "cycle", "state", "tries", "due_at", "error"]
    list_filter = ["state"]
    search_fields = ["=cycle__id"]
    list_select_related = ["cycle__watch"]
    ordering = ["-id"]


@admin.register(BudgetNotice)
class BudgetNoticeAdmin(PastAdmin):
    list_display = ["id", "budget", "period", "percent", "at"]
    list_filter = ["percent", "at"]
    search_fields = ["budget"]
    date_hierarchy = "at"


@admin.register(PauseSwitch)
class PauseSwitchAdmin(PastAdmin):
    """Read-only: the Overview's button and `claudeops pause` change it."""

    list_display = ["id", "paused", "reason", "changed_by", "changed_at"]
    list_filter = ["paused"]
    list_select_related = ["changed_by"]
    search_fields = ["reason"]


@admin.register(AppliedDeclaration)
class AppliedDeclarationAdmin(PastAdmin):
    """Read-only: `claudeops apply` writes it."""

    list_display = ["id", "kind", "name", "file", "applied_at", "applied_by"]
    list_filter = ["kind"]
    search_fields = ["name", "file"]


@admin.register(RateLimit)
class RateLimitAdmin(PastAdmin):
    list_display = ["id", "until", "kind", "times_in_a_row", "lifted_by", "changed_at"]
    list_filter = ["kind"]
    list_select_related = ["lifted_by"]
    search_fields = ["words"]


@admin.register(WorkerHeartbeat)
class WorkerHeartbeatAdmin(PastAdmin):
    list_display = ["id", "host", "pid", "seen_at", "silence_told_at"]
    list_filter = ["seen_at"]
    search_fields = ["host"]


@admin.register(LogEntry)
class LogEntryAdmin(PastAdmin):
    """Log of changes made in the admin."""

    seen_with = Right.MANAGE_KEYS
    list_display = ["id", "action_time", "user", "content_type", "about", "said"]
    list_filter = ["action_time", "action_flag"]
    list_select_related = ["user", "content_type"]
    search_fields = ["object_repr", "change_message", "=user__username"]
    date_hierarchy = "action_time"

    @admin.display(description="what")
    def about(self, entry: LogEntry) -> str:
        return one_line(entry.object_repr, LONGEST_LINE)

    @admin.display(description="change")
    def said(self, entry: LogEntry) -> str:
        return one_line(entry.get_change_message(), LONGEST_LINE)


# Conversations and their transcripts.


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
    """List of archived transcripts; the page of the session shows their content."""

    list_display = ["session_id", "subpath", "project_key", "chunks_kept", "updated_at"]
    list_filter = ["updated_at"]
    search_fields = ["session_id__exact", "project_key__exact"]
    search_help_text = "The whole id of a conversation, or a whole project key"
    sortable_by = ("updated_at",)
    ordering = ["-updated_at"]

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Counts chunks by subquery, for the listed rows only."""
        transcripts: QuerySet[Any] = super().get_queryset(request)
        own = TranscriptChunk.objects.filter(transcript=OuterRef("pk")).order_by()
        counts = own.values("transcript").annotate(count=Count("pk")).values("count")
        counted: QuerySet[Any] = transcripts.annotate(kept=Coalesce(Subquery(counts), 0))
        return counted

    @admin.display(description="chunks")
    def chunks_kept(self, transcript: Any) -> int:
        return int(transcript.kept)


# Channels, notifications and messages.


@admin.register(Probe)
class ProbeAdmin(PastAdmin):
    """Read-only: probes are added on the page of their watch, or by `claudeops probe`."""

    list_display = ["name", "watch", "service", "kind", "state", "since", "last_run_at"]
    list_filter = ["state", "kind", "watch"]
    list_select_related = ["watch"]
    search_fields = ["name", "service", "target"]
    exclude = ["token", "memory"]


@admin.register(ProbeChange)
class ProbeChangeAdmin(PastAdmin):
    list_display = ["id", "probe", "kind", "status", "why_held", "at"]
    list_filter = ["kind", "at"]
    list_select_related = ["probe"]
    search_fields = ["output"]


@admin.register(ProbeSum)
class ProbeSumAdmin(PastAdmin):
    list_display = ["id", "probe", "period", "start", "runs", "failed", "planned"]
    list_filter = ["period"]
    list_select_related = ["probe"]
    search_fields = ["=probe__name"]
    search_help_text = "The whole name of a probe"
    ordering = ["-id"]


@admin.register(HeartbeatPing)
class HeartbeatPingAdmin(PastAdmin):
    list_display = ["id", "probe", "kind", "exit_code", "at"]
    list_filter = ["kind", "at"]
    list_select_related = ["probe"]
    search_fields = ["body"]


@admin.register(ProbeLease)
class ProbeLeaseAdmin(PastAdmin):
    list_display = ["id", "watch", "host", "until"]
    list_filter = ["until"]
    list_select_related = ["watch"]
    search_fields = ["host", "watch__name"]


@admin.register(ProbeProposal)
class ProbeProposalAdmin(PastAdmin):
    """Read-only: proposals are accepted on the page of the probes, or by `claudeops probe`."""

    list_display = ["id", "watch", "service", "kind", "target", "state", "decided_by"]
    list_filter = ["state", "kind", "watch"]
    list_select_related = ["watch"]
    search_fields = ["service", "target"]


@admin.register(TelegramBot)
class TelegramBotAdmin(PastAdmin):
    list_display = ["id", "number", "holder", "until", "error"]
    list_filter = ["until"]
    search_fields = ["holder", "error"]


@admin.register(Maintenance)
class MaintenanceAdmin(PastAdmin):
    list_display = ["id", "watch", "service", "starts_at", "ends_at", "is_weekly", "reason"]
    list_filter = ["is_weekly", "watch"]
    list_select_related = ["watch"]
    search_fields = ["reason", "service"]


@admin.register(Remedy)
class RemedyAdmin(PastAdmin):
    """Read-only: a remedy is declared on its own page, where its script is pinned."""

    list_display = ["name", "watch", "kind", "tier", "enabled", "accepted_by", "accepted_at"]
    list_filter = ["kind", "enabled"]
    list_select_related = ["watch"]
    search_fields = ["name", "description"]
    exclude = ["script"]


@admin.register(Source)
class SourceAdmin(PastAdmin):
    """Read-only: a source has its own page, and its secret is never shown."""

    seen_with = Right.MANAGE_KEYS
    list_display = ["name", "kind", "watch", "enabled", "created_at"]
    list_filter = ["kind", "enabled"]
    list_select_related = ["watch"]
    search_fields = ["name"]
    exclude = ["encrypted_secret", "token_hash"]


@admin.register(ApiToken)
class ApiTokenAdmin(PastAdmin):
    """Read-only: tokens are made and revoked on their own page."""

    seen_with = Right.MANAGE_KEYS
    list_display = ["name", "user", "scopes", "prefix", "created_at", "expires_at", "last_used_at"]
    list_filter = ["user"]
    list_select_related = ["user"]
    search_fields = ["name", "user__username"]
    exclude = ["token_hash", "window_start", "window_used"]


@admin.register(Delivery)
class DeliveryAdmin(PastAdmin):
    list_display = ["id", "source", "received_at", "size", "alerts", "verdict", "became"]
    list_filter = ["verdict", "source"]
    list_select_related = ["source"]
    search_fields = ["became"]
    exclude = ["encrypted_body"]
    ordering = ["-id"]


@admin.register(Alert)
class AlertAdmin(PastAdmin):
    list_display = ["id", "source", "service", "summary", "state", "severity", "last_seen_at"]
    list_filter = ["state", "severity", "source"]
    list_select_related = ["source"]
    search_fields = ["service", "summary", "fingerprint"]
    ordering = ["-id"]


@admin.register(RefusedDeliveries)
class RefusedDeliveriesAdmin(PastAdmin):
    list_display = ["minute", "source", "reason", "count"]
    list_filter = ["reason"]
    list_select_related = ["source"]
    search_fields = ["source__name", "reason"]
    ordering = ["-minute"]


@admin.register(RemedyRun)
class RemedyRunAdmin(PastAdmin):
    list_display = ["id", "name", "watch", "trigger", "by_name", "state", "exit_code", "asked_at"]
    list_filter = ["state", "trigger"]
    list_select_related = ["watch"]
    search_fields = ["name", "by_name", "service"]


@admin.register(Channel)
class ChannelAdmin(PastAdmin):
    """Read-only: a channel has its own page, and its address is never shown."""

    seen_with = Right.MANAGE_KEYS
    list_display = ["name", "service", "enabled", "last_sent_at", "failures_in_a_row", "last_error"]
    list_filter = ["enabled"]
    search_fields = ["name", "service"]
    exclude = ["encrypted_address"]


@admin.register(Notification)
class NotificationAdmin(PastAdmin):
    list_display = ["id", "kind", "severity", "title", "watch", "at", "passed_on_at"]
    list_filter = [
        drills_apart("incident__drill", "approval__session__cycle__drill"),
        *("kind", "severity", "at"),
    ]
    list_select_related = ["watch"]
    search_fields = ["title", "text"]
    ordering = ["-id"]


@admin.register(Message)
class MessageAdmin(PastAdmin):
    list_display = ["id", "channel", "title", "state", "tries", "due_at", "sent_at", "error"]
    list_filter = ["state", "channel", "created_at"]
    list_select_related = ["channel"]
    search_fields = ["title", "body", "error"]
    exclude = ["notifications"]
