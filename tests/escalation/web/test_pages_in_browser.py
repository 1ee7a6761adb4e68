"""The pages in a real browser, served by the real ASGI server.

Live output needs async streaming, so uvicorn runs in a thread on the test database. Every page is
held to: no console message, nothing blocked by the policy, and no request to any other address.
"""

from __future__ import annotations

from decimal import Decimal

from django.urls import reverse
from playwright.sync_api import expect

from sessions_app.models import Session
from tests.factories import (
    PASSWORD,
    ChangeFactory,
    CommandEventFactory,
    CycleFactory,
    IncidentFactory,
    RemedyFactory,
    SandboxProofFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
    three_tier_chain,
    user_with,
)

PHONE = {"width": 390, "height": 844}
LARGEST_PAGE = 150_000
"""In bytes, of HTML as the browser has it."""
LONG_WORD = "averyveryverylongwordwithoutanyspaceinit" * 6


def busy_installation() -> Session:
    """Data with everything that could break a page: long, hostile, failed, running."""
    session = three_tier_chain(
        cycle=CycleFactory(outcome_reason=LONG_WORD, workdir="/" + LONG_WORD)
    )[2]
    Session.objects.filter(pk=session.pk).update(
        report={
            "summary": LONG_WORD,
            "services": [{"name": LONG_WORD, "status": "down"}],
            "actions_taken": [{"action": f"restarted {LONG_WORD}", "result": "succeeded"}],
        },
        argv=["claude", LONG_WORD],
        error=f"<script>alert(1)</script> {LONG_WORD}",
        model_used=LONG_WORD[:90],
        **{"continued_guard": LONG_WORD[:40], "continued_why": LONG_WORD, "request": LONG_WORD},
        **{"handoff": {LONG_WORD: LONG_WORD}, "continuation_facts": {LONG_WORD: LONG_WORD}},
        **{"continued_by": "handoff", "estimated_cost_usd": "0.0123", "cost_usd": None},
    )
    SessionEventFactory(session=session, sequence=1, said=f"<script>alert(1)</script>{LONG_WORD}")
    refused = {"command": LONG_WORD, "verdict": "deny", "more": {"allowed_from": 2}}
    CommandEventFactory(session=session, sequence=2, **refused)
    CommandEventFactory(session=session, sequence=3, more={"reason": LONG_WORD, "cwd": LONG_WORD})
    Session.objects.filter(pk=session.pk).update(
        sandbox={"writable": [LONG_WORD], "limits": "x", "changes_nothing": True}
    )
    rows = [{"tier": 1, "command": LONG_WORD, "happened": LONG_WORD, "rule": LONG_WORD}]
    SandboxProofFactory(rows=rows, worse=True, kernel=LONG_WORD[:200])
    incident = IncidentFactory(title=LONG_WORD[:200], detail=LONG_WORD, remedy=LONG_WORD[:300])
    incident.cycles.add(session.cycle)
    ChangeFactory(session=session, action=LONG_WORD[:300], command=f"{LONG_WORD} x")
    edit = {
        "kind": "edit",
        "path": f"/{LONG_WORD}",
        "diff": f"-{LONG_WORD}\n+<script>\n+{LONG_WORD}",
    }
    ChangeFactory(session=session, service="", exit_code=None, **edit)
    incident.events.create(kind="did_not_hold", text=LONG_WORD, session=session)
    for purpose in ("follow_up", "fork", "retry"):
        branch = SessionFactory(parent_session=session, tier=3, purpose=purpose, failed=True)
        SessionFactory(parent_session=branch, tier=3, purpose="fork", request=LONG_WORD)
    SessionFactory(running=True)
    SessionFactory(drill=True, failed=True)
    return session


def addresses(session: Session) -> list[str]:
    return [
        reverse("web:overview"),
        reverse("web:start"),
        reverse("web:sessions"),
        reverse("web:costs"),
        session.get_absolute_url(),
        session.cycle.get_absolute_url(),
        reverse("web:cycle_events", args=[session.cycle_id]),
        reverse("web:session_events", args=[session.pk]),
        reverse("web:session_commands", args=[session.pk]),
        reverse("web:sandbox"),
        reverse("web:incidents"),
        session.cycle.incidents.get().get_absolute_url(),
        reverse("web:autonomy", args=[session.cycle.watch_id]),
        reverse("web:watch_remedies", args=[session.cycle.watch_id]),
        RemedyFactory(watch=session.cycle.watch).get_absolute_url(),
        reverse("web:changes"),
        f"{reverse('web:cycles')}?q=averyvery",
        reverse("web:health"),
        reverse("web:approvals"),
        reverse("web:costs") + "?view=continuity",
        reverse("admin:index"),
        reverse("admin:sessions_app_session_changelist"),
    ]


