"""Facts of the continuation decision: looked up in the database first, on disk last."""

from __future__ import annotations

import json
import socket
from datetime import timedelta
from pathlib import Path

import pytest
import time_machine
from django.utils import timezone

from escalation.agent.binary import find_binary
from escalation.agent.stream import default_window
from escalation.resume import transcripts
from escalation.resume.facts import (
    context_window_of,
    decide_continuation,
    parent_facts,
    transcript_of,
)
from escalation.tiers import get_tier
from sessions_app.history.resume import Continuation, Guard, Handoff, Resume, TranscriptLocation
from sessions_app.models import Conversation, Session
from sessions_app.models import Transcript as TranscriptCopy
from tests.escalation.rows import HEALTHY
from tests.escalation.runs import change, escalated, lose_transcript, run
from tests.escalation.runs import transcript_of as transcript_file_of
from tests.factories import SessionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def child(fake_cli, session) -> Session:
    child = escalated(fake_cli, session)
    fake_cli.reports(HEALTHY)
    return child


def again(session: Session) -> Session:
    return Session.objects.select_related("cycle", "parent_session").get(pk=session.pk)


def parent_of(child: Session) -> Session:
    assert child.parent_session is not None
    return child.parent_session


def facts_of(child: Session):
    return parent_facts(parent_of(again(child)), again(child), find_binary())


def decided(child: Session) -> Continuation:
    return decide_continuation(again(child), get_tier(2), find_binary())[0]


def test_facts_of_a_healthy_parent_allow_resume(child):
    facts = facts_of(child)

    assert (facts.tier, facts.session_id) == (1, parent_of(child).session_id)
    assert (facts.same_binary, facts.same_directory, facts.same_host) == (True, True, True)
    assert (facts.retired_because, facts.expired, facts.in_use_by) == ("", False, None)
    assert facts.transcript == TranscriptLocation.NOT_LOOKED
    assert isinstance(decided(child), Resume)


def test_a_link_to_the_working_directory_is_the_same_directory(child, tmp_path):
    (tmp_path / "link").symlink_to(child.workdir)
    change(child, workdir=str(tmp_path / "link"))

    assert facts_of(child).same_directory


def test_a_link_to_the_cli_is_the_same_binary(child, fake_cli, settings, tmp_path):
    (tmp_path / "claude").symlink_to(fake_cli.path)
    settings.CLAUDEOPS_CLAUDE_BIN = str(tmp_path / "claude")

    assert facts_of(child).same_binary


def test_another_working_directory_is_recognised(child, tmp_path):
    (tmp_path / "other").mkdir()
    change(child, workdir=str(tmp_path / "other"))

    assert not facts_of(child).same_directory


def test_a_working_directory_that_is_gone_is_not_the_same(child):
    Path(child.workdir).rename(f"{child.workdir}-moved")

    assert not facts_of(child).same_directory


def test_gone_directories_of_an_earlier_version_are_compared_by_name(child):
    change(parent_of(child), workdir="/gone/shop", workdir_identity="")
    change(child, workdir="/gone/shop")
    same = facts_of(child).same_directory
    change(child, workdir="/gone/lab")

    assert (same, facts_of(child).same_directory) == (True, False)


def test_a_cli_that_was_moved_is_another_binary(child):
    change(parent_of(child), cli_path="/gone/claude")

    assert not facts_of(child).same_binary


def test_path_of_the_cli_is_ignored_on_another_host(child):
    change(parent_of(child), cli_path="/home/other/claude", host="another-host")

    facts = facts_of(child)

    assert (facts.same_host, facts.same_binary) == (False, True)


def test_a_cli_that_was_replaced_under_the_same_version_is_another_runtime(child, fake_cli):
    """Same path and version, other file: only the fingerprint tells."""
    fake_cli.path.write_text(fake_cli.path.read_text() + "# rebuilt\n")

    continuation = decided(child)

    assert isinstance(continuation, Handoff)
    assert continuation.guard == Guard.OTHER_RUNTIME


def test_retirement_is_judged_by_the_latest_state_not_by_an_older_healthy_row(child):
    parent = parent_of(child)
    SessionFactory(session_id=parent.session_id, cycle=parent.cycle, status="completed")
    Conversation.retire(parent.session_id, "prompt is too long")

    assert facts_of(child).retired_because == "prompt is too long"


