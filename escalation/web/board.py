"""Board: all watches on one screen, for a tablet on the wall."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.web.overview import NO_CHANGE, WatchCard, load_overview, overview_version
from escalation.web.responses import HtmxRequest, wants_fragment
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right
from sessions_app.models import Incident

FEW, SOME = 6, 16
"""Watches up to which the tiles are large, and of middle size."""

RANKS = ("bad", "warn", "live", "good", "quiet")
"""Tones in the order of the tiles; within one the order is that of the Overview."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoardTile:
    card: WatchCard

    @property
    def tone(self) -> str:
        card = self.card
        if card.failing_probes or (
            card.worst and card.worst.severity == Incident.Severity.CRITICAL
        ):
            return "bad"
        if not card.is_well:
            return "warn"
        if card.active:
            return "live"
        return "good" if card.last_cycle_of and card.watch.enabled else "quiet"

    @property
    def state(self) -> str:
        """Returns the state in one or two words, readable from afar."""
        card = self.card
        if card.failing_probes:
            return "probe down"
        if card.worst:
            return card.worst.get_severity_display()
        if card.active:
            return "running"
        if not card.watch.enabled:
            return "paused"
        return card.last_cycle_of.word if card.last_cycle_of else "has never run"

    @property
    def sentence(self) -> str:
        card = self.card
        if card.worst:
            return card.worst.title
        if card.failing_probes:
            return ", ".join(card.failing_probes)
        return card.last.outcome_reason if card.last else ""


def _until_next_minute(version: str) -> str:
    """Returns the token of the page. It changes every minute, so that times stay true."""
    return f"{version}-{timezone.now():%H%M}"


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def board(request: HtmxRequest) -> HttpResponse:
    fragment = wants_fragment(request)
    if fragment and request.GET.get("version") == _until_next_minute(overview_version()):
        return HttpResponse(status=NO_CHANGE)
    page = load_overview()
    tiles = [BoardTile(card=card) for card in page.watches]
    tiles.sort(key=lambda tile: RANKS.index(tile.tone))
    context = {
        "page": page,
        "tiles": tiles,
        "size": "few" if len(tiles) <= FEW else "some" if len(tiles) <= SOME else "many",
        "version": _until_next_minute(page.version),
        "now": timezone.now(),
        "header_status": page.header_status,
    }
    return render(request, "web/_board.html" if fragment else "web/board.html", context)
