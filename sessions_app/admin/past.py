"""What all pages of the record share: to be searched and read, never changed."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app.access.admin_lists import BoundedPaginator
from sessions_app.access.admin_site import TableAdmin
from sessions_app.access.roles import Right, may
from sessions_app.models import Approval, Cycle, Incident, Session

LONGEST_WORD = 24
"""Of a name in a column: the page of the row has all of it."""


def link_to(target: Session | Cycle | Incident | Approval, text: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', target.get_absolute_url(), text)


class PastAdmin(TableAdmin):
    """Records of the past: a history that can be edited proves nothing."""

    list_per_page = 50
    show_full_result_count = False
    paginator = BoundedPaginator
    show_facets = admin.ShowFacets.NEVER  # each would count the whole table
    # By any other column the whole table would be sorted first.
    sortable_by = ("id",)


class ReadInline(admin.TabularInline):  # type: ignore[type-arg]
    """Rows that belong to another one, to be read on its page."""

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
