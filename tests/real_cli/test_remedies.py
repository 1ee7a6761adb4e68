"""Remedies that an agent calls, on the real CLI."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.drills.scenario import Reply, ScriptedToolCall
from escalation.run.remedies import save
from sessions_app.models import Change, Remedy, SessionEvent, Watch
from sessions_app.models.session import EventKind
from tests.factories import ServiceStateFactory, WatchFactory
from tests.real_cli.playing import conversation_text, tool_outputs

SCRIPT = """#!/bin/bash
echo "$1" >> restarted
echo "restarted $1, input $(wc -c)"
[ -e {secret} ] && cat {secret}
exit 0
"""


def bash(command: str) -> Reply:
    return Reply(calls=(ScriptedToolCall(tool="Bash", input={"command": command}),))


@pytest.fixture
def script(tmp_path: Path, own_state: Path) -> Path:
    file = tmp_path / "operator" / "restart.sh"
    file.parent.mkdir()
    file.write_text(SCRIPT.format(secret=own_state / "secret"))
    own_state.mkdir(exist_ok=True)
    (own_state / "secret").write_text("swordfish")
    return file


@pytest.fixture
def watch(watch_cycle, script: Path) -> Watch:
    watch = WatchFactory(workdir=str(watch_cycle.workdir))
    ServiceStateFactory(watch=watch, service="web", name="web")
    row = Remedy(
        watch=watch,
        name="restart",
        description="Restarts a service of the shop.",
        command=[str(script), "{service}"],
        parameters="service: service",
        kind=Remedy.Kind.RESTART,
        seconds=20,
    )
    save(row, by="ann")
    return watch


def test_tier_2_restarts_a_service_by_the_operators_remedy(
    scripted_api, watch_cycle, watch, script
):
    hostile = (
        "remedy restart '; rm -rf /' 2>&1; remedy restart -f 2>&1; remedy restart web web 2>&1; "
        "remedy reboot 2>&1"
    )
    api = scripted_api(
        bash("remedy"),
        bash("echo data | remedy restart web | tr a-z A-Z"),
        bash(hostile),
        bash(f"echo hostile > {script}; remedy restart web"),
        *watch_cycle.healthy,
    )

    cycle = watch_cycle.run_watch(watch, tier=2)

    session = cycle.sessions.get()
    listed, restarted, denied, again = tool_outputs(session)[:4]
    assert "restart SERVICE: Restarts a service of the shop." in listed
    assert restarted == "RESTARTED WEB, INPUT 0"
    assert denied.count("It did not run") == 3
    assert "no remedy of that name" in denied
    assert "restarted web, input 0" in again
    assert "hostile" not in script.read_text()
    assert "swordfish" not in again
    assert (watch_cycle.workdir / "restarted").read_text() == "web\nweb\n"
    for change in Change.objects.filter(kind=Change.Kind.RESTART):
        assert (change.service, change.exit_code) == ("web", 0)
        assert change.command == "remedy restart web"
    assert Change.objects.filter(kind=Change.Kind.RESTART).count() == 2
    assert "- restart SERVICE: Restarts" in conversation_text(api.requests[0].body)


def test_a_script_that_was_changed_after_acceptance_does_not_run(
    scripted_api, watch_cycle, watch, script
):
    script.write_text("#!/bin/sh\ntouch hostile\n")
    api = scripted_api(bash("remedy restart web 2>&1; remedy"), *watch_cycle.healthy)

    cycle = watch_cycle.run_watch(watch, tier=2)

    session = cycle.sessions.get()
    assert "was changed since a person accepted it" in tool_outputs(session)[0]
    assert "No remedy is declared" in tool_outputs(session)[0]
    assert list(watch_cycle.workdir.iterdir()) == []
    assert "restart SERVICE" not in conversation_text(api.requests[0].body)
    denied = SessionEvent.objects.filter(session=session, kind=EventKind.COMMAND)
    assert "waits for a person" in [event.payload["rule"] for event in denied]