def test_no_page_is_large_logs_an_error_or_requests_another_host(visit):
    for path in addresses(busy_installation()):
        page = visit.go(path)
        page.wait_for_load_state("load")
        assert len(page.content().encode()) <= LARGEST_PAGE, path


def test_no_page_scrolls_sideways_on_a_phone(visit):
    visit.page.set_viewport_size(PHONE)

    pages = (path for path in addresses(busy_installation()) if not path.startswith("/admin"))
    for path in pages:
        page = visit.go(path)
        page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"], path


def test_an_anonymous_visitor_can_log_in(browser, origin):
    user_with("viewer", username="ada")
    page = browser.new_context().new_page()

    page.goto(origin)
    page.get_by_label("User name").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()

    expect(page.get_by_role("heading", name="Watches")).to_be_visible()
    page.context.close()


def test_output_appears_live_and_ends_with_the_session(visit):
    session = SessionFactory(running=True)
    SessionEventFactory(session=session, sequence=1, said="before the page")
    page = visit.go(session.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")

    SessionEventFactory(session=session, sequence=2, said="while it runs <b>")

    expect(page.locator("#event-2")).to_contain_text("while it runs <b>", timeout=3_000)
    expect(page.locator("#event-1")).to_have_count(1)

    session.finish("completed", cost_usd=Decimal("0.47"), report={"summary": "all is well"})
    session.cycle.finish("fixed", "Tier 1 mended it.")

    expect(page.locator("#overview")).to_contain_text("all is well")
    expect(page.locator("#aside")).to_contain_text("$0.47")
    expect(page.locator("#live-status")).to_have_text("finished")
    expect(page.locator("[hx-trigger]")).to_have_count(0)


def test_a_broken_connection_loses_and_repeats_no_line(visit, monkeypatch):
    monkeypatch.setattr("escalation.web.live.LONGEST_STREAM_SECONDS", 0.2)
    session = SessionFactory(running=True)
    page = visit.go(session.get_absolute_url())

    for number in range(1, 4):
        SessionEventFactory(session=session, sequence=number)
        page.locator(f"#event-{number}").wait_for(timeout=5_000)
        expect(page.locator("#live-status")).to_contain_text("trying again")
    session.finish("completed")

    expect(page.locator("#live-status")).to_have_text("finished")
    expect(page.locator(".line-said")).to_have_count(3)
    visit.complaints.clear()  # htmx writes each broken connection to the console


def test_the_next_tier_appears_without_a_reload(visit):
    first = SessionFactory(running=True)
    page = visit.go(first.get_absolute_url())

    first.finish("escalated", cost_usd=Decimal("0.03"))
    second = SessionFactory(tier=2, parent_session=first)

    link = page.get_by_role("link", name=f"Session #{second.pk} (Tier 2)")
    expect(link).to_be_visible()


def test_the_log_scrolls_to_its_end_until_the_reader_scrolls_up(visit):
    session = SessionFactory(running=True)
    for number in range(80):
        SessionEventFactory(session=session, sequence=number, said=f"line {number}")
    page = visit.go(session.get_absolute_url())
    at_end = "log.scrollHeight - log.scrollTop - log.clientHeight < 5"
    expect(page.locator("#live-status")).to_have_text("live")
    assert page.evaluate(at_end)

    SessionEventFactory(session=session, sequence=80, said="followed")
    expect(page.locator("#event-80")).to_be_visible()
    assert page.evaluate(at_end)

    page.evaluate("log.scrollTop = 0")
    page.wait_for_function("log.scrollTop === 0")
    SessionEventFactory(session=session, sequence=81, said="not followed")
    page.locator("#event-81").wait_for(state="attached")
    assert page.evaluate("log.scrollTop") == 0


def test_opened_details_stay_open_after_a_refresh(visit):
    session = SessionFactory(running=True, prompt="Look after it.")
    page = visit.go(session.get_absolute_url())
    page.get_by_text("Prompt", exact=True).click()

    session.finish("completed")

    expect(page.locator("#overview")).to_have_attribute("data-state", "completed")
    expect(page.get_by_text("Look after it.")).to_be_visible()


def test_the_overview_refreshes_by_itself(visit):
    session = SessionFactory(running=True)
    page = visit.go(reverse("web:overview"))
    expect(page.locator("#overview-page")).to_contain_text("Tier 1 running")

    session.finish("completed", cost_usd=Decimal("0.03"))
    session.cycle.finish("healthy", "Nothing to do here.")

    expect(page.locator("#overview-page")).to_contain_text("Nothing to do here.", timeout=8_000)


def test_a_refresh_keeps_the_chosen_drill(visit):
    session = SessionFactory(running=True)
    page = visit.go(reverse("web:overview"))
    page.get_by_label("Scenario").select_option(index=1)
    chosen = page.get_by_label("Scenario").input_value()

    session.finish("completed")

    expect(page.locator("#overview-page")).to_contain_text("Tier 1 completed", timeout=8_000)
    assert page.get_by_label("Scenario").input_value() == chosen


def test_the_list_is_filtered_in_place(visit):
    failed, good = SessionFactory(failed=True), SessionFactory()
    page = visit.go(reverse("web:sessions"))

    page.get_by_label("Status").select_option("failed")

    expect(page.locator(f'a[href="{good.get_absolute_url()}"]')).to_have_count(0)
    expect(page.locator(f'a[href="{failed.get_absolute_url()}"]')).to_have_count(1)
    assert "status=failed" in page.url


def test_earlier_output_is_loaded_in_place(visit, monkeypatch):
    monkeypatch.setattr("escalation.web.sessions.EVENTS_SHOWN", 3)
    session = SessionFactory()
    for number in range(5):
        SessionEventFactory(session=session, sequence=number)
    page = visit.go(session.get_absolute_url())

    page.get_by_text("What this run said and did").click()
    page.get_by_role("link", name="Load earlier output").click()

    expect(page.locator(".entry")).to_have_count(5)


def test_an_operator_escalates_with_a_reason_and_a_confirmation(visit):
    session = SessionFactory(tier=1)
    page = visit.go(session.get_absolute_url())
    page.locator("#action-escalate_session > summary").click()
    form = page.locator("#action-escalate_session form")

    form.get_by_role("button").click()
    assert page.url.endswith(session.get_absolute_url())  # no reason, no confirmation: not sent

    form.get_by_label("Reason").fill("It needs more than looking.")
    form.get_by_label("Yes, run Tier 2").check()
    form.get_by_role("button").click()

    page.wait_for_url(lambda url: not url.endswith(session.get_absolute_url()))
    child = session.children.get()
    assert (child.tier, child.request) == (2, "It needs more than looking.")


def test_a_refresh_keeps_text_in_a_form(visit):
    watch, session = WatchFactory(), SessionFactory(running=True)
    page = visit.go(reverse("web:overview"))
    page.locator(f"#watch-more-{watch.pk} > summary").click()
    page.locator(f"#run-options-{watch.pk} > summary").click()
    page.locator(f"#prompt-{watch.pk}").fill("Look at the backups")

    session.finish("completed")

    expect(page.locator("#overview-page")).to_contain_text("Tier 1 completed", timeout=8_000)
    expect(page.locator(f"#prompt-{watch.pk}")).to_have_value("Look at the backups")
    expect(page.locator(f"#prompt-{watch.pk}")).to_be_visible()


def test_the_actions_appear_when_the_session_has_ended(visit):
    session = SessionFactory(running=True)
    page = visit.go(session.get_absolute_url())
    expect(page.locator("#live-status")).to_have_text("live")

    session.finish("completed")
    session.cycle.finish("healthy", "All is well.")

    expect(page.locator("#action-follow_up")).to_be_visible()


def test_a_poll_after_logout_redirects_to_the_login_page(visit, context):
    page = visit.go(reverse("web:overview"))

    context.clear_cookies()

    page.wait_for_url("**/login/**", timeout=10_000)


def test_every_page_works_without_javascript(browser, context, origin):
    session = busy_installation()
    plain = browser.new_context(java_script_enabled=False, storage_state=context.storage_state())
    page = plain.new_page()

    page.goto(origin + reverse("web:sessions"))
    page.get_by_label("Tier").select_option("3")
    page.get_by_role("button", name="Filter").click()
    page.locator(".id").get_by_role("link", name=f"#{session.pk}").click()

    expect(page.get_by_role("heading", name=f"Session #{session.pk}")).to_be_visible()
    plain.close()
