"""Admin of accounts, queue and failed logins, in place of the pages of other applications."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django_q import admin as queue
from django_q.models import Failure, OrmQ, Schedule, Success

from sessions_app.access.admin_site import TableAdmin
from sessions_app.access.roles import Right, may
from sessions_app.models import LoginFailure

# Groups are the fixed roles; the page of an account assigns them.
for model in (User, Group, Schedule, Success, Failure, OrmQ):
    admin.site.unregister(model)


@admin.register(User)
class AccountAdmin(TableAdmin, UserAdmin):  # type: ignore[type-arg]
    """Accounts without Django's permissions, which Claude Ops does not use."""

    seen_with = changed_with = Right.MANAGE_KEYS
    list_display = ["username", "roles", "is_active", "is_superuser", "last_login"]
    list_filter = ["is_active", "is_superuser", "groups"]
    readonly_fields = ["last_login", "date_joined"]
    fieldsets = (
        (None, {"fields": ("username", "password")}),
        ("Role", {"fields": ("groups", "is_superuser", "is_active")}),
        ("Person", {"fields": ("first_name", "last_name", "email")}),
        ("Dates", {"fields": ("last_login", "date_joined")}),
    )
    filter_horizontal = ("groups",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[User]:
        accounts: QuerySet[User] = super().get_queryset(request).prefetch_related("groups")
        return accounts

    @admin.display(description="roles")
    def roles(self, user: User) -> str:
        return ", ".join(group.name for group in user.groups.all()) or "none"


class QueuePages(TableAdmin):
    """Read-only pages of the queue: who writes a schedule can run any Python function."""

    seen_with = Right.MANAGE_KEYS
    actions = ()


@admin.register(Schedule)
class ScheduleAdmin(QueuePages, queue.ScheduleAdmin):  # type: ignore[misc]
    pass


@admin.register(Success)
class SuccessAdmin(QueuePages, queue.TaskAdmin):  # type: ignore[misc]
    pass


@admin.register(Failure)
class FailureAdmin(QueuePages, queue.FailAdmin):  # type: ignore[misc]
    pass


@admin.register(OrmQ)
class WaitingAdmin(QueuePages, queue.QueueAdmin):  # type: ignore[misc]
    pass


@admin.register(LoginFailure)
class LoginFailureAdmin(TableAdmin):
    """Failed logins; deleting the rows of a name or an address unlocks it."""

    seen_with = Right.MANAGE_KEYS
    list_display = ["username", "address", "at"]
    list_filter = ["at"]
    search_fields = ["=username", "=address"]

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, Right.MANAGE_KEYS)