def test_a_conversation_retired_without_a_reason_is_still_retired(child):
    Conversation.retire(parent_of(child).session_id, "")

    assert facts_of(child).retired_because


def test_the_first_reason_for_retiring_is_kept():
    Conversation.retire("x", "refused")
    Conversation.retire("x", "something else")

    assert Conversation.objects.get(session_id="x").reason == "refused"


def test_a_conversation_of_another_running_session_is_in_use(child):
    holder = SessionFactory(running=True)
    Conversation.objects.filter(session_id=parent_of(child).session_id).update(in_use_by=holder)

    assert facts_of(child).in_use_by == holder.pk


def test_a_session_releases_its_conversation_at_its_end(child):
    conversation = Conversation.objects.get(session_id=parent_of(child).session_id)

    assert conversation.in_use_by is None
    assert Conversation.take(conversation.session_id, child)
    assert not Conversation.take(conversation.session_id, SessionFactory(running=True))


def test_the_age_is_measured_from_the_last_activity(child):
    change(parent_of(child), last_activity_at=timezone.now() - timedelta(hours=3))

    assert 10_790 < facts_of(child).age_seconds < 10_900


def test_a_clock_set_back_an_hour_gives_a_negative_age(child):
    with time_machine.travel(timezone.now() - timedelta(hours=1)):
        assert -3700 < facts_of(child).age_seconds < -3500
        assert isinstance(decided(child), Resume)


def test_an_expired_conversation_stays_expired(child):
    Conversation.objects.filter(session_id=parent_of(child).session_id).update(
        state=Conversation.State.EXPIRED
    )

    assert facts_of(child).expired


OLD, NEW = "2.1.197 (Claude Code)", "2.1.325 (Claude Code)"


def test_the_window_is_the_one_last_reported_for_the_model():
    SessionFactory(model="sonnet", cli_version=NEW, context_window=200_000)
    SessionFactory(model="sonnet", cli_version=NEW, context_window=500_000)
    SessionFactory(model="sonnet", cli_version=NEW, context_window=0)
    SessionFactory(model="haiku", cli_version=NEW, context_window=100_000)

    assert context_window_of("sonnet", NEW) == 500_000


def test_context_window_of_another_cli_version_is_ignored():
    SessionFactory(model="haiku", cli_version=NEW, context_window=1_000_000)

    assert context_window_of("haiku", OLD) == 200_000


def test_a_model_is_found_by_its_requested_and_its_reported_name():
    SessionFactory(
        model="haiku", model_used="claude-haiku-4-5", cli_version=OLD, context_window=300_000
    )

    assert context_window_of("haiku", OLD) == 300_000
    assert context_window_of("claude-haiku-4-5", OLD) == 300_000


def test_a_model_that_was_never_seen_has_the_default_window():
    SessionFactory(model="haiku", cli_version=NEW, context_window=500_000)

    assert context_window_of("opus", NEW) == default_window("opus", NEW)


def test_req8_the_window_of_the_next_tiers_model_decides(child):
    change(parent_of(child), context_tokens=170_000)
    seen = {"model": "sonnet", "cli_version": find_binary().version}
    SessionFactory(**seen, context_window=200_000)
    before = decided(child)
    SessionFactory(**seen, context_window=1_000_000)

    assert isinstance(before, Handoff)
    assert isinstance(decided(child), Resume)


def test_a_session_without_an_answer_has_the_context_that_it_resumed(child):
    """The fork holds everything that the conversation held before."""
    change(parent_of(child), context_tokens=170_000)
    change(child, status="failed", continued_by="resume", context_tokens=0)
    retry = SessionFactory(tier=2, parent_session=child, status="queued", workdir=child.workdir)

    assert facts_of(retry).context_tokens == 170_000


def test_the_context_is_searched_in_all_sessions_of_the_conversation(child):
    """A handoff is not part of the new conversation."""
    change(parent_of(child), context_tokens=170_000)
    change(child, status="failed", continued_by="handoff", context_tokens=0)
    failed = SessionFactory(
        tier=2, parent_session=child, status="failed", continued_by="resume", context_tokens=0
    )
    retry = SessionFactory(tier=2, parent_session=failed, status="queued")

    assert facts_of(retry).context_tokens == 0


def long_answer(conversation: str, tokens: int) -> str:
    """The last line of a transcript, with the output that the stream did not know yet."""
    usage = {"input_tokens": 100, "output_tokens": tokens}
    message = {"id": "msg_9", "model": "haiku", "usage": usage, "content": []}
    return json.dumps({"type": "assistant", "uuid": f"{conversation}-9", "message": message}) + "\n"


