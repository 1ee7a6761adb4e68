"""Incidents through whole runs: a failure has a named cause, and a fix is verified."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from escalation.supervisor import manual
from sessions_app.models import Cycle, Incident, Session, Watch
from tests.escalation.rows import ESCALATE, a_report, queued_session
from tests.escalation.runs import child_of, run
from tests.factories import ChangeFactory

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]
Kind, State = Incident.Kind, Incident.State
MENDED = a_report(actions=(("restarted web", "succeeded"),))


def without_cli(settings: Any, monkeypatch: Any, session: Session) -> None:
    settings.CLAUDEOPS_CLAUDE_BIN = "/nonexistent/claude"


def without_credentials(settings: Any, monkeypatch: Any, session: Session) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY")


def without_prompts(settings: Any, monkeypatch: Any, session: Session) -> None:
    settings.CLAUDEOPS_PROMPTS_DIR = "/nonexistent/prompts"


def without_workdir(settings: Any, monkeypatch: Any, session: Session) -> None:
    Session.objects.update(workdir="/nonexistent/system")
    session.refresh_from_db()


def with_a_broken_address(settings: Any, monkeypatch: Any, session: Session) -> None:
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "nonsense")


SPOIL: dict[str, tuple[Callable[..., None], bool]] = {
    "cli": (without_cli, True),
    "no_credentials": (without_credentials, True),
    "prompts": (without_prompts, True),
    "way_to_the_api": (with_a_broken_address, True),
    "workdir": (without_workdir, False),
}


@pytest.mark.parametrize("cause", SPOIL)
def test_a_session_that_cannot_start_opens_an_incident_with_a_named_cause(
    cause, session, settings, monkeypatch
):
    spoil, is_everywhere = SPOIL[cause]
    spoil(settings, monkeypatch, session)

    run(session)

    incident = Incident.objects.get()
    assert (incident.kind, incident.cause) == (Kind.COULD_NOT_RUN, cause)
    assert (incident.scope == "installation") == is_everywhere
    assert session.cycle.incidents.get() == incident


def test_a_session_that_fails_before_any_output_could_not_run(fake_cli, session):
    fake_cli.then("sys.exit(1)")

    run(session)

    assert Incident.objects.get().cause == "failed"


def test_a_chain_that_fixes_a_problem_moves_its_incident_to_verifying(fake_cli, session):
    fake_cli.reports(ESCALATE).reports(MENDED)
    first = run(session)
    assert Incident.objects.get().state == State.WORKING

    second = child_of(first)
    ChangeFactory(session=second)
    run(second)

    incident = Incident.objects.get()
    assert (incident.state, incident.cause) == (State.VERIFYING, "web")
    assert [event.kind for event in incident.events.all()] == ["opened", "worked_on", "fixed"]


def test_a_manual_escalation_moves_the_incident_to_working(fake_cli, workdir):
    fake_cli.reports(ESCALATE).reports(MENDED)
    first = run(queued_session(workdir, max_tier=1))
    assert Incident.objects.get().state == State.OPEN
    Watch.objects.update(max_tier=3)
    Cycle.objects.update(max_tier=3)
    first = Session.objects.get(pk=first.pk)

    second = manual.escalate(first, "mend it")
    assert Incident.objects.get().state == State.WORKING
    ChangeFactory(session=second)
    run(second)

    assert Incident.objects.get().state == State.VERIFYING
