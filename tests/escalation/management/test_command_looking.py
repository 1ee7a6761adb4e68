"""`claudeops status`, `cycles`, `logs` and `open`."""

from __future__ import annotations

import io
import json
from datetime import timedelta
from decimal import Decimal

import pytest
from django.core.management import call_command
from django.utils import timezone

from escalation.errors import RefusalCode
from escalation.management.arguments import NOTHING_WATCHED
from escalation.notifications.digest import load_digest
from sessions_app.access.roles import note_changed
from sessions_app.history.header_status import load_header_status
from sessions_app.models import Approval, Cycle, Incident, PauseSwitch, Session, WorkerHeartbeat
from sessions_app.text import money
from tests.escalation.refusals import command_refused
from tests.factories import (
    ApprovalFactory,
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
    user_with,
)

pytestmark = pytest.mark.django_db
State = Incident.State


def output_of(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=out)
    return out.getvalue()


def status(*options: str) -> tuple[int, str]:
    out = io.StringIO()
    try:
        call_command("status", *options, stdout=out, stderr=out)
    except SystemExit as leaving:
        return int(leaving.code or 0), out.getvalue()
    return 0, out.getvalue()


@pytest.fixture
def at_rest(fake_cli) -> None:
    """A worker is there, and the CLI as well."""
    WorkerHeartbeat.objects.create(host="here", pid=1)


def test_without_open_tasks_status_exits_with_0(at_rest):
    code, said = status()

    assert code == 0
    assert "Nothing runs." in said
    assert "Nothing.\n" in said
    assert "$0.00 in 0 runs" in said


def test_status_shows_running_sessions_next_runs_and_cost_of_today(at_rest, workdir):
    watch = WatchFactory(name="shop", workdir=str(workdir))
    SessionFactory(cost_usd=Decimal("1.25"), started_at=timezone.now())
    running = SessionFactory(
        status=Session.Status.RUNNING,
        started_at=timezone.now(),
        finished_at=None,
        cost_usd=None,
        cycle=CycleFactory(watch=watch, running=True),
    )

    code, said = status("--json")

    data = json.loads(said)
    assert (code, data["needs"]) == (0, [])
    assert [entry["id"] for entry in data["running"]] == [running.pk]
    assert "shop" in [entry["watch"] for entry in data["next_runs"]]
    assert data["cost_today_usd"] == 1.25
    assert f"#{running.pk}" in status()[1]


def test_status_fits_80_columns_and_begins_with_the_sentence(at_rest, workdir, monkeypatch):
    name = "a-watch-with-a-name-that-is-long-enough-to-fill-its-line"
    watch = WatchFactory(name=name, workdir=str(workdir))
    SessionFactory(cycle=CycleFactory(watch=watch, running=True), running=True)
    incident = IncidentFactory(watch=watch, title="the disk is full " * 9)
    ProbeFactory(watch=watch, name=f"probe-{name}"[:60], state="down", last_output="refused " * 30)
    monkeypatch.setenv("COLUMNS", "80")

    code, said = status()

    lines = said.splitlines()
    assert code == 1
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("1 thing needs you")
    assert any(line.endswith(incident.get_absolute_url()) for line in lines)
    monkeypatch.delenv("COLUMNS")
    assert max(map(len, status()[1].splitlines())) > 80


def test_an_incident_that_needs_a_person_exits_with_1(at_rest):
    incident = IncidentFactory(title="db is slow")

    code, said = status()

    assert code == 1
    assert "db is slow" in said
    assert incident.get_absolute_url() in said


def test_a_resolved_incident_exits_with_0(at_rest):
    IncidentFactory(state=Incident.State.RESOLVED)

    assert status()[0] == 0


def test_an_incident_counts_unless_it_is_snoozed(at_rest):
    cycle = CycleFactory(outcome=Cycle.Outcome.NEEDS_PERSON, outcome_reason="db is slow")
    incident = Incident.objects.create(
        watch=cycle.watch,
        scope=f"watch:{cycle.watch_id}",
        kind=Incident.Kind.values[0],
        cause="db",
        title="db is down",
    )

    (need,) = json.loads(status("--json")[1])["needs"]
    Incident.objects.update(snoozed_until=timezone.now() + timedelta(hours=1))

    assert (need["kind"], need["why"]) == ("incident", incident.title)
    assert status()[0] == 0


