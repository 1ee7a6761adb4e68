"""`claudeops probe` and `claudeops maintenance`."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from escalation.errors import RefusalCode
from sessions_app.models import Maintenance, Probe, Watch
from tests.escalation.refusals import command_refused
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db
Said = Callable[..., str]


@pytest.fixture
def said(capsys) -> Said:
    def run(*words: str) -> str:
        call_command(*words)
        return str(capsys.readouterr().out)

    return run


@pytest.fixture(autouse=True)
def shop() -> Watch:
    watch: Watch = WatchFactory(name="shop")
    return watch


def add(said: Said, name: str, *words: str) -> Probe:
    said("probe", "add", name, "--watch", "shop", "--service", "web", *words, "--json")
    return Probe.objects.get(name=name)


@pytest.mark.parametrize(
    ("words", "kind", "target"),
    [
        (("--http", "http://127.0.0.1/"), "http", "http://127.0.0.1/"),
        (("--tcp", "127.0.0.1:22"), "tcp", "127.0.0.1:22"),
        (("--dns", "localhost"), "dns", "localhost"),
        (("--command", "df -h /"), "command", "df -h /"),
        (("--file", "/etc/hostname"), "file", "/etc/hostname"),
        (("--disk", "/"), "disk", "/"),
        (("--container", "web"), "container", "web"),
        (("--unit", "nginx.service"), "unit", "nginx.service"),
        (("--heartbeat",), "heartbeat", ""),
    ],
)
def test_every_kind_is_added(said, words, kind, target):
    probe = add(said, "one", *words, "--every", "5m", "--fail-after", "3")

    assert (probe.kind, probe.target) == (kind, target)
    assert (probe.interval_seconds, probe.fail_after) == (300, 3)


def test_a_heartbeat_has_an_address_and_fails_at_once(said):
    words = ("--watch", "shop", "--service", "backup", "--heartbeat")
    data = json.loads(said("probe", "add", "backup", *words, "--json"))

    probe = Probe.objects.get()
    assert data["address"].endswith(f"/heartbeat/{probe.token}")
    assert (probe.fail_after, probe.recover_after) == (1, 1)


def test_options_and_needs_are_stored(said):
    add(said, "router", "--tcp", "10.0.0.1:80")
    web = add(said, "web", "--http", "http://x/", "--option", "status=200", "--needs", "router")

    assert web.options == {"status": "200"}
    assert [parent.name for parent in web.needs.all()] == ["router"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--http", "ftp://x"), RefusalCode.INVALID_CHOICE),
        (("--tcp", "x"), RefusalCode.INVALID_CHOICE),
        (("--command", "true\nrm -rf /"), RefusalCode.INVALID_CHOICE),
        (("--http", "http://x/", "--every", "4s"), RefusalCode.INVALID_CHOICE),
        (("--http", "http://x/", "--every", "soon"), RefusalCode.INVALID_CHOICE),
        (("--http", "http://x/", "--fail-after", "0"), RefusalCode.INVALID_CHOICE),
        (("--http", "http://x/", "--option", "colour=red"), RefusalCode.INVALID_CHOICE),
        (("--http", "http://x/", "--needs", "nothing"), RefusalCode.NOT_FOUND),
    ],
)
def test_bad_input_adds_nothing(words, code):
    with command_refused(code):
        call_command("probe", "add", "x", "--watch", "shop", "--service", "web", *words)

    assert not Probe.objects.exists()


@pytest.mark.parametrize("name", ["a b", "../x", "", "-x", "x" * 101])
def test_bad_names_are_refused(name):
    with command_refused(RefusalCode.INVALID_CHOICE):
        call_command("probe", "add", "--watch=shop", "--service=web", "--dns=x", "--", name)


def test_a_name_is_used_once_in_a_watch(said):
    add(said, "web", "--dns", "localhost")

    with command_refused(RefusalCode.INVALID_CHOICE):
        call_command("probe", "add", "web", "--watch=shop", "--service=web", "--dns=x")


def test_running_prints_the_result_and_its_exit_code(said, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        add(said, "port", "--tcp", f"127.0.0.1:{server.getsockname()[1]}")
        assert json.loads(said("probe", "run", "port", "--json"))["is_good"] is True
    with pytest.raises(SystemExit) as ended:
        call_command("probe", "run", "port", "--json")

    assert ended.value.code == 1
    assert json.loads(capsys.readouterr().out)["status"] == "critical"
    assert Probe.objects.get().state == Probe.State.PENDING


def test_muting_listing_and_removing(said):
    add(said, "web", "--dns", "localhost")
    said("probe", "mute", "web", "--for", "2h")
    assert Probe.objects.get().is_muted
    [listed] = json.loads(said("probe", "list", "--watch", "shop", "--json"))
    assert (listed["name"], listed["state"]) == ("web", "pending")
    said("probe", "mute", "web", "--for", "0")
    assert not Probe.objects.get().is_muted
    said("probe", "remove", "web", "--no-input")
    assert not Probe.objects.exists()


def test_an_unknown_or_ambiguous_name_is_refused(said):
    with command_refused(RefusalCode.NOT_FOUND):
        call_command("probe", "run", "nothing")
    add(said, "web", "--dns", "localhost")
    Probe.objects.create(watch=WatchFactory(), name="web", service="web", kind="dns", target="x")
    with command_refused(RefusalCode.INVALID_ARGUMENTS):
        call_command("probe", "mute", "web")


def test_status_names_probes_that_are_down(said, capsys):
    add(said, "web", "--dns", "localhost")
    Probe.objects.update(state=Probe.State.DOWN)

    with pytest.raises(SystemExit):
        call_command("status", "--json")

    status = json.loads(capsys.readouterr().out)
    assert (status["probes"], status["probes_down"][0]["name"]) == ({"down": 1}, "web")


def test_maintenance_is_started_listed_and_ended(said, shop):
    said("maintenance", "start", "shop", "--for", "1h", "--reason", "backup")
    [window] = json.loads(said("maintenance", "list", "--json"))
    assert (window["holds_now"], window["reason"]) == (True, "backup")
    said("maintenance", "start", "shop", "--service", "db", "--for", "30m", "--weekly")
    said("maintenance", "end", "shop")
    assert [one.holds_now for one in Maintenance.objects.all()] == [False, False]
    with command_refused(RefusalCode.NOT_FOUND):
        call_command("maintenance", "end", "shop")


def test_a_window_is_planned_and_removed(said, shop):
    begins = timezone.localtime() + timedelta(days=2)
    words = ("--for", "2h", "--weekly", "--at", begins.strftime("%Y-%m-%d %H:%M"))
    [window] = json.loads(said("maintenance", "start", "shop", *words, "--json"))
    assert (window["holds_now"], window["is_weekly"]) == (False, True)
    assert Maintenance.objects.get().holds(begins + timedelta(days=7, hours=1))
    for wrong in ("soon", "2020-01-01 10:00", "2026-13-40 99:00"):
        with command_refused(RefusalCode.INVALID_CHOICE):
            call_command("maintenance", "start", "shop", "--for", "1h", "--at", wrong)
    with command_refused(RefusalCode.NOT_FOUND):
        call_command("maintenance", "end", "shop", "--window", "999")

    said("maintenance", "end", "shop", "--window", str(window["window"]))

    assert not Maintenance.objects.exists()


def test_a_weekly_window_without_an_end_is_refused():
    with command_refused(RefusalCode.INVALID_CHOICE):
        call_command("maintenance", "start", "shop", "--weekly")


def test_proposals_are_listed_accepted_and_dismissed(said, shop, tmp_path):
    Watch.objects.update(workdir=tmp_path)
    compose = "services: {web: {ports: ['8080:80']}, db: {ports: ['5432:5432']}}"
    (tmp_path / "compose.yaml").write_text(compose)
    web, db = json.loads(said("probe", "proposals", "--watch", "shop", "--json"))
    assert (web["kind"], web["target"]) == ("tcp", "127.0.0.1:8080")
    assert "tcp 127.0.0.1:5432" in said("probe", "proposals", "--watch", "shop")
    for key in (web["key"][:3], "", "0" * 10):
        with command_refused(RefusalCode.NOT_FOUND):
            call_command("probe", "accept", key, "--watch", "shop", "--no-input")

    added = json.loads(
        said("probe", "accept", web["key"][:10], "--watch", "shop", "--no-input", "--json")
    )
    said("probe", "dismiss", db["key"], "--watch", "shop")

    assert (added["name"], added["target"]) == ("web-tcp", "127.0.0.1:8080")
    assert json.loads(said("probe", "proposals", "--watch", "shop", "--json")) == []
    assert Probe.objects.get().service == "web"
