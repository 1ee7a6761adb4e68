"""What a session said and what its tools printed is found, also of sessions of older versions."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from escalation.run import searchable
from escalation.run.searchable import forget_old_output, index_missing, index_run
from sessions_app.models import RunText, SearchProgress, Session
from sessions_app.models.search import WITH_OUTPUT, matches
from tests.factories import SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db
TOKEN = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"


def found(words: str, **more) -> list[int]:
    return [number for numbers in matches(words, **more) for number in numbers]


def ended(**facts) -> Session:
    return SessionFactory(status="completed", finished_at=timezone.now(), **facts)


def add_call(session: Session, command: str, printed: str, sequence: int = 0) -> None:
    call = {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": command}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": printed}
    for number, (kind, block) in enumerate((("assistant", call), ("user", result))):
        SessionEventFactory(
            session=session,
            sequence=sequence + number,
            kind=kind,
            payload={"type": kind, "message": {"content": [block]}},
        )


def test_a_word_of_the_report_is_found_by_everybody_and_one_of_the_output_only_with_output():
    session = ended(
        report={"summary": "QueuePool limit reached", "services": [{"name": "billing"}]}
    )
    add_call(session, "docker logs web", "FATAL: OverflowPool of size 5")

    index_run(session)

    assert found("queuepool") == found("illin") == [session.pk]
    assert (found("overflowpool"), found("docker logs")) == ([], [])
    assert found("overflowpool", columns=WITH_OUTPUT) == [session.pk]
    assert found("docker logs", columns=WITH_OUTPUT) == [session.pk]


def test_secrets_are_redacted_before_the_text_is_cut():
    session = ended(report={"summary": "x" * (searchable.LONGEST_PIECE - 20) + f" {TOKEN}"})
    index_run(session)

    assert "ghp_" not in RunText.objects.get(pk=session.pk).said


def test_the_text_is_bounded_however_much_a_tool_printed():
    session = ended()
    for number in range(30):
        add_call(session, f"cat {number}", f"{number}" + "y" * 5_000, sequence=2 * number)
    index_run(session)

    text = RunText.objects.get(pk=session.pk)
    assert searchable.LONGEST_OUTPUT <= len(text.output) < searchable.LONGEST_OUTPUT + 100


def test_a_failure_is_left_to_housekeeping(monkeypatch):
    session = ended(report={"summary": "QueuePool"})
    monkeypatch.setattr(searchable, "said_by", lambda _session: 1 / 0)
    index_run(session)
    assert found("queuepool") == []
    monkeypatch.undo()

    assert index_missing(10) == (1, 0)
    assert found("queuepool") == [session.pk]


def test_older_sessions_are_indexed_some_at_a_time_newest_first(monkeypatch):
    monkeypatch.setattr(searchable, "AT_ONCE", 2)
    monkeypatch.setattr(searchable, "LATEST", 1)
    old = [ended(report={"summary": "QueuePool"}).pk for _ in range(6)]
    running = SessionFactory(running=True).pk

    first = index_missing(2)
    assert found("queuepool") == old[:2:-1]
    assert first == (3, old[3])
    while index_missing(2)[1]:
        pass

    assert found("queuepool") == old[::-1]
    assert SearchProgress.objects.get().below == 0
    assert not RunText.objects.filter(pk=running).exists()
    assert index_missing(10) == (0, 0)


def test_output_goes_with_its_events_and_the_report_stays():
    now = timezone.now()
    session = ended(report={"summary": "QueuePool"})
    add_call(session, "uptime", "load average")
    index_run(session)

    assert forget_old_output(now - timedelta(days=1)) == 0
    assert forget_old_output(now + timedelta(days=1)) == 1
    assert found("load average", columns=WITH_OUTPUT) == []
    assert found("queuepool") == [session.pk]
