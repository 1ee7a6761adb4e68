"""Base classes of the admin: rights by role, and lists that stay fast with many rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from functools import reduce
from operator import or_
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest, PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Max, Model, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.text import slugify

from sessions_app.access.roles import Right, may, refusal
from sessions_app.models import Session
from sessions_app.models.search import (
    LARGEST_NUMBER,
    SHORTEST_WORDS,
    first_number_from,
    is_too_short,
    newest_matches,
)

LONGEST_NUMBER = 18


def may_be_number(sent: str) -> bool:
    """Return True for text that a database accepts as an id."""
    return sent.isascii() and sent.isdecimal() and len(sent) <= LONGEST_NUMBER


class KnownChoices(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """Choice field that rejects ids that are too long for the database."""

    def clean(self, value: Any) -> Any:
        for sent in map(str, value or ()):
            if len(sent) > LONGEST_NUMBER:
                words = self.error_messages["invalid_pk_value"] % {"pk": f"{sent[:20]}…"}
                raise forms.ValidationError(words)
        return super().clean(value)


# Lookups of the list filters. Others that Django accepts from a URL, like `__regex`, would allow
# slow queries.
DATE_PARTS = ("year", "month", "day")
OFFERED_LOOKUPS = {
    *("", "exact", "isnull", "gte", "lt", "lte", *DATE_PARTS),
    *("id__exact", "pk__exact", "id__isnull"),
}


# The index lists models by what operators do; what it does not name is an internal.
ADMIN_GROUPS: dict[str, tuple[str, ...]] = {
    "What happened": ("Incident", "Cycle", "Session", "Change", "Approval", "RemedyRun"),
    "What is looked after": ("Watch", "ServiceState", "Probe", "Remedy", "Maintenance"),
    "Alerts and notifications": ("Source", "Delivery", "Alert", "Channel", "Notification"),
    "Accounts and costs": ("User", "LoginFailure", "LogEntry", "PeriodCost"),
}
INTERNALS = "Internals"


class OpsAdminSite(admin.AdminSite):
    """Admin site with the rights of `roles.TABLE` and the login of the pages."""

    site_header = "Claude Ops"
    site_title = "Claude Ops"
    enable_nav_sidebar = False  # the lists need the width

    def has_permission(self, request: HttpRequest) -> bool:
        """Require the right to see output, because the admin displays every field."""
        return may(request.user, Right.SEE_OUTPUT)

    def get_app_list(
        self, request: HttpRequest, app_label: str | None = None
    ) -> list[dict[str, Any]]:
        """Group the models of the index by what operators do. One app stays as it is."""
        apps: list[dict[str, Any]] = super().get_app_list(request, app_label)
        if app_label is not None:
            return apps
        left = {model["object_name"]: model for app in apps for model in app["models"]}
        groups = [
            _admin_group(title, [left.pop(name) for name in names if name in left])
            for title, names in ADMIN_GROUPS.items()
        ]
        groups.append(_admin_group(INTERNALS, list(left.values())))
        return [group for group in groups if group["models"]]

    def index(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> TemplateResponse:
        """Show the groups, and the internals apart from them, folded."""
        groups = self.get_app_list(request)
        split = {
            "app_list": [group for group in groups if group["name"] != INTERNALS],
            "internals": [group for group in groups if group["name"] == INTERNALS],
        }
        return super().index(request, {**split, **(extra_context or {})})

    def login(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Redirect to the login page, where attempts are counted."""
        if request.user.is_authenticated and not self.has_permission(request):
            raise PermissionDenied(refusal(request.user, Right.SEE_OUTPUT))
        wanted = request.GET.get("next") or reverse("admin:index")
        return redirect_to_login(wanted)


def _admin_group(title: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": title,
        "app_label": slugify(title),
        "app_url": reverse("admin:index"),
        "has_module_perms": True,
        "models": models,
    }


class TableAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Admin of a model with rights from `roles.TABLE`; read-only without `changed_with`."""

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
            return True  # a custom filter validates its value
        offered = [*self.list_filter, self.date_hierarchy]
        fields = (field for field in offered if isinstance(field, str))
        return any(
            lookup == field or lookup.removeprefix(f"{field}__") in OFFERED_LOOKUPS
            for field in fields
        )

    def response_action(
        self, request: HttpRequest, queryset: QuerySet[Any], *where: Any, **options: Any
    ) -> HttpResponse | None:
        """Reject selected rows whose ids are no numbers with status 400."""
        if not all(map(may_be_number, request.POST.getlist(ACTION_CHECKBOX_NAME))):
            raise BadRequest("A selected row has no valid id.")
        return super().response_action(request, queryset, *where, **options)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        return super().formfield_for_manytomany(
            db_field, request, **{"form_class": KnownChoices, **options}
        )

    def _may_change(self, request: HttpRequest) -> bool:
        return self.changed_with is not None and may(request.user, self.changed_with)


MOST_COUNTED = 5_000
LATELY = 2_000
LATEST = 20_000
MATCHES_LISTED = MATCHES_LOOKED_AT = 500


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """Paginator that counts up to a limit. Further rows need a filter, a date or a search."""

    @cached_property
    def count(self) -> int:
        rows: Any = self.object_list
        return int(rows.order_by()[:MOST_COUNTED].count())

    @property
    def is_cut(self) -> bool:
        return self.count >= MOST_COUNTED


def lately_seen(field: str, *, indexed: bool = True) -> type[admin.SimpleListFilter]:
    """Return a filter that offers the values of the newest rows.

    Without an index on the field, it searches the latest rows only.
    """

    class LatelySeen(admin.SimpleListFilter):
        title = field.replace("_", " ") + ("" if indexed else f", of the latest {LATEST:,}")
        parameter_name = f"{field}__exact"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            newest = model_admin.model._default_manager.order_by("-pk")[:LATELY]
            values = set(newest.values_list(field, flat=True)) | {self.value() or ""}
            return [(value, value) for value in sorted(values) if value]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            if not self.value():
                return queryset
            looked_at = queryset if indexed else among_latest(queryset)
            return looked_at.filter(**{field: self.value()})

        def has_output(self) -> bool:
            return True

    return LatelySeen


def among_latest(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Limit a query without an index to the latest rows."""
    newest = queryset.model._default_manager.aggregate(newest=Max("pk"))["newest"] or 0
    return queryset.filter(pk__gt=newest - LATEST)