def test_a_waiting_approval_exits_with_1(at_rest):
    Approval.objects.create(
        kind=Approval.Kind.TIER,
        session=SessionFactory(tier=3),
        why="Tier 3 needs a word",
        expires_at=timezone.now() + timedelta(hours=1),
    )

    assert "Tier 3 needs a word" in status()[1]


def test_page_status_and_digest_count_the_same(at_rest):
    now, gone = timezone.now(), user_with("operator", is_active=False)
    acknowledged = {"state": State.ACKNOWLEDGED, "acknowledged_at": now}
    waiting = [
        IncidentFactory(),
        IncidentFactory(kind=Incident.Kind.COULD_NOT_RUN, cause="cli"),
        IncidentFactory(**acknowledged),
        IncidentFactory(**acknowledged, owner=gone),
        IncidentFactory(state=State.VERIFYING, verify_at=now - timedelta(hours=1)),
        IncidentFactory(**acknowledged, snoozed_until=now - timedelta(hours=1)),
    ]
    others = [
        IncidentFactory(**acknowledged, owner=user_with("operator")),
        IncidentFactory(state=State.VERIFYING, verify_at=now + timedelta(hours=1)),
        IncidentFactory(state=State.VERIFYING, verify_at=None),
        IncidentFactory(state=State.WORKING),
        IncidentFactory(snoozed_until=now + timedelta(hours=1)),
        IncidentFactory(healthy_cycles=1),
        IncidentFactory(watch=None, drill="x", scope="drill:x", cause="web"),
        IncidentFactory(state=State.RESOLVED),
    ]
    ApprovalFactory()
    ApprovalFactory(expires_at=now - timedelta(hours=1))

    attention = load_header_status().attention
    digest = load_digest(now - timedelta(days=1), timezone.now())
    data = json.loads(status("--json")[1])

    assert set(Incident.objects.waiting_for_person()) == set(waiting)
    assert all(incident.asks_for_person for incident in waiting)
    assert not any(incident.asks_for_person for incident in others if not incident.drill)
    assert attention.total == len(waiting) + 1
    assert attention.title == f"({attention.total}) Claude Ops"
    assert len(digest.needs_you.lines) + digest.needs_you.more == attention.total
    assert data["waiting_for_person"] == len(data["needs"]) == attention.total
    assert len(digest.in_hand.lines) == 6


def test_paused_watches_are_not_said_to_be_missing(at_rest):
    assert NOTHING_WATCHED in status()[1]
    WatchFactory(name="shop", enabled=False)

    said = status()[1]

    assert NOTHING_WATCHED not in said
    assert "paused: shop" in said


def test_a_missing_worker_exits_with_1(fake_cli):
    code, said = status()

    assert code == 1
    assert "claudeops up" in said


def test_status_shows_why_nothing_starts(at_rest):
    PauseSwitch.objects.create(pk=1, paused=True, reason="maintenance")

    assert "No new tier starts: paused: maintenance." in status()[1]


def test_cycles_are_listed_newest_first_without_drills():
    old, new = CycleFactory(), CycleFactory(outcome_reason="all is well")
    CycleFactory(watch=None, drill="three-tiers")

    *rows, end = output_of("cycles").splitlines()

    assert [row.split()[0] for row in rows] == [str(new.pk), str(old.pk)]
    assert rows[0].endswith("all is well")
    assert end == "Cycles 1 to 2 of 2."
    assert "drill three-tiers" in output_of("cycles", "--drills")


def test_an_unknown_cost_of_a_cycle_is_listed_as_unknown():
    first = SessionFactory(escalated=True)
    SessionFactory(tier=2, parent_session=first, failed=True)
    SessionFactory(failed=True)

    *rows, _end = output_of("cycles").splitlines()
    partly, wholly = sorted(rows, key=lambda line: "$" not in line)

    assert "$0.03 + unknown" in partly
    assert "unknown" in wholly
    assert "$" not in wholly


def test_cycles_as_json_have_reports_services_actions_times_and_reasons():
    report = {
        "summary": "web was down",
        "services": [{"name": "web", "status": "healthy"}],
        "events": [],
        "actions_taken": [{"action": "restart", "service": "web", "result": "succeeded"}],
        "escalation": {"needed": False, "reason": "", "services": []},
    }
    session = SessionFactory(report=report, escalation_reason="not needed")

    (cycle,) = json.loads(output_of("cycles", "--json"))

    (shown,) = cycle["sessions"]
    assert (shown["report"], shown["services"]) == (report, report["services"])
    assert shown["actions"] == report["actions_taken"]
    assert shown["finished_at"] == session.finished_at.isoformat()
    assert shown["escalation_reason"] == "not needed"
    assert cycle["outcome_reason"] == session.cycle.outcome_reason


