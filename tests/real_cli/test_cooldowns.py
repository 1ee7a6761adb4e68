"""A cooldown within a real run, and before the next tier."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.sandbox.proof.docker_engine import DockerEngine, docker_engine
from sessions_app.models import Change, Cycle, Incident, Notification, Session
from tests.factories import ChangeFactory, CycleFactory, SessionFactory, WatchFactory
from tests.real_cli.conftest import report_call
from tests.real_cli.playing import tool_outputs


@pytest.fixture
def engine(tmp_path, monkeypatch) -> Iterator[DockerEngine]:
    """A simulated Docker engine with the containers web and db."""
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine.sock")
    with docker_engine(tmp_path / "engine.sock") as found:
        yield found


def bash(*commands: str) -> Reply:
    calls = [ScriptedToolCall(tool="Bash", input={"command": command}) for command in commands]
    return Reply(calls=tuple(calls))


@pytest.mark.usefixtures("engine")
def test_the_third_restart_is_denied_with_a_message_to_the_model(scripted_api, watch_cycle):
    scripted_api(
        bash("docker restart web"),
        bash("docker restart web", "for name in web; do docker stop $name; done"),
        bash("docker restart db"),
        Reply(calls=(report_call(status="down"),)),
    )

    cycle = watch_cycle.run(tier=2)

    session = cycle.sessions.get()
    told = [output for output in tool_outputs(session) if "was restarted twice" in output]
    denied = session.events.filter(kind="command", payload__rule="cooldown")
    assert len(told) == 1
    assert "do not try again, ask for a person" in told[0]
    assert denied.count() == 1
    assert sorted(Change.objects.values_list("service", flat=True)) == ["db", "web", "web"]
    assert None not in Change.objects.values_list("exit_code", flat=True)
    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert Notification.objects.filter(kind=Notification.Kind.COOLDOWN).count() == 1


def test_a_container_by_its_name_and_by_its_id_is_one_service(scripted_api, watch_cycle, engine):
    number = engine.containers["web"].id
    scripted_api(
        bash("docker restart web"),
        bash(f"docker restart {number[:12]}"),
        bash(f"docker restart {number}"),
        Reply(calls=(report_call(status="down"),)),
    )

    session = watch_cycle.run(tier=2).sessions.get()

    assert list(Change.objects.values_list("service", flat=True)) == ["web", "web"]
    assert "web was restarted twice" in tool_outputs(session)[2]


@pytest.mark.usefixtures("engine")
def test_a_session_that_met_a_cooldown_opens_an_incident(scripted_api, watch_cycle):
    scripted_api(
        bash("docker restart web", "docker restart web", "docker restart web"),
        Reply(calls=(report_call(status="healthy"),)),
    )

    watch_cycle.run(tier=2)

    [incident] = Incident.objects.filter(cause="web")
    assert incident.is_unresolved
    assert "was restarted twice" in incident.detail


def test_the_next_tier_is_not_started_when_all_remedies_were_used(scripted_api, watch_cycle):
    watch = WatchFactory(name="shop", workdir=str(watch_cycle.workdir))
    before = SessionFactory(tier=2, cycle=CycleFactory(watch=watch))
    ChangeFactory.create_batch(2, session=before, service="web")
    scripted_api(Reply(calls=(report_call(status="down", escalate="needs a restart"),)))

    cycle = watch_cycle.run_watch(watch)

    session = cycle.sessions.get()
    assert session.status == Session.Status.COMPLETED
    assert cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert cycle.outcome_reason.endswith("Not escalated: web was restarted twice in the last 4 h.")
    told = Notification.objects.get(kind=Notification.Kind.COOLDOWN)
    assert told.path == session.get_absolute_url()
