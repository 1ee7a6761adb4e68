"""The admin asks the same table as the pages, and has no login of its own."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest, PermissionDenied
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from sessions_app.access.known_choices import KnownChoices, may_be_number
from sessions_app.access.roles import Right, may, refusal

# What the filters of a list and its dates ask for. Everything else that Django would take from an
# address (`__regex` above all) lets a reader make the database work for as long as they like.
DATE_PARTS = ("year", "month", "day")
OFFERED_LOOKUPS = {
    *("", "exact", "isnull", "gte", "lt", "lte", *DATE_PARTS),
    *("id__exact", "pk__exact", "id__isnull"),
}


class OpsAdminSite(admin.AdminSite):
    site_header = "Claude Ops"
    site_title = "Claude Ops"
    enable_nav_sidebar = False  # the lists need the width, and the index names them all

    def has_permission(self, request: HttpRequest) -> bool:
        """Its pages show every field of a record, so they are for those who may see output."""
        return may(request.user, Right.SEE_OUTPUT)

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """One door for everybody, where attempts are counted."""
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied(refusal(request.user, Right.SEE_OUTPUT))
        wanted = request.GET.get("next") or reverse("admin:index")
        return redirect_to_login(wanted)


class TableAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Pages of one model, for those whom the table names; read-only without `changed_with`."""

    seen_with: Right = Right.SEE_OUTPUT
    changed_with: Right | None = None

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may(request.user, self.seen_with)

    def has_view_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return may(request.user, self.seen_with)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may_change(request)

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._may_change(request)

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return self._may_change(request)

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest | None = None) -> bool:
        if lookup.rpartition("__")[2] in DATE_PARTS and not (value.isdecimal() and len(value) < 5):
            return False
        if lookup in {getattr(shown, "parameter_name", None) for shown in self.list_filter}:
            return True  # a filter of our own: it reads its value itself
        offered = [*self.list_filter, self.date_hierarchy]
        fields = (field for field in offered if isinstance(field, str))
        return any(
            lookup == field or lookup.removeprefix(f"{field}__") in OFFERED_LOOKUPS
            for field in fields
        )

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *where: Any, **options: Any
    ) -> HttpResponse | None:
        """An action on rows that nobody can have chosen is a bad request, not a fault of ours."""
        if not all(map(may_be_number, request.POST.getlist(ACTION_CHECKBOX_NAME))):
            raise BadRequest("What was chosen is no number of a row.")
        return super().response_action(request, queryset, *where, **options)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        return super().formfield_for_manytomany(
            db_field, request, **{"form_class": KnownChoices, **options}
        )

    def _may_change(self, request: HttpRequest) -> bool:
        return self.changed_with is not None and may(request.user, self.changed_with)
