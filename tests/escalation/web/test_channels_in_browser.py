"""Channels in a real browser: added, tested, switched off, removed; on a desktop and a phone."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from sessions_app.models import Channel, Message
from tests.escalation.notifications.post_offices import webhook
from tests.escalation.web.test_pages_in_browser import LONG_WORD, PHONE
from tests.factories import ChannelFactory, MessageFactory, WatchFactory


def test_a_channel_is_added_tested_and_switched_off(visit):
    with webhook() as hook:
        page = visit.go("/channels/")
        expect(page.get_by_text("There is no channel yet")).to_be_visible()
        page.get_by_label("Name").fill("our hook")
        page.get_by_label("Address").fill(f"{hook.address}hidden-path")
        page.get_by_label("Lowest severity").select_option(label="critical")
        page.get_by_label("Quiet from").fill("22:00")
        page.get_by_label("Quiet until").fill("07:00")
        page.get_by_role("button", name="Add").click()

        expect(page.get_by_role("heading", name="our hook not tried yet")).to_be_visible()
        assert "hidden-path" not in page.content()

        page.get_by_role("button", name="Send a test").click()
        expect(page.get_by_text("The test was sent to our hook")).to_be_visible()
        expect(page.get_by_role("heading", name="our hook works")).to_be_visible()
        assert [got["title"] for got in hook.got] == ["Claude Ops: a test"]

        page.get_by_role("button", name="Switch off").click()
        expect(page.get_by_role("button", name="Switch on")).to_be_visible()
    assert not Channel.objects.get().enabled


def test_errors_are_shown_beside_their_fields(visit):
    page = visit.go("/channels/")
    visit.complaints.clear()
    page.get_by_label("Name").fill("nonsense")
    page.get_by_label("Address").fill("nonsense://hidden-token")
    page.get_by_role("button", name="Add").click()

    expect(page.get_by_text("Apprise does not support this address")).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("nonsense")
    expect(page.get_by_label("Address")).to_have_value("")
    assert "hidden-token" not in page.content()
    # The browser itself notes an answer that says 422.
    visit.complaints[:] = [line for line in visit.complaints if "422" not in line]


def test_a_channel_is_removed_after_a_confirmation(visit):
    channel = ChannelFactory(name="old")
    page = visit.go(f"/channels/{channel.pk}/")

    page.get_by_label("Yes, remove old").check()
    page.get_by_role("button", name="Remove").click()

    expect(page).to_have_url(re.compile("/channels/$"))
    assert not Channel.objects.exists()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_scrolls_sideways_on_a_phone(visit, scheme):
    channel = ChannelFactory(
        name=LONG_WORD[:90], service=LONG_WORD[:190], failures_in_a_row=2, last_error=LONG_WORD
    )
    channel.watches.add(WatchFactory(name=LONG_WORD[:90]))
    MessageFactory(channel=channel, title=LONG_WORD[:190], error=LONG_WORD)
    MessageFactory(channel=channel, state=Message.State.FAILED)
    visit.page.emulate_media(color_scheme=scheme)
    visit.page.set_viewport_size(PHONE)

    for path in ("/channels/", f"/channels/{channel.pk}/", "/"):
        page = visit.go(path)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], path
