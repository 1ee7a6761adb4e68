"""What is kept about the installation itself: sums, switches, proofs, and who changed what."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.utils.safestring import SafeString

from sessions_app.access.roles import Right
from sessions_app.admin.past import PastAdmin, link_to
from sessions_app.models import (
    AccountClock,
    BudgetNotice,
    Change,
    DailyVerdict,
    PauseSwitch,
    PeriodCost,
    Session,
    WallsProof,
    WorkerBeat,
)
from sessions_app.reading.formatting import money
from sessions_app.reading.plain_text import one_line

LONGEST_LINE = 90


@admin.register(Change)
class ChangeAdmin(PastAdmin):
    list_display = ["id", "page", "what", "kind", "service", "exit_code", "is_cleared", "at"]
    list_filter = ["kind", "is_cleared", "watch", "at"]
    search_fields = ["service", "action", "command"]
    list_select_related = ["session"]

    @admin.display(description="session")
    def page(self, change: Change) -> SafeString:
        return link_to(Session(pk=change.session_id), f"#{change.session_id}")

    @admin.display(description="what")
    def what(self, change: Change) -> str:
        return one_line(change.action, LONGEST_LINE)


@admin.register(WallsProof)
class WallsProofAdmin(PastAdmin):
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
    list_filter = ["span", "tier", "first_day"]
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


@admin.register(BudgetNotice)
class BudgetNoticeAdmin(PastAdmin):
    list_display = ["id", "budget", "period", "percent", "at"]
    list_filter = ["percent", "at"]
    search_fields = ["budget"]
    date_hierarchy = "at"


@admin.register(PauseSwitch)
class PauseSwitchAdmin(PastAdmin):
    """To look at: the dashboard's button and `claudeops pause` turn it."""

    list_display = ["id", "paused", "reason", "changed_by", "changed_at"]
    list_filter = ["paused"]
    list_select_related = ["changed_by"]
    search_fields = ["reason"]


@admin.register(AccountClock)
class AccountClockAdmin(PastAdmin):
    list_display = ["id", "until", "kind", "times_in_a_row", "lifted_by", "changed_at"]
    list_filter = ["kind"]
    list_select_related = ["lifted_by"]
    search_fields = ["words"]


@admin.register(WorkerBeat)
class WorkerBeatAdmin(PastAdmin):
    list_display = ["id", "host", "pid", "seen_at", "silence_told_at"]
    list_filter = ["seen_at"]
    search_fields = ["host"]


@admin.register(LogEntry)
class LogEntryAdmin(PastAdmin):
    """Who changed what in the admin."""

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