def test_req8_the_whole_output_of_the_last_answer_counts(child):
    """The stream says 101 tokens; the transcript says that the answer alone had 900,000."""
    parent = parent_of(child)
    with transcript_file_of(parent).open("a") as transcript:
        transcript.write(long_answer(parent.session_id, 900_000))

    continuation, facts = decide_continuation(again(child), get_tier(2), find_binary())

    assert facts["parent"]["context_tokens"] == 900_100
    assert isinstance(continuation, Handoff)
    assert continuation.guard == Guard.CONTEXT_FULL


def test_req8_the_archived_copy_is_read_when_the_file_is_missing(child):
    parent = parent_of(child)
    with transcript_file_of(parent).open("a") as transcript:
        transcript.write(long_answer(parent.session_id, 900_000))
    transcripts.archive(parent)
    transcript_file_of(parent).unlink()

    continuation = decided(child)

    assert isinstance(continuation, Handoff)
    assert continuation.guard == Guard.CONTEXT_FULL


def test_a_transcript_without_the_last_answer_does_not_reduce_the_context(child):
    change(parent_of(child), context_tokens=70_000)

    _continuation, facts = decide_continuation(again(child), get_tier(2), find_binary())

    assert facts["parent"]["context_tokens"] == 70_000


@pytest.mark.parametrize(
    ("lose", "expected"),
    [
        (lambda parent: None, TranscriptLocation.ON_DISK),
        (lambda parent: transcript_file_of(parent).unlink(), TranscriptLocation.ARCHIVED),
        (lambda parent: transcript_file_of(parent).write_text(""), TranscriptLocation.ARCHIVED),
        (lose_transcript, TranscriptLocation.GONE),
    ],
)
def test_the_transcript_is_searched_on_disk_and_then_in_the_archive(child, lose, expected):
    lose(parent_of(child))

    assert transcript_of(parent_of(child)) == expected


def test_a_session_of_another_host_is_resumed_only_with_an_archive(child):
    transcript_file_of(parent_of(child)).unlink()
    change(parent_of(child), host="another-host")
    with_archive = decided(child)
    TranscriptCopy.objects.all().delete()

    without = decided(child)

    assert isinstance(with_archive, Resume)
    assert isinstance(without, Handoff)
    assert without.guard == Guard.OTHER_HOST


def test_the_disk_is_not_read_when_a_cheap_guard_objects(child, monkeypatch):
    def look(*args):
        raise AssertionError("nobody had to look at the disk")

    monkeypatch.setattr(transcripts, "find_on_disk", look)
    change(child, force_fresh=True)

    _continuation, facts = decide_continuation(again(child), get_tier(2), find_binary())

    assert facts["parent"]["transcript"] == TranscriptLocation.NOT_LOOKED


def test_the_facts_are_stored_with_the_session(child):
    change(parent_of(child), context_tokens=15_000)

    ran = run(child)

    stored = ran.continuation_facts
    assert json.loads(json.dumps(stored)) == stored
    assert stored["parent"]["context_tokens"] == 15_000
    assert stored["parent"]["transcript"] == "on disk"
    assert stored["run"] == {
        "tier": 2,
        "cli_version": "9.9.9 (Fake Claude)",
        "can_resume": True,
        "force_fresh": False,
        "context_window": default_window("sonnet", "9.9.9 (Fake Claude)"),
    }


def test_a_first_session_stores_that_it_has_no_parent(child):
    stored = parent_of(child).continuation_facts

    assert stored["parent"] is None
    assert stored["limits"]["context_threshold"] == "0.80"


@pytest.mark.parametrize("purpose", [Session.Purpose.REPORT, Session.Purpose.CONTINUATION])
def test_force_fresh_does_not_apply_within_a_tier(child, purpose):
    """`--fresh` says: higher tiers start anew. The same tier still goes on with its own work."""
    child.cycle.force_fresh = True
    child.cycle.save()
    change(child, tier=1, purpose=purpose)

    continuation, _facts = decide_continuation(again(child), get_tier(1), find_binary())

    assert isinstance(continuation, Resume)


def test_the_name_of_this_host_is_stored_with_every_run(child):
    assert parent_of(child).host == socket.gethostname()
    assert Path(parent_of(child).cli_path).samefile(find_binary().path)
