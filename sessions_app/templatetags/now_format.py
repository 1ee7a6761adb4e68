"""How the page Now shows what has no template of its own: strips of rounds, and running clocks."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from sessions_app.reading import formatting
from sessions_app.reading.plain_text import clean
from sessions_app.reading.rounds import Round

register = template.Library()


@register.simple_tag
def strip(rounds: Iterable[Round]) -> SafeString:
    """One mark for each round. The class gives shape and colour, the title says it in words.

    Only the newest is a stop for the Tab key; the arrow keys go on from there.
    """
    marks = list(rounds)
    last = len(marks) - 1
    return format_html_join(
        "",
        '<li><a class="mark mark-{}" href="{}" title="{}" tabindex="{}"></a></li>',
        (
            (
                one.kind,
                reverse("sessions_app:cycle", args=[one.cycle]),
                _told(one),
                0 if place == last else -1,
            )
            for place, one in enumerate(marks)
        ),
    )


@register.simple_tag
def clock(since: datetime | None) -> str:
    """How long it has lasted; the page's script lets it go on."""
    if since is None:
        return "–"
    taken = (timezone.now() - since).total_seconds()
    return format_html(
        '<span class="number" data-since="{}">{}</span>',
        since.isoformat(timespec="seconds"),
        formatting.duration(max(taken, 0) // 1 * 1000) if taken >= 10 else f"{max(taken, 0):.0f} s",
    )


@register.simple_tag
def coming(moment: datetime | None) -> str:
    """A time ahead: relative, with the exact one and its zone to point at."""
    if moment is None:
        return "–"
    local, now = timezone.localtime(moment), timezone.now()
    words = formatting.ago(moment, now) if moment > now else "due now"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "within a minute" if words == "just now" else words,
    )


def _told(one: Round) -> str:
    cost = "" if not one.cost else f", {formatting.money(Decimal(one.cost))}"
    return f"{clean(one.word)}, {timezone.localtime(one.began):%Y-%m-%d %H:%M %Z}{cost}"
