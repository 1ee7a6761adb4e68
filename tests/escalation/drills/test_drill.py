"""A drill is a real cycle on a simulated system of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.drills.drill import drill_directory, drill_environment, start_drill
from escalation.drills.scenario import ScenarioError
from escalation.errors import CannotRun
from escalation.queue import enqueue_with
from sessions_app.models import Cycle, Session
from tests.factories import CycleFactory, SessionFactory, UserFactory

pytestmark = pytest.mark.django_db


def test_a_drill_is_a_cycle_without_a_watch_that_may_use_every_tier():
    person = UserFactory()

    cycle = start_drill("three-tiers", requested_by=person)

    assert (cycle.watch, cycle.drill, cycle.max_tier) == (None, "three-tiers", 3)
    assert cycle.requested_by == person
    assert cycle.sessions.get().workdir == cycle.workdir


def test_each_drill_has_its_own_system():
    first = start_drill("three-tiers")
    second = start_drill("three-tiers")

    (Path(first.workdir) / "containers" / "web.state").write_text("Up")

    assert (Path(second.workdir) / "containers" / "web.state").read_text().startswith("Exited")


def test_an_unknown_scenario_leaves_no_cycle():
    with pytest.raises(ScenarioError):
        start_drill("nonsense")

    assert not Cycle.objects.exists()


def test_when_enqueueing_fails_there_is_no_cycle():
    def refuse(session: Session) -> None:
        raise RuntimeError

    with enqueue_with(refuse), pytest.raises(RuntimeError):
        start_drill("all-healthy")

    assert not Cycle.objects.exists()


def test_a_session_without_a_drill_gets_no_variables():
    with drill_environment(SessionFactory()) as run_environment:
        assert run_environment == {}


def test_a_drill_gets_its_own_api():
    session = start_drill("all-healthy").sessions.get()

    with drill_environment(session) as run_environment:
        address = run_environment["ANTHROPIC_BASE_URL"]

    assert address.startswith("http://127.0.0.1:")
    assert address.endswith(f"/all-healthy/tier/1/run/{session.pk}")
    assert run_environment["PATH"].startswith(f"{session.workdir}/bin:")


def test_a_drill_without_its_scenario_cannot_run():
    session = SessionFactory(cycle=CycleFactory(drilled=True, drill="forgotten"))

    with pytest.raises(CannotRun, match="forgotten"), drill_environment(session):
        pytest.fail("it must not run")


def test_the_system_of_a_drill_is_in_the_state_directory(settings):
    cycle = start_drill("all-healthy")

    assert drill_directory(cycle).is_relative_to(settings.CLAUDEOPS_STATE_DIR)
    assert Path(cycle.workdir).is_relative_to(drill_directory(cycle))
