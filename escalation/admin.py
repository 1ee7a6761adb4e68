"""What acts in admin: watches are edited, run and paused; finished sessions are continued."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from escalation import queue
from escalation.errors import CycleActive, OperationRefused
from escalation.next_step import by_person, cycles
from escalation.web.permission import may_act
from sessions_app.admin import SessionAdmin
from sessions_app.models import Cycle, Session, Watch


@admin.register(Watch)
class WatchAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    list_display = [
        "name",
        "rhythm",
        "enabled",
        "max_tier",
        "dry_run",
        "workdir",
        "next_run",
        "last_cycle",
    ]
    list_filter = ["enabled", "dry_run", "max_tier"]
    list_select_related = ["schedule"]
    search_fields = ["name", "workdir", "instructions"]
    actions = ["run_now", "pause", "unpause"]

    @admin.display(description="next run")
    def next_run(self, watch: Watch) -> str:
        if watch.next_run is None:
            return "–"
        return timezone.localtime(watch.next_run).strftime("%Y-%m-%d %H:%M")

    @admin.display(description="last cycle")
    def last_cycle(self, watch: Watch) -> SafeString | str:
        cycle = watch.cycles.first()
        if cycle is None:
            return "–"
        said = cycle.get_outcome_display() or cycle.get_state_display()
        return format_html('<a href="{}">{}</a>', cycle.get_absolute_url(), said)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        return may_act(request.user)

    @admin.action(description="Run now", permissions=["operate"])
    def run_now(self, request: HttpRequest, queryset: QuerySet[Watch]) -> None:
        for watch in queryset:
            try:
                cycle = cycles.start(
                    watch,
                    trigger=Cycle.Trigger.MANUAL,
                    enqueue=queue.enqueue,
                    requested_by=cast(User, request.user),
                )
            except CycleActive as active:
                self.message_user(request, str(active), messages.WARNING)
            else:
                self.message_user(request, f"Cycle {cycle.pk} of {watch.name} is queued.")

    @admin.action(description="Pause", permissions=["change"])
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
    actions = ["follow_up", "fork", "retry", "escalate"]

    @admin.action(description="Follow up (ask a question)", permissions=["operate"])
    def follow_up(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.follow_up, with_text=True)

    @admin.action(description="Fork (try another approach)", permissions=["operate"])
    def fork(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.fork, with_text=True)

    @admin.action(description="Retry (a run that did not end well)", permissions=["operate"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.retry, with_text=False)

    @admin.action(description="Escalate (with a reason)", permissions=["operate"])
    def escalate(self, request: HttpRequest, queryset: QuerySet[Session]) -> None:
        self._operate(request, queryset, by_person.escalate, with_text=True)

    def has_operate_permission(self, request: HttpRequest) -> bool:
        """The record is read-only even for those who may start runs from it."""
        return may_act(request.user)

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
                self.message_user(request, f"Session {created.pk} is queued.")
