"""Template tags that connect the admin with the pages."""

from __future__ import annotations

from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from escalation.web.approvals import waiting_approvals
from escalation.web.overview import load_inbox

register = template.Library()

APPROVALS_SHOWN = 12
# URL names of pages, with the model whose admin page shows the same row.
IN_ADMIN = {
    "web:session": "session",
    "web:cycle": "cycle",
    "web:incident": "incident",
    "web:approval": "approval",
    "web:watch": "watch",
    "web:autonomy": "watch",
}


@register.inclusion_tag("admin/_inbox.html")
def admin_inbox() -> dict[str, Any]:
    """Shows open incidents and waiting approvals, with three queries."""
    return {"inbox": load_inbox(), "approvals": waiting_approvals()[:APPROVALS_SHOWN]}


@register.simple_tag(takes_context=True)
def admin_link(context: dict[str, Any]) -> SafeString:
    """Links a page to the same row in the admin, for users who may open it."""
    found = getattr(context.get("request"), "resolver_match", None)
    model = IN_ADMIN.get(getattr(found, "view_name", ""))
    if found is None or model is None or not context["may"]["see_output"]:
        return SafeString("")
    url = reverse(f"admin:sessions_app_{model}_change", args=[found.kwargs["pk"]])
    return format_html('<p class="admin-link small"><a href="{}">The same in admin</a></p>', url)
