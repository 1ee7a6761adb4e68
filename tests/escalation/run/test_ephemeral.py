"""An ephemeral run: its conversation is not saved, archived or resumed, and the pages say so."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from django.core.management import call_command
from django.urls import reverse

from escalation.errors import OperationRefused
from escalation.resume.transcripts import transcript_path
from escalation.supervisor import cycles, manual
from escalation.web.transcripts import NOT_KEPT, load_transcript
from escalation.worker.housekeeping import clean
from sessions_app.history.session_actions import actions_for
from sessions_app.models import Cycle, Session, Transcript
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import FINDS_AND_ESCALATES, FOUND, child_of, run
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
FLAG = "--no-session-persistence"


@pytest.fixture
def not_kept(workdir) -> Session:
    cycle = cycles.start(
        WatchFactory(workdir=str(workdir)),
        trigger=Cycle.Trigger.MANUAL,
        ephemeral=True,
    )
    return cycle.sessions.get()


def saved_by_the_cli(state: Path) -> list[Path]:
    return list(state.rglob("projects/**/*.jsonl"))


def test_nothing_of_the_conversation_is_left(fake_cli, not_kept, settings):
    fake_cli.reports(HEALTHY)

    ended = run(not_kept)

    assert ended.status == Session.Status.COMPLETED
    assert not Transcript.objects.exists()
    assert saved_by_the_cli(settings.CLAUDEOPS_STATE_DIR) == []


def test_the_stored_session_is_kept(fake_cli, not_kept):
    fake_cli.then(FINDS_AND_ESCALATES)

    ended = run(not_kept)

    assert ended.events.filter(kind="assistant").exists()
    assert ended.report is not None


def test_next_tier_gets_a_handoff_with_the_reason(fake_cli, not_kept):
    fake_cli.then(FINDS_AND_ESCALATES).reports(HEALTHY)

    second = run(child_of(run(not_kept)))

    assert (second.continued_by, second.continued_guard) == ("handoff", "not_kept")
    assert "was not kept" in second.continued_why
    assert "--resume" not in fake_cli.calls[1].argv
    assert FOUND in fake_cli.calls[1].stdin
    assert not Transcript.objects.exists()


def test_a_missing_report_is_requested_by_handoff(fake_cli, not_kept):
    fake_cli.then("init(); say(); tool('df /', 'full'); result(None)").reports(HEALTHY)

    again = run(child_of(run(not_kept)))

    assert (again.purpose, again.continued_guard) == ("report", "not_kept")
    assert again.cycle.outcome == Cycle.Outcome.HEALTHY


def test_cli_is_started_without_persistence(settings, tmp_path, not_kept):
    cli = FakeCli(tmp_path / "forgetful", flags=FLAG).install(settings).reports(HEALTHY)

    run(not_kept)

    assert FLAG in cli.calls[0].argv


def test_an_ordinary_conversation_is_saved(settings, tmp_path, session):
    cli = FakeCli(tmp_path / "forgetful", flags=FLAG).install(settings).reports(HEALTHY)

    run(session)

    assert FLAG not in cli.calls[0].argv
    assert Transcript.objects.exists()


@pytest.mark.parametrize("operate", [manual.follow_up, manual.fork])
def test_an_ephemeral_conversation_cannot_be_continued(operate):
    session = SessionFactory(cycle=CycleFactory(ephemeral=True))

    with pytest.raises(OperationRefused, match="was not kept.*Run a new cycle"):
        operate(session, "Why?")


def test_page_hides_actions_that_need_the_conversation():
    session = SessionFactory(failed=True, cycle=CycleFactory(ephemeral=True))

    assert [action.name for action in actions_for(session)] == ["retry_session", "escalate_session"]


def test_page_shows_that_the_cycle_is_ephemeral(operator_client, fake_cli):
    session = SessionFactory(cycle=CycleFactory(ephemeral=True))

    page = operator_client.get(reverse("web:session", args=[session.pk])).content.decode()

    assert "not kept: neither saved nor archived, so nobody can resume it" in page
    assert "Read the transcript" not in page


def test_transcript_page_explains_that_it_is_empty():
    session = SessionFactory(cycle=CycleFactory(ephemeral=True))

    assert load_transcript(session, None, "").why_empty == NOT_KEPT


def test_housekeeping_removes_transcripts_of_killed_ephemeral_sessions(
    fake_cli, not_kept, settings
):
    """The process that removes the transcript died first."""
    fake_cli.reports(HEALTHY)
    ended = run(not_kept)
    path = transcript_path(Path(ended.config_dir), ended.workdir, ended.session_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"type": "user", "uuid": "u", "message": {"role": "user"}}\n')

    clean()

    assert not path.exists()
    assert not Transcript.objects.exists()


def test_run_cycle_has_the_option(workdir):
    WatchFactory(name="shop", workdir=str(workdir))

    call_command("run_cycle", "--watch", "shop", "--ephemeral", "--queue", stdout=io.StringIO())

    assert Cycle.objects.get().ephemeral
