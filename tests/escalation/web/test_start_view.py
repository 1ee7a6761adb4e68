"""The guide of the first start: the state of each step, and the next one."""

from __future__ import annotations

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from sessions_app.models import Probe, ProbeProposal, Watch
from tests.factories import (
    CommandEventFactory,
    CycleFactory,
    ServiceStateFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db

REPORT = {
    "summary": "web answers 502.",
    "services": [{"name": "web", "status": "down"}],
    "escalation": {"needed": True, "reason": "It must be restarted."},
}


@pytest.fixture
def url() -> str:
    return reverse("web:start")


@pytest.fixture
def watch():
    return WatchFactory(name="shop", enabled=False, dry_run=True, max_tier=1)


def page_of(client: Client, url: str) -> str:
    return client.get(url).content.decode()


def test_without_a_key_the_guide_names_the_setting_and_offers_a_drill(
    operator_client, url, monkeypatch
):
    monkeypatch.setattr("escalation.web.context_processors.credentials_configured", lambda: False)

    page = page_of(operator_client, url)

    assert "ANTHROPIC_API_KEY=…" in page
    assert "Try a drill" in page
    assert "not found" in page


def test_with_a_key_the_guide_shows_it_as_set(operator_client, url, monkeypatch):
    monkeypatch.setattr("escalation.web.context_processors.credentials_configured", lambda: True)

    page = page_of(operator_client, url)

    assert "A login for the API is set." in page
    assert "could not run" not in page


def test_the_form_asks_for_name_directory_and_instructions(operator_client, url):
    page = page_of(operator_client, url)

    for name in ("name", "workdir", "instructions"):
        assert f'name="{name}"' in page
    assert "Run the first cycle" not in page


def test_an_account_that_may_not_add_a_watch_is_told_whom_to_ask(url):
    client = Client()
    client.force_login(user_with("operator"))

    page = page_of(client, url)

    assert "Ask an approver" in page
    assert 'name="workdir"' not in page


def test_a_watch_can_be_run_from_the_guide(operator_client, url, watch):
    page = page_of(operator_client, url)

    assert reverse("web:run_watch", args=[watch.pk]) in page
    assert "Run the first cycle" in page
    assert "hx-trigger" not in page


def test_the_form_for_another_watch_can_be_opened(operator_client, url, watch):
    assert 'name="workdir"' in page_of(operator_client, f"{url}?new=1")


def test_a_running_cycle_is_followed(operator_client, url, watch):
    cycle = CycleFactory(watch=watch, running=True)
    SessionFactory(cycle=cycle, status="running", finished_at=None, cost_usd=None)

    page = page_of(operator_client, url)

    assert 'hx-trigger="every 2s"' in page
    assert "Tier 1, now: it starts" in page
    assert cycle.get_absolute_url() in page


def test_an_htmx_request_gets_only_the_guide(operator_client, url, watch):
    page = operator_client.get(url, headers={"HX-Request": "true"}).content.decode()

    assert "<html" not in page
    assert 'id="guide"' in page


def test_a_finished_cycle_shows_its_report_and_denied_commands(operator_client, url, watch):
    session = SessionFactory(cycle=CycleFactory(watch=watch, outcome="needs_person"), report=REPORT)
    denied = {"verdict": "deny", "more": {"allowed_from": 2}}
    CommandEventFactory(session=session, command="docker restart web", **denied)

    with CaptureQueriesContext(connection) as queries:
        page = page_of(operator_client, url)

    assert "web answers 502." in page
    assert "docker restart web" in page
    assert "It must be restarted." in page
    assert reverse("web:unpause_watch", args=[watch.pk]) in page
    assert reverse("web:autonomy", args=[watch.pk]) in page
    assert len(queries) <= 12


def test_the_guide_proposes_probes_for_what_is_there(operator_client, url, watch, tmp_path):
    (tmp_path / "compose.yaml").write_text("services: {web: {ports: ['8080:80']}}")
    Watch.objects.update(workdir=str(tmp_path))
    session = SessionFactory(cycle=CycleFactory(watch=watch), report=REPORT)
    ServiceStateFactory(watch=watch)
    target = {"service": "db", "kind": "tcp", "target": "127.0.0.1:5432"}
    key = ProbeProposal.key_of(*target.values())
    ProbeProposal.objects.create(watch=watch, session=session, key=key, **target)

    with CaptureQueriesContext(connection) as queries:
        page = page_of(operator_client, url)
    assert "127.0.0.1:8080" in page
    assert "127.0.0.1:5432" in page
    assert len(queries) <= 12
    form = {"key": key, "back": "start"}
    answer = operator_client.post(reverse("web:accept_probe", args=[watch.pk]), form)

    assert (answer.url, Probe.objects.get().target) == (url, "127.0.0.1:5432")


def test_a_cycle_without_denied_commands_says_so(operator_client, url, watch):
    SessionFactory(cycle=CycleFactory(watch=watch), report={"summary": "All is well."})

    assert "it asked for no more than it was given" in page_of(operator_client, url)


def test_the_report_and_the_commands_of_a_plan_session_are_not_shown(operator_client, url, watch):
    cycle = CycleFactory(watch=watch, outcome="needs_person")
    SessionFactory(cycle=cycle, report={"summary": "web answers 502."})
    asks = {"needed": True, "reason": "It must be redeployed."}
    planned = {"summary": "web is mended.", "escalation": asks}
    SessionFactory(cycle=cycle, tier=2, purpose="plan", report=planned)

    page = page_of(operator_client, url)

    assert "web answers 502." in page
    assert "web is mended." not in page
    assert "It must be redeployed." not in page


def test_a_stopped_cycle_is_shown_as_stopped(operator_client, url, watch):
    stop = {"status": "interrupted", "stop_cause": "person", "stop_requested": "ada"}
    SessionFactory(cycle=CycleFactory(watch=watch, outcome="needs_person"), **stop)

    page = page_of(operator_client, url)

    assert "stopped by ada" in page
    assert "No report was given." in page


def test_hostile_text_is_escaped(operator_client, url):
    hostile = "<script>alert(1)</script>"
    watch = WatchFactory(name=hostile, workdir=hostile, instructions=hostile)
    report = {"summary": hostile, "services": [{"name": hostile}], "escalation": hostile}
    cycle = CycleFactory(watch=watch, outcome="needs_person", outcome_reason=hostile)
    session = SessionFactory(cycle=cycle, report=report)
    CommandEventFactory(session=session, command=hostile, verdict="deny", more={"allowed_from": 2})

    assert hostile not in page_of(operator_client, url)
