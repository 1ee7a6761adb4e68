"""What acts in admin: watches are edited, run and paused; finished sessions are continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.auth.models import User
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from escalation import queue
from escalation.errors import CycleActive, OperationRefused
from escalation.incidents import by_person as incidents_by_person
from escalation.next_step import approval as answers
from escalation.next_step import by_person, cycles, expiry
from escalation.next_step.starting import what_it_waits_for
from escalation.web.doors_table import doors_table
from sessions_app.access.admin_site import TableAdmin
from sessions_app.access.roles import Right, may
from sessions_app.admin import ApprovalAdmin, IncidentAdmin, SessionAdmin
from sessions_app.models import Approval, Cycle, Incident, Session, Watch

LAST_CYCLE = ("id", "state", "outcome")


@admin.register(Watch)
class WatchAdmin(TableAdmin):
    changed_with = Right.CHANGE_WATCHES
    list_display = [
        "name",
        "rhythm",
        "enabled",
        "trust",
        "workdir",
        "next_run",
        "last_cycle",
    ]
    list_filter = ["enabled", "dry_run", "max_tier"]
    list_select_related = ["schedule"]
    search_fields = ["name", "workdir", "instructions"]
    actions = ["run_now", "pause", "unpause"]

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **options: Any
    ) -> HttpResponse:
        watch = context.get("original")
        doors = doors_table(watch.doors if watch else "")
        return super().render_change_form(request, {**context, "doors": doors}, *args, **options)

    def view_on_site(self, watch: Watch) -> str:
        return reverse("sessions_app:trust", args=[watch.pk])

    @admin.display(description="trusted with", ordering="max_tier")
    def trust(self, watch: Watch) -> SafeString:
        url = reverse("sessions_app:trust", args=[watch.pk])
        return format_html('<a href="{}">{}</a>', url, watch.trust_title)

    @admin.display(description="next run")
    def next_run(self, watch: Watch) -> str:
        if watch.next_run is None:
            return "–"
        return timezone.localtime(watch.next_run).strftime("%Y-%m-%d %H:%M")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """With the last cycle of each, in the same query."""
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
        said = cycle.get_outcome_display() or cycle.get_state_display()
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
                    enqueue=queue.enqueue,
                    requested_by=cast(User, request.user),
                )
            except (CycleActive, OperationRefused) as refused:
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
        """One by one, not by update(): the schedule follows each save."""
        for watch in queryset:
            watch.enabled = enabled
            watch.save(update_fields=["enabled"])
            self.log_change(request, watch, "Unpaused." if enabled else "Paused.")
        names = ", ".join(watch.name for watch in queryset)
        self.message_user(request, f"{'Unpaused' if enabled else 'Paused'}: {names}.")


class RequestActionForm(ActionForm):
    """The question, the approach or the reason that an action is given."""

    request = forms.CharField(required=False, label="Question, approach or reason:")


admin.site.unregister(Session)


@admin.register(Session)
class ActingSessionAdmin(SessionAdmin):
    """The record's read-only pages, with what can be done from a finished session."""

    action_form = RequestActionForm
    actions = ["stop", "retry", "expire", "follow_up", "fork", "escalate"]

    @admin.action(description="Stop (a run that is under way)", permissions=["stop"])
    def stop(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        for session in queryset:
            if by_person.stop(session, by=request.user.get_username()):
                self.log_change(request, session, "Asked to stop.")
                self.message_user(request, f"Session {session.pk} is being stopped.")
            else:
                text = f"Session {session.pk} is not running."
                self.message_user(request, text, messages.WARNING)

    @admin.action(description="Expire (what is queued or cut off)", permissions=["stop"])
    def expire(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        for session in queryset.select_related("cycle"):
            try:
                expiry.expire(session, by=request.user.get_username())
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, session, "Expired.")
                self.message_user(request, f"Session {session.pk} has expired.")

    @admin.action(description="Follow up (ask a question)", permissions=["follow_up"])
    def follow_up(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.follow_up, with_text=True)

    @admin.action(description="Fork (try another approach)", permissions=["run"])
    def fork(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.fork, with_text=True)

    @admin.action(description="Retry (a run that did not end well)", permissions=["run"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.retry, with_text=False)

    @admin.action(description="Escalate (with a reason)", permissions=["escalate"])
    def escalate(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.escalate, with_text=True)

    # The record is read-only even for those who may start runs from it.

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
                    enqueue=queue.enqueue,
                    requested_by=cast(User, request.user),
                )
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, session, f"{operate.__name__}: session {created.pk}.")
                self.message_user(request, what_it_waits_for(created))


admin.site.unregister(Incident)


@admin.register(Incident)
class ActingIncidentAdmin(IncidentAdmin):
    """The record's read-only pages, with what a person does to several at once."""

    actions = ["acknowledge", "resolve"]

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


class NoteActionForm(ActionForm):
    note = forms.CharField(required=False, label="Note (needed to reject):")


admin.site.unregister(Approval)


@admin.register(Approval)
class AnsweringApprovalAdmin(ApprovalAdmin):
    """The record's read-only pages, with the two answers."""

    action_form = NoteActionForm
    actions = ["approve", "reject"]

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
                give(approval, by=cast(User, request.user), note=request.POST.get("note", ""))
            except OperationRefused as refused:
                self.message_user(request, str(refused), messages.WARNING)
            else:
                self.log_change(request, approval, f"{done.capitalize()}.")
                self.message_user(request, f"Approval {approval.pk} is {done}.")