def test_cycles_are_filtered_also_by_a_removed_watch():
    gone = CycleFactory(watch=None, watch_name="lab", outcome=Cycle.Outcome.FIXED)
    CycleFactory()

    assert output_of("cycles", "--watch", "lab").startswith(str(gone.pk))
    assert output_of("cycles", "--outcome", "fixed").startswith(str(gone.pk))


def test_cycles_of_an_unknown_watch_are_refused():
    with command_refused(RefusalCode.NOT_FOUND, match="nowhere"):
        output_of("cycles", "--watch", "nowhere")


@pytest.fixture
def talking() -> Session:
    session = SessionFactory()
    for number in range(1, 4):
        SessionEventFactory(session=session, sequence=number, said=f"word {number}")
    return session


def test_logs_show_the_last_events_of_a_session(talking):
    lines = output_of("logs", str(talking.pk), "-n", "2").splitlines()

    assert [line.rpartition(": ")[2] for line in lines] == ["word 2", "word 3"]
    assert all(f"#{talking.pk}" in line for line in lines)


def test_logs_show_all_sessions_together(talking):
    assert len(output_of("logs").splitlines()) == 3


def test_logs_as_json_have_one_object_per_line(talking):
    first = json.loads(output_of("logs", "--json").splitlines()[0])

    assert first["session"] == talking.pk
    assert "word 1" in json.dumps(first["payload"])


def test_logs_report_that_there_are_no_events():
    assert output_of("logs") == "There are no events yet.\n"


def test_a_call_is_one_line_of_the_logs(monkeypatch):
    session = SessionFactory(tier=2, model="sonnet")
    command = "docker logs web " + "x" * 300
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "web is up"}
    lost = {**call, "id": "b", "input": {"command": "sleep 60"}}
    told = (
        ("supervisor", "status", {"from": "queued", "to": "running"}),
        ("supervisor", "started", {"text": "plumbing"}),
        ("stream", "assistant", {"type": "assistant", "message": {"content": [call]}}),
        ("supervisor", "command", {"verdict": "isolate", "command": command}),
        ("supervisor", "command_end", {"exit_code": 3}),
        ("stream", "user", {"type": "user", "message": {"content": [result]}}),
        ("stream", "assistant", {"type": "assistant", "message": {"content": [lost]}}),
        ("supervisor", "status", {"from": "running", "to": "completed"}),
    )
    for number, (source, kind, payload) in enumerate(told):
        SessionEventFactory(
            session=session, sequence=number, source=source, kind=kind, payload=payload
        )
    monkeypatch.setenv("COLUMNS", "90")

    start, done, open_still, end = output_of("logs").splitlines()

    assert start.endswith(f"── Session {session.pk}: Tier 2, sonnet")
    assert f"#{session.pk} {session.cycle.subject} Tier 2  Bash: docker logs web" in done
    assert "… · isolated · exit 3 · " in done
    assert len(done) == 90
    assert open_still.endswith("Bash: sleep 60 · no result")
    assert f"── Tier 2 completed: {money(session.cost_usd)}, " in end
    for flags in (("--verbose",), ("-v", "2")):
        whole = output_of("logs", *flags)
        assert len(whole.splitlines()) == len(told)
        assert "plumbing" in whole


def test_a_denied_call_is_one_line_of_the_logs():
    session = SessionFactory()
    call = {"type": "tool_use", "id": "a", "name": "Bash", "input": {"command": "reboot"}}
    text = "Permission to use Bash with command reboot has been denied."
    result = {"type": "tool_result", "tool_use_id": "a", "content": text, "is_error": True}
    told = (
        ("stream", "assistant", {"type": "assistant", "message": {"content": [call]}}),
        ("stream", "system/permission_denied", {"tool_name": "Bash", "message": text}),
        ("stream", "user", {"type": "user", "message": {"content": [result]}}),
        ("supervisor", "command", {"verdict": "deny", "command": "reboot"}),
    )
    for number, (source, kind, payload) in enumerate(told):
        SessionEventFactory(
            session=session, sequence=number, source=source, kind=kind, payload=payload
        )

    (line,) = output_of("logs").splitlines()

    assert "Bash: reboot" in line
    assert line.endswith("Denied · Bash")


