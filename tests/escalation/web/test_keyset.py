"""Paging loses no row and shows none twice."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from django.http import QueryDict
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase as DatabaseCase

from escalation.web.lists import PagePosition, page_of, position_in
from sessions_app.models import Session
from tests.factories import CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db


def walk(size: int) -> list[list[int]]:
    """From the newest to the oldest, as somebody does who follows `Older`."""
    pages, position = [], PagePosition()
    while True:
        page = page_of(Session.objects.all(), position, size)
        pages.append([row.pk for row in page.rows])
        if page.older is None:
            return pages
        position = PagePosition(before=page.older)


class EveryRowOnce(DatabaseCase):
    @settings(max_examples=15, deadline=None)
    @given(count=st.integers(0, 12), size=st.integers(1, 5))
    def test_paging_shows_every_row_once_and_in_order(self, count, size) -> None:
        cycle = CycleFactory()
        numbers = [SessionFactory(cycle=cycle).pk for _ in range(count)]

        pages = walk(size)

        assert [number for page in pages for number in page] == numbers[::-1]
        assert all(len(page) == size for page in pages[:-1])


def test_new_rows_move_no_row_to_another_page():
    old = [SessionFactory().pk for _ in range(4)]
    first = page_of(Session.objects.all(), PagePosition(), 2)
    SessionFactory(), SessionFactory()

    second = page_of(Session.objects.all(), PagePosition(before=first.older), 2)

    assert [row.pk for row in (*first.rows, *second.rows)] == old[::-1]


def test_newer_leads_to_the_page_before():
    numbers = [SessionFactory().pk for _ in range(6)][::-1]
    third = page_of(Session.objects.all(), PagePosition(before=numbers[3]), 2)

    second = page_of(Session.objects.all(), PagePosition(after=third.newer), 2)

    assert [row.pk for row in second.rows] == numbers[2:4]
    assert (second.older, second.newer, second.is_first) == (numbers[3], numbers[2], False)


def test_newer_ends_on_a_full_first_page():
    numbers = [SessionFactory().pk for _ in range(4)][::-1]

    page = page_of(Session.objects.all(), PagePosition(after=numbers[1]), 3)

    assert [row.pk for row in page.rows] == numbers[:3]
    assert page.is_first
    assert page.newer is None


def test_a_page_with_all_rows_has_no_links():
    SessionFactory()

    page = page_of(Session.objects.all(), PagePosition(), 2)

    assert page.is_all


@pytest.mark.parametrize("odd", ["x", "-3", "1e3", "٣", "9" * 30, ""])
def test_a_position_that_is_not_a_number_is_ignored(odd):
    assert position_in(QueryDict(urlencode({"before": odd, "after": odd}))) == PagePosition()