def drills_apart(path: str, *others: str) -> type[admin.SimpleListFilter]:
    """Return the switch of a list: without drills, or nothing but drills.

    A path leads to the field with the name of the drill; with several, a relation may be missing.
    """
    named = [Q(**{f"{one}__gt": ""}) for one in (path, *others)]

    class DrillsApart(admin.SimpleListFilter):
        title = "drills"
        parameter_name = "drill"

        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [("yes", "Only drills")]

        def choices(self, changelist: Any) -> Iterator[Any]:
            earnest, *others = super().choices(changelist)
            yield {**earnest, "display": "Without drills"}
            yield from others

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            if others:
                is_drill = reduce(or_, named)
                return queryset.filter(is_drill if self.value() == "yes" else ~is_drill)
            earnest = {path: ""}
            if self.value() == "yes":
                return queryset.exclude(**earnest)
            return queryset.filter(**earnest)

    return DrillsApart


class CreatedOn(admin.SimpleListFilter):
    """Filter by year, month or day. Ids are in order of time, so a day is a range of ids."""

    title = "date"
    parameter_name = "on"
    field = "created_at"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        times = model_admin.model._default_manager.order_by("pk").values_list(self.field, flat=True)
        today = timezone.localdate()
        oldest = times.first()
        first = timezone.localdate(oldest) if oldest else today
        chosen = stretch_of(self.value() or "")
        parts = [(f"{today:%Y-%m-%d}", "Today"), ("7", "Past 7 days"), ("30", "Past 30 days")]
        parts += [(f"{year}", f"{year}") for year in range(today.year, first.year - 1, -1)]
        return parts + [(part, part) for part in _inside(self.value() or "") if chosen]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        stretch = stretch_of(self.value() or "")
        if stretch is None:
            return queryset
        first, end = (first_number_from(queryset.model, self.field, at) for at in stretch)
        return queryset.filter(pk__gte=first, pk__lt=end)

    def has_output(self) -> bool:
        return True


class FirstSeenOn(CreatedOn):
    field = "first_seen_at"


class AskedOn(CreatedOn):
    field = "asked_at"


def stretch_of(text: str) -> tuple[datetime, datetime] | None:
    """Return start and end of `2026`, `2026-11`, `2026-11-17`, or the last 7 or 30 days."""
    if text in {"7", "30"}:
        today = timezone.localdate()
        return _midnight(today - timedelta(days=int(text) - 1)), _midnight(today + timedelta(1))
    try:
        parts = [int(part) for part in text.split("-")]
        first = date(*[*parts, 1, 1][:3])
    except (ValueError, OverflowError):
        return None
    if not 1 <= len(parts) <= 3 or first.year > 9000:
        return None
    return _midnight(first), _midnight(_after(first, len(parts)))


def _after(first: date, parts: int) -> date:
    if parts == 3:
        return first + timedelta(days=1)
    if parts == 2:
        return (first + timedelta(days=31)).replace(day=1)
    return first.replace(year=first.year + 1)


def _inside(text: str) -> Iterator[str]:
    """Yield the months of a year, or the days of a month."""
    parts = text.split("-")
    stretch = stretch_of("-".join(parts[:2]))
    if stretch is None or text in {"7", "30"}:
        return
    if len(parts) == 1:
        yield from (f"{parts[0]}-{month:02d}" for month in range(1, 13))
        return
    day, end = (timezone.localdate(moment) for moment in stretch)
    yield f"{day:%Y-%m}"
    while day < end:
        yield f"{day:%Y-%m-%d}"
        day += timedelta(days=1)


def _midnight(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day, time.min))


class FoundByWords:
    """Mixin for an admin that searches the text of sessions."""

    matched_by = "pk"
    """Field with the id of a session."""

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        words = search_term.strip()
        if not words:
            return queryset, False
        if is_too_short(words):
            messages.warning(request, f"Enter at least {SHORTEST_WORDS} letters to search.")
            return queryset.none(), False
        numbers, down_to = newest_matches(
            Session.objects.all(),
            words,
            below=LARGEST_NUMBER,
            wanted=MATCHES_LISTED,
            looked_at=MATCHES_LOOKED_AT,
        )
        if down_to:
            text = f"Only the newest {MATCHES_LISTED:,} matches are listed: refine the search."
            messages.info(request, text)
        return queryset.filter(**{f"{self.matched_by}__in": numbers}), self.matched_by != "pk"