def test_logs_say_how_to_see_events_of_plumbing():
    SessionEventFactory(source="supervisor", kind="note", payload={"text": "tidied"})

    said = output_of("logs")

    assert "tidied" not in said
    assert "--verbose" in said


def test_following_shows_new_events_and_ends_with_the_session(talking, monkeypatch):
    Session.objects.filter(pk=talking.pk).update(status=Session.Status.RUNNING)

    def meanwhile(seconds: float) -> None:
        SessionEventFactory(session=talking, sequence=9, said="the last word")
        Session.objects.filter(pk=talking.pk).update(status=Session.Status.COMPLETED)

    monkeypatch.setattr("escalation.management.commands.logs.time.sleep", meanwhile)

    said = output_of("logs", "-f", str(talking.pk), "-n", "0")

    assert said.count("\n") == 1
    assert "the last word" in said


def test_open_prints_the_address(settings):
    settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT = "0.0.0.0", 8123  # noqa: S104
    settings.CSRF_TRUSTED_ORIGINS = []
    session = SessionFactory()

    assert output_of("open", str(session.pk)) == f"http://127.0.0.1:8123/sessions/{session.pk}/\n"
    settings.CSRF_TRUSTED_ORIGINS = ["https://ops.example.org"]
    assert output_of("open") == "https://ops.example.org/\n"


def test_open_refuses_an_unknown_session():
    with command_refused(RefusalCode.NOT_FOUND, match="77"):
        output_of("open", "77")


def test_status_begins_with_one_sentence(at_rest, settings, workdir):
    settings.CLAUDEOPS_BUDGET_DAY = Decimal(5)
    shop = WatchFactory(name="shop", workdir=str(workdir))
    WatchFactory(name="nas", workdir=str(workdir), enabled=False)
    spent = CycleFactory(watch=shop)
    SessionFactory(cycle=spent, cost_usd=Decimal("1.25"), started_at=timezone.now())
    IncidentFactory(watch=shop)

    code, said = status()

    first = said.splitlines()[0].split(" · ")
    assert first[0].startswith("1 thing")
    assert first[1:3] == ["1 of 2 watches well", "$1.25 of $5.00 today"]
    assert (code, len(said.splitlines()[0]) <= 80) == (1, True)


def test_costs_sum_by_tier_and_watch_without_drills(workdir):
    shop = WatchFactory(name="shop", workdir=str(workdir))
    for tier, cost in ((1, "0.25"), (2, "1.00")):
        SessionFactory(cycle=CycleFactory(watch=shop), tier=tier, cost_usd=Decimal(cost))
    SessionFactory(cycle=CycleFactory(drill="all-healthy", watch=None), cost_usd=Decimal(9))

    data = json.loads(output_of("costs", "--json"))

    assert data["total"]["cost_usd"] == 1.25
    assert [(row["name"], row["cost_usd"]) for row in data["tiers"]] == [
        ("Tier 1", 0.25),
        ("Tier 2", 1.0),
    ]
    assert [row["name"] for row in data["watches"]] == ["shop"]
    assert "$1.25 for 2 sessions" in output_of("costs")


def test_services_are_listed_worst_first(workdir):
    shop = WatchFactory(name="shop", workdir=str(workdir))
    ServiceStateFactory(watch=shop, service="web", status="down")
    ServiceStateFactory(watch=shop, service="db", status="healthy")

    data = json.loads(output_of("services", "--json"))

    assert [(row["service"], row["status"]) for row in data] == [("web", "down"), ("db", "healthy")]
    unwell = json.loads(output_of("services", "--unwell", "--watch", "shop", "--json"))
    assert [row["service"] for row in unwell] == ["web"]
    assert "web" in output_of("services")


def test_events_lists_what_the_page_lists_without_drills():
    IncidentFactory(title="web is down").events.create(kind="opened")
    drill = IncidentFactory(title="in play", watch=None, drill="three-tiers")
    drill.events.create(kind="opened")
    note_changed(user_with("admin"), WatchFactory(name="shop"), "Paused.")

    shown, drills = output_of("events"), output_of("events", "--drills")
    data = json.loads(output_of("events", "--json", "--limit", "1"))

    assert ("web is down" in shown, "watch shop" in shown, "in play" in shown) == (
        True,
        True,
        False,
    )
    assert ("web is down" in drills, "in play" in drills) == (False, True)
    assert [(row["title"], row["what"]) for row in data] == [("watch shop", "changed")]
