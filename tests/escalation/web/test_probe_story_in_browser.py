"""From a new probe to a closed incident in a real browser, without a call of a model."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from django.db import connection
from django.urls import reverse
from playwright.sync_api import Page, expect

from escalation.drills.scenario import Scenario
from escalation.drills.scripted_api import ScriptedApi
from escalation.probes.loop import ProbeThread
from escalation.tasks import run_remedy
from sessions_app.models import Cycle, Incident, Probe, RemedyRun, Watch
from tests.escalation.web.visiting import Visit, wait_until
from tests.factories import RemedyFactory, WatchFactory


class Shop(BaseHTTPRequestHandler):
    up: Path

    def do_GET(self) -> None:
        self.send_response(200 if self.up.exists() else 503)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def watch(settings, tmp_path: Path, transactional_db) -> Watch:
    """A paused watch: its failing probe opens an incident and leaves it to a person."""
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    (tmp_path / "shop").mkdir()
    found: Watch = WatchFactory(name="shop", workdir=str(tmp_path / "shop"), enabled=False)
    return found


@pytest.fixture
def shop(watch: Watch) -> Iterator[str]:
    Shop.up = Path(watch.workdir) / "web.up"
    Shop.up.touch()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()


@contextmanager
def probes_run() -> Iterator[None]:
    """The loop of the worker."""
    stop = threading.Event()
    thread = threading.Thread(target=ProbeThread().work_until, args=(stop,))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedApi]:
    with ScriptedApi(Scenario(name="story", title="x")).serving() as api:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", api.base_url("story", 1))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        yield api


def add_probe(visit: Visit, watch: Watch, target: str) -> Page:
    page = visit.go(reverse("web:probes", args=[watch.pk]))
    for label, value in (
        *(("Name", "web-http"), ("Service", "web"), ("Target", target), ("Every", "5s")),
        *(("Fail after", "1"), ("Recover after", "1")),
    ):
        page.locator("form.channel-form").get_by_label(label, exact=True).fill(value)
    page.get_by_role("button", name="Add", exact=True).click()
    return page


def work_off_remedies() -> None:
    """Does what the worker does with the task of the run."""
    try:
        run_remedy(RemedyRun.objects.get().pk)
    finally:
        connection.close()


def test_a_probe_is_added_breaks_and_its_incident_is_closed_by_a_remedy(visit, watch, shop, api):
    RemedyFactory(
        watch=watch,
        name="start-web",
        command=["touch", "web.up"],
        parameters="",
        service="web",
        probe="web-http",
        grants="",
    )
    page = add_probe(visit, watch, shop)
    expect(page.locator("h2", has_text="web-http")).to_be_visible()
    with probes_run():
        wait_until(lambda: Probe.objects.get().state == Probe.State.UP, 15)

        Shop.up.unlink()
        page.get_by_text("Run, mute").click()
        page.get_by_role("button", name="Run now").click()
        visit.go(reverse("web:overview"))
        found = page.get_by_role("link", name="web: probe web-http fails").first
        expect(found).to_be_visible(timeout=15_000)
        incident = Incident.objects.get()
        assert (incident.found_by, incident.cause) == ("probe", "web")

        visit.go(incident.get_absolute_url())
        page.get_by_role("link", name="Run a remedy").click()
        page.get_by_label("start-web").check()
        page.get_by_role("button", name="Run", exact=True).click()
        worker = threading.Thread(target=work_off_remedies)
        worker.start()
        worker.join(20)
        wait_until(lambda: not Incident.objects.get().is_unresolved)

    visit.go(incident.get_absolute_url())
    expect(page.locator("h1")).to_contain_text("fixed by a remedy")
    assert Incident.objects.get().resolved_as == Incident.ResolvedBy.REMEDY
    assert RemedyRun.objects.get().proof == RemedyRun.Proof.HELPED
    assert (api.requests, Cycle.objects.count()) == ([], 0)


def test_a_proposed_probe_is_added_from_the_page_of_the_watch(visit, watch):
    compose = "services: {web: {ports: ['8080:80']}, db: {ports: ['5432:5432']}}"
    (Path(watch.workdir) / "compose.yaml").write_text(compose)
    page = visit.go(watch.get_absolute_url())
    proposed = page.get_by_role("region", name="Proposed probes").get_by_role("listitem")
    expect(proposed).to_have_count(2)
    assert not Probe.objects.exists()

    proposed.filter(has_text="127.0.0.1:5432").get_by_role("button", name="Dismiss").click()
    expect(proposed).to_have_count(1)
    proposed.get_by_role("button", name="Add this probe").click()

    expect(page.get_by_text("The probe web-tcp was added")).to_be_visible()
    expect(proposed).to_have_count(0)
    assert Probe.objects.get().target == "127.0.0.1:8080"
    assert page.url.endswith(watch.get_absolute_url())
