"""Each guard through a whole run: no `--resume`, and the context in the prompt instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from django.utils import timezone

from sessions_app.history.resume import Guard
from sessions_app.models import Conversation, Cycle, Session
from tests.escalation.continuation_cases import FENCE
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import ESCALATE, HEALTHY, notes_of
from tests.escalation.runs import (
    FOUND,
    change,
    escalated,
    handoff_files,
    lose_transcript,
    run,
    transcript_of,
)
from tests.escalation.transcript_cases import entries_in
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db
ContinuedBy = Session.ContinuedBy


def conversation_of(child: Session) -> str:
    assert child.parent_session is not None
    return child.parent_session.session_id


def cannot_resume(child: Session, fake: FakeCli) -> None:
    fake.path.write_text(fake.path.read_text().replace("--resume ", ""))


def force_fresh(child: Session, fake: FakeCli) -> None:
    child.cycle.force_fresh = True
    child.cycle.save()


def expire(child: Session, fake: FakeCli) -> None:
    change(child.parent_session, last_activity_at=timezone.now() - timedelta(hours=25))


def replace_the_cli(child: Session, fake: FakeCli) -> None:
    fake.path.write_text(fake.path.read_text().replace("9.9.9", "9.10.0"))


def use_the_conversation(child: Session, fake: FakeCli) -> None:
    other = SessionFactory(running=True)
    Conversation.objects.filter(session_id=conversation_of(child)).update(in_use_by=other)


def make_unreadable(child: Session, fake: FakeCli) -> None:
    path = transcript_of(child.parent_session)
    path.unlink()
    path.mkdir()


def move_to_another_host(child: Session, fake: FakeCli) -> None:
    lose_transcript(child.parent_session)
    change(child.parent_session, host="another-host")


def replace_the_directory(child: Session, fake: FakeCli) -> None:
    """Another directory takes the place of the one in which Tier 1 worked."""
    workdir = Path(child.workdir)
    workdir.rename(workdir.with_name("earlier"))
    workdir.mkdir()


def fill_the_context(child: Session, fake: FakeCli) -> None:
    """The scenario of REQ-8: 170,000 of the 200,000 tokens that this CLI reports for the model."""
    parent = child.parent_session
    assert parent is not None
    change(parent, context_tokens=170_000)
    SessionFactory(model="sonnet", cli_version=parent.cli_version, context_window=200_000)


def do_not_keep(child: Session, fake: FakeCli) -> None:
    Cycle.objects.filter(pk=child.cycle_id).update(ephemeral=True)


SPOIL: dict[Guard, Callable[[Session, FakeCli], None]] = {
    Guard.CLI_CANNOT_RESUME: cannot_resume,
    Guard.FORCE_FRESH: force_fresh,
    Guard.NOT_KEPT: do_not_keep,
    Guard.NO_SESSION_ID: lambda child, fake: change(child.parent_session, session_id=""),
    Guard.NOT_A_UUID: lambda child, fake: change(child.parent_session, session_id="sess_abc123"),
    Guard.RETIRED: lambda child, fake: Conversation.retire(conversation_of(child), "refused"),
    Guard.EXPIRED: expire,
    Guard.OTHER_RUNTIME: replace_the_cli,
    Guard.OTHER_DIRECTORY: replace_the_directory,
    Guard.IN_USE: use_the_conversation,
    Guard.CONTEXT_FULL: fill_the_context,
    Guard.TRANSCRIPT_UNREADABLE: make_unreadable,
    Guard.OTHER_HOST: move_to_another_host,
    Guard.TRANSCRIPT_GONE: lambda child, fake: lose_transcript(child.parent_session),
}


@pytest.fixture
def child(fake_cli, session) -> Session:
    """Tier 2, waiting to be run after a Tier 1 that found something."""
    child = escalated(fake_cli, session)
    fake_cli.reports(HEALTHY)
    return child


def test_every_guard_has_a_case():
    assert set(SPOIL) == set(Guard)


@pytest.mark.parametrize("guard", Guard)
def test_req7_a_guard_prevents_resume_and_hands_the_context_over(fake_cli, child, guard, settings):
    SPOIL[guard](child, fake_cli)

    ran = run(child)

    call = fake_cli.calls[1]
    assert "--resume" not in call.argv
    _before, inside, _after = FENCE.split(call.stdin)
    assert FOUND in inside
    assert ESCALATE["summary"] in inside
    # The guard is stored with its reason and the facts.
    assert (ran.continued_by, ran.continued_guard) == (ContinuedBy.HANDOFF, guard)
    told = "it proved unusable" if guard == Guard.RETIRED else ran.continued_why
    assert f"could not be continued: {told}." in ran.prompt
    assert ran.continued_why in notes_of(ran, "fallback")[0]
    assert ran.continuation_facts["parent"]["tier"] == 1
    assert ran.continuation_facts["run"]["tier"] == 2
    # The handoff is stored and leaves no file.
    assert handoff_files(settings.CLAUDEOPS_STATE_DIR) == []
    assert ran.handoff is not None
    assert ran.handoff["source_session"] == child.parent_session_id
    assert FOUND in str(ran.handoff["content"])
    # The session has a conversation of its own.
    assert ran.session_id == call.flag("--session-id")
    assert ran.session_id != conversation_of(child)
    assert (ran.status, ran.cycle.outcome) == (Session.Status.COMPLETED, "healthy")


def test_req7_no_handoff_file_created_during_resume_based_escalation(fake_cli, child, settings):
    ran = run(child)

    assert fake_cli.calls[1].flag("--resume") == conversation_of(child)
    assert handoff_files(settings.CLAUDEOPS_STATE_DIR) == []
    assert (ran.continued_by, ran.continued_guard) == (ContinuedBy.RESUME, "")
    assert ran.handoff is None


def test_req7_no_prompt_of_a_resumed_chain_mentions_a_handoff(fake_cli, child):
    run(child)

    for call in fake_cli.calls:
        assert "handoff" not in call.stdin.lower()
        assert not FENCE.search(call.stdin)
    assert FOUND not in fake_cli.calls[1].stdin


def test_a_resume_is_stored_with_its_reason_and_facts(fake_cli, child):
    ran = run(child)

    assert "continues the conversation of Tier 1" in ran.continued_why
    assert ran.continuation_facts["parent"]["transcript"] == "on disk"
    assert ran.continuation_facts["limits"] == {
        "context_threshold": "0.80",
        "max_age_seconds": 86_400,
    }


def test_req8_context_pressure_is_named_in_the_log_of_the_session(fake_cli, child):
    SPOIL[Guard.CONTEXT_FULL](child, fake_cli)

    ran = run(child)

    assert (
        "context window pressure: 170000 of 200000 tokens (85.0%)" in notes_of(ran, "fallback")[0]
    )


@pytest.mark.parametrize(
    ("threshold", "said"), [("0.70", "70%"), ("0.035", "3.5%"), ("1", "100%"), ("0.125", "12.5%")]
)
def test_req8_the_effective_threshold_is_in_the_log_of_the_session_exactly(
    child, settings, threshold, said
):
    settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD = Decimal(threshold)

    ran = run(child)

    noted = notes_of(ran, "settings")[0]
    assert f"context up to {said} (CLAUDEOPS_RESUME_CONTEXT_THRESHOLD)" in noted
    assert f"under the limit of {said}" in ran.continued_why


def test_req7_prompt_gives_the_reason_of_the_handoff(fake_cli, child):
    SPOIL[Guard.TRANSCRIPT_GONE](child, fake_cli)

    run(child)

    said = fake_cli.calls[1].stdin
    assert "You take over from Tier 1, which ended with a report." in said
    assert "Its conversation could not be continued: the transcript is gone" in said


def test_handoff_to_tier_3_holds_both_earlier_tiers(fake_cli, session):
    child = escalated(fake_cli, session)
    in_vain = "init(); tool('restart web', 'it did not help', True); result(ESCALATE)"
    third = escalated(fake_cli, child, in_vain)
    Conversation.retire(conversation_of(third), "refused")
    fake_cli.reports(HEALTHY)

    run(third)

    assert FOUND in fake_cli.calls[2].stdin
    assert "it did not help" in fake_cli.calls[2].stdin


def test_a_session_with_force_fresh_runs_by_handoff(fake_cli, child):
    change(child, force_fresh=True)

    assert run(child).continued_guard == Guard.FORCE_FRESH


def test_a_transcript_that_was_deleted_is_restored_from_the_archive_and_resumed(fake_cli, child):
    path = transcript_of(child.parent_session)
    before = entries_in(path)
    path.unlink()

    ran = run(child)

    assert ran.continued_by == ContinuedBy.RESUME
    assert entries_in(path) == before


def test_a_tier_on_another_host_resumes_from_the_archive(fake_cli, child):
    transcript_of(child.parent_session).unlink()
    change(child.parent_session, host="another-host", config_dir="/home/other/state/claude")

    ran = run(child)

    assert ran.continued_by == ContinuedBy.RESUME
    assert fake_cli.calls[1].flag("--resume") == conversation_of(child)
