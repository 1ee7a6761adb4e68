"""What the admin shows of the pages, and the way from a page to the admin."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app.pages.approvals_page import waiting_approvals
from sessions_app.pages.inbox import load_inbox

register = template.Library()

APPROVALS_SHOWN = 12
# Pages of one thing, and the model that it is of.
IN_ADMIN = {
    "sessions_app:session": "session",
    "sessions_app:cycle": "cycle",
    "sessions_app:incident": "incident",
    "sessions_app:approval": "approval",
    "sessions_app:watch": "watch",
    "sessions_app:trust": "watch",
}


@register.inclusion_tag("admin/_inbox.html")
def admin_inbox() -> dict[str, Any]:
    """Open incidents and what waits for approval: three queries."""
    return {"inbox": load_inbox(), "approvals": waiting_approvals()[:APPROVALS_SHOWN]}


@register.simple_tag(takes_context=True)
def admin_link(context: dict[str, Any]) -> SafeString:
    """From the page of one thing to its page in the admin, for those who may go there."""
    found = getattr(context.get("request"), "resolver_match", None)
    model = IN_ADMIN.get(getattr(found, "view_name", ""))
    if found is None or model is None or not context["may"]["see_output"]:
        return SafeString("")
    url = reverse(f"admin:sessions_app_{model}_change", args=[found.kwargs["pk"]])
    return format_html('<p class="admin-link small"><a href="{}">The same in admin</a></p>', url)
