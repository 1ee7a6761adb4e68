"""Which status may follow which, and that every change is an event with its reason."""

from __future__ import annotations

import threading
from itertools import product

import pytest
from django.db import OperationalError, connection

from escalation.errors import OperationRefused
from escalation.supervisor import manual
from sessions_app.models import Session
from sessions_app.models.session import ALLOWED, IllegalTransition, sources_of
from tests.escalation.rows import ESCALATE, HEALTHY, queued_session
from tests.escalation.runs import child_of, run
from tests.factories import SessionFactory
from tests.tables import each_row

Status = Session.Status

TABLE = {
    "queued": {"running", "awaiting_approval", "cancelled", "failed", "expired"},
    "awaiting_approval": {"queued", "cancelled", "expired"},
    "running": {
        "queued",
        "completed",
        "escalated",
        "failed",
        "timed_out",
        "interrupted",
        "cancelled",
    },
    "completed": {"escalated"},
    "failed": {"escalated"},
    "timed_out": {"escalated"},
    "interrupted": {"escalated", "expired"},
    "escalated": set(),
    "cancelled": set(),
    "expired": set(),
}
FINISHING = sorted(set(Status) - set(Session.OPEN_STATUSES))


def changes_of(session: Session) -> list[tuple[str, str, str]]:
    return [
        (event.payload["from"], event.payload["to"], event.payload["text"])
        for event in session.events.filter(kind="status")
    ]


def test_the_table_of_transitions_names_every_status():
    assert {status: set(targets) for status, targets in ALLOWED.items()} == TABLE
    assert set(ALLOWED) == set(Status)


@each_row("target", Status)
def test_the_sources_of_a_status_are_read_from_the_table(target):
    assert set(sources_of(target)) == {
        status for status, targets in TABLE.items() if target in targets
    }


@pytest.mark.django_db
@pytest.mark.parametrize(("before", "after"), [*product(Status, FINISHING)])
def test_a_session_is_finished_exactly_as_the_table_allows(before, after):
    session = SessionFactory(status=before)

    if after in TABLE[before]:
        session.finish(after, "because")
        assert changes_of(session) == [(before, after, "because")]
    else:
        with pytest.raises(IllegalTransition):
            session.finish(after, "because")
        assert changes_of(session) == []
    assert Session.objects.get(pk=session.pk).status == (
        after if after in TABLE[before] else before
    )


@pytest.mark.django_db
@pytest.mark.parametrize("status", Session.OPEN_STATUSES)
def test_a_session_cannot_finish_with_an_open_status(status):
    with pytest.raises(IllegalTransition):
        SessionFactory(running=True).finish(status)


@pytest.mark.django_db
@pytest.mark.parametrize("before", Status)
def test_only_a_queued_session_is_claimed(before):
    session = SessionFactory(status=before)

    claimed = session.claim()

    assert claimed is (before == "queued")
    assert changes_of(session) == ([("queued", "running", "taken by a worker")] if claimed else [])


@pytest.mark.django_db
@pytest.mark.parametrize("before", Status)
def test_expiry_follows_the_table(before):
    session = SessionFactory(status=before)

    expired = session.expire("too old")

    assert expired is ("expired" in TABLE[before])
    assert changes_of(session) == ([(before, "expired", "too old")] if expired else [])


@pytest.mark.django_db
def test_a_refused_transition_loads_the_stored_status():
    session = SessionFactory(status=Status.QUEUED)
    Session.objects.filter(pk=session.pk).update(status=Status.CANCELLED)

    assert not session.claim()
    assert session.status == Status.CANCELLED


@pytest.mark.django_db
def test_the_event_names_the_stored_status_before_the_transition():
    """Another process moved the session on since this one has read it."""
    session = SessionFactory(status=Status.QUEUED)
    Session.objects.get(pk=session.pk).claim()

    session.finish(Status.CANCELLED, "not wanted any more")

    assert changes_of(session)[-1] == ("running", "cancelled", "not wanted any more")


@pytest.mark.django_db
def test_every_change_of_a_whole_chain_is_an_event_with_a_time_and_a_reason(fake_cli, session):
    fake_cli.reports(ESCALATE).reports(HEALTHY)
    first = run(session)
    second = run(child_of(first))

    for ran, ending in ((first, "escalated"), (second, "completed")):
        (_claimed, ended) = changes_of(ran)
        assert ended == ("running", ending, ran.escalation_reason)
        assert ran.escalation_reason
        assert not ran.events.filter(kind="status", created_at=None).exists()


@pytest.mark.django_db
def test_the_status_is_the_last_event(fake_cli, session):
    fake_cli.reports(HEALTHY)

    ran = run(session)

    sequences = list(ran.events.values_list("sequence", flat=True))
    assert sequences == list(range(1, len(sequences) + 1))
    assert list(ran.events.values_list("kind", flat=True))[-1] == "status"


@pytest.mark.django_db
def test_of_two_successive_escalations_the_first_wins():
    session = SessionFactory(workdir="/tmp")
    first, second = (Session.objects.get(pk=session.pk) for _again in range(2))

    assert first.mark_escalated("by Ann")
    assert not second.mark_escalated("by Ben")
    assert Session.objects.get(pk=session.pk).escalation_reason == "by Ann"


@pytest.mark.django_db(transaction=True)
def test_of_two_concurrent_escalations_one_wins_and_the_other_is_refused(tmp_path):
    session = SessionFactory(workdir=str(tmp_path))
    barrier = threading.Barrier(2, timeout=20)
    answers: list[str] = []

    def escalate(who: str) -> None:
        try:
            mine = Session.objects.select_related("cycle__watch").get(pk=session.pk)
            barrier.wait()
            manual.escalate(mine, f"asked by {who}")
            answers.append("won")
        except (OperationRefused, OperationalError) as refused:
            answers.append(type(refused).__name__)
        finally:
            connection.close()

    threads = [threading.Thread(target=escalate, args=(who,)) for who in ("Ann", "Ben")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(answers) == ["OperationRefused", "won"]
    assert session.children.count() == 1
    assert len(changes_of(session)) == 1


@pytest.mark.django_db(transaction=True)
def test_of_two_concurrent_claims_one_wins(tmp_path):
    session = queued_session(tmp_path)
    barrier = threading.Barrier(2, timeout=20)
    claimed: list[bool] = []

    def claim() -> None:
        try:
            mine = Session.objects.get(pk=session.pk)
            barrier.wait()
            claimed.append(mine.claim())
        finally:
            connection.close()

    threads = [threading.Thread(target=claim) for _again in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert sorted(claimed) == [False, True]
    assert len(changes_of(session)) == 1
