"""Partial or whole: the one rule, for every view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.http import HttpRequest

if TYPE_CHECKING:
    from django_htmx.middleware import HtmxDetails


class HtmxRequest(HttpRequest):
    htmx: HtmxDetails


def wants_fragment(request: HtmxRequest) -> bool:
    """A boosted link and a restored history entry replace the page, so they get the page."""
    htmx = request.htmx
    return bool(htmx) and not htmx.boosted and not htmx.history_restore_request
