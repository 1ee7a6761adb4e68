"""Hostile text in every stored field is escaped on every page."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest
from django.urls import reverse

from sessions_app.models import Cycle, Session, Watch
from tests.escalation.web.every_page import every_admin_list, every_page, fill_every_page
from tests.factories import (
    CommandEventFactory,
    CycleFactory,
    SandboxProofFactory,
    SessionEventFactory,
    WatchFactory,
    three_tier_chain,
)

pytestmark = [pytest.mark.django_db, pytest.mark.timeout(600)]  # every page

SCRIPT = "<script>alert(1)</script>"
LINK = "javascript:alert(1)"
TERMINAL = "\x1b]0;owned\x07\x1b[2J"
BACKWARDS = "\u202egnp.exe\u2066"
EVENT = "x\r\nevent: x\r\ndata: owned"
HOSTILE = (
    f'{SCRIPT}"><img src=x onerror=alert(1)> {LINK} {TERMINAL} {BACKWARDS} {EVENT} [a]({LINK})'
)
WITHOUT_A_SPACE = "a" * 1_000_000
LARGEST_PAGE = 8_000_000
# What would act on who reads the page, if it came through as it is. Tabs and line ends may.
ACTING = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


def hostile_record() -> Session:
    """Everything that a model, a tool or a person can have written."""
    watch = WatchFactory(name=HOSTILE[:100], workdir=f"/srv/{HOSTILE}", instructions=HOSTILE)
    cycle = CycleFactory(watch=watch, watch_name=HOSTILE[:100], workdir=HOSTILE)
    Cycle.objects.filter(pk=cycle.pk).update(outcome_reason=HOSTILE, prompt=HOSTILE)
    session = three_tier_chain(cycle=cycle)[2]
    report = {
        "summary": HOSTILE,
        "services": [{"name": HOSTILE, "status": HOSTILE, "detail": HOSTILE}],
        "actions": [{"what": HOSTILE, "result": HOSTILE}],
    }
    Session.objects.filter(cycle=cycle).update(
        **{"prompt": HOSTILE, "request": HOSTILE, "error": HOSTILE, "result": HOSTILE},
        **{"report": report, "argv": ["claude", HOSTILE]},
        **{"model": HOSTILE[:100], "model_used": HOSTILE[:100], "workdir": HOSTILE},
        **{"escalation_reason": HOSTILE, "continued_why": HOSTILE, "handoff": {HOSTILE: HOSTILE}},
        **{
            "continued_by": "handoff",
            "continued_guard": HOSTILE[:40],
            "cli_version": HOSTILE[:100],
        },
        **{"continuation_facts": {HOSTILE: HOSTILE}, "stop_requested": HOSTILE[:200]},
        sandbox={"sandbox": HOSTILE, "grants": [HOSTILE], "writable": [HOSTILE]},
    )
    SessionEventFactory(session=session, sequence=1, said=HOSTILE)
    SessionEventFactory(session=session, sequence=2, said=WITHOUT_A_SPACE)
    CommandEventFactory(session=session, sequence=3, command=HOSTILE, more={"reason": HOSTILE})
    SandboxProofFactory(rows=[{"tier": 1, "command": HOSTILE, "happened": HOSTILE}], host=HOSTILE)
    fill_every_page(session, HOSTILE)
    return session


class Markup(HTMLParser):
    """What a browser would take for a script, a handler or an address that runs."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.acting: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script" and "src" not in given and "type" not in given:
            self.acting.append("a script")
        for name, value in attrs:
            if name.startswith("on"):
                self.acting.append(f"{tag} {name}")
            if name in {"href", "src", "action"} and (value or "").strip().startswith(
                "javascript:"
            ):
                self.acting.append(f"{tag} {name}={value}")


def objections(address: str, page: str) -> list[str]:
    """Text is to be read: nothing in it may be markup, an address, a control or a direction."""
    found = Markup(page).acting
    if control := ACTING.search(page):
        found.append(f"the character {control[0]!r}")
    if len(page) > LARGEST_PAGE:
        found.append("too much of it")
    return [f"{address}: {what}" for what in found]


def test_hostile_text_is_escaped_on_every_page(operator_client):
    hostile_record()
    pages = {url: operator_client.get(url, follow=True) for url in every_page()}

    assert {url: page.status_code for url, page in pages.items() if page.status_code != 200} == {}
    assert [
        words for url, page in pages.items() for words in objections(url, page.content.decode())
    ] == []


def test_hostile_text_is_escaped_in_every_list_of_the_admin(operator_client):
    session = hostile_record()
    rows = [
        reverse("admin:sessions_app_session_change", args=[session.pk]),
        reverse("admin:sessions_app_cycle_change", args=[session.cycle_id]),
        reverse("admin:sessions_app_watch_change", args=[Watch.objects.latest("pk").pk]),
    ]

    found = [
        words
        for url in [*every_admin_list(), *rows]
        for words in objections(url, operator_client.get(url).content.decode())
    ]

    assert found == []


def test_the_check_finds_unescaped_text():
    page = f'<a href="{LINK}">{SCRIPT}</a>{TERMINAL}'

    assert len(objections("/", page)) == 3


def test_the_check_visits_the_pages_with_hostile_text(operator_client):
    session = hostile_record()

    page = operator_client.get(session.get_absolute_url()).content.decode()

    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert session.get_absolute_url() in every_page() or len(every_page()) > 15
