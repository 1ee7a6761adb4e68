"""History bars and clocks of the overview."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from django.utils import timezone

from escalation.templatetags.ops_format import clock, coming, history_bar
from sessions_app.history.cycles import PastCycle

NOW = timezone.now()


def a_cycle(number: int, kind: str = "healthy", word: str = "healthy") -> PastCycle:
    return PastCycle(cycle=number, kind=kind, word=word, began=NOW, cost=Decimal("0.03"))


def test_a_history_bar_links_to_each_cycle_and_names_its_outcome():
    html = history_bar([a_cycle(7, "needs_person", "needs a person")])

    assert 'class="mark mark-needs_person"' in html
    assert 'href="/cycles/7/"' in html
    assert 'title="needs a person, ' in html
    assert "$0.03" in html


def test_only_the_newest_cycle_is_reached_by_the_tab_key():
    html = history_bar([a_cycle(1), a_cycle(2), a_cycle(3)])

    assert html.count('tabindex="-1"') == 2
    assert html.index('href="/cycles/3/"') < html.index('tabindex="0"')


def test_a_history_bar_escapes_hostile_text():
    html = history_bar([a_cycle(1, "stopped", 'stopped by "><script>\u202e')])

    assert "<script>" not in html
    assert "\u202e" not in html


def test_a_clock_shows_the_duration_and_its_start():
    html = clock(timezone.now() - timedelta(seconds=75))

    assert "1 min 15 s" in html
    assert "data-since=" in html
    assert clock(None) == "–"


def test_a_future_time_is_shown_differently_from_a_due_one():
    assert "in 2 h" in coming(timezone.now() + timedelta(hours=2, minutes=1))
    assert "within a minute" in coming(timezone.now() + timedelta(seconds=20))
    assert "due now" in coming(timezone.now() - timedelta(minutes=5))
    assert coming(None) == "–"
