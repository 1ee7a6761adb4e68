"""Findings that an agent writes itself, when the record or the ids are not sufficient."""

from __future__ import annotations

from pathlib import Path

import pytest

from escalation.queue import enqueue_with
from escalation.resume import handoff
from escalation.run import runner
from escalation.run.runner import run_to_end
from escalation.supervisor import cycles, manual
from sessions_app.models import Cycle, Session
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import ESCALATE, HEALTHY, notes_of
from tests.escalation.runs import child_of, handoff_files, run
from tests.factories import CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
Purpose, Status = Session.Purpose, Session.Status

WITHOUT_ID = "session_id=None"
WRITES = (
    "path = re.search(r'`(/[^`]*findings-[0-9]+[.]json)`', prompt)[1];"
    "open(path, 'w').write(json.dumps({'findings': 'the cache of web is corrupt'}));"
)


def put(session: Session, content: bytes) -> Path:
    path = handoff.prepare(session)
    path.write_bytes(content)
    return path


@pytest.fixture
def after_missing_ids(workdir) -> Session:
    """The first session of a cycle whose watch had no id to resume in its last cycle."""
    watch = WatchFactory(workdir=str(workdir))
    SessionFactory(cycle=CycleFactory(watch=watch), session_id="", status=Status.ESCALATED)
    cycle = cycles.start(watch, trigger=Cycle.Trigger.MANUAL)
    return cycle.sessions.get()


@pytest.mark.parametrize(
    ("facts", "missing"),
    [
        ({"session_id": "", "status": Status.COMPLETED}, True),
        ({"session_id": "", "status": Status.ESCALATED}, True),
        ({"session_id": "", "status": Status.FAILED}, False),
        ({"session_id": "", "status": Status.CANCELLED}, False),
        ({"session_id": "", "purpose": Purpose.FOLLOW_UP}, False),
        ({}, False),
    ],
)
def test_ids_are_missing_when_a_good_session_of_the_last_cycle_had_none(facts, missing):
    watch = WatchFactory()
    SessionFactory(cycle=CycleFactory(watch=watch), **facts)
    now = CycleFactory(watch=watch)

    assert handoff.ids_went_missing(now) is missing


def test_only_the_last_cycle_of_the_same_watch_counts():
    watch = WatchFactory()
    SessionFactory(cycle=CycleFactory(watch=watch), session_id="")
    SessionFactory(cycle=CycleFactory(watch=watch))
    SessionFactory(cycle=CycleFactory(), session_id="")

    assert not handoff.ids_went_missing(CycleFactory(watch=watch))
    assert not handoff.ids_went_missing(CycleFactory(drilled=True))


def test_findings_are_wanted_from_tier_1_and_findings_sessions(after_missing_ids):
    child = SessionFactory(parent_session=after_missing_ids, tier=2)
    invoked = SessionFactory(parent_session=SessionFactory(), purpose=Purpose.FINDINGS)

    wanted = [handoff.wanted_from(session) for session in (after_missing_ids, child, invoked)]

    assert wanted == [True, False, True]


def test_findings_are_read_once(session):
    path = put(session, b'{"findings": "the disk is full"}')

    assert handoff.take(session) == ("the disk is full", "")
    assert not path.exists()
    assert handoff.take(session) == ("", "the agent wrote no findings file")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{broken", "not JSON"),
        (b"", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'["findings"]', "no text under `findings`"),
        (b'{"found": "x"}', "no text under `findings`"),
        (b'{"findings": {"a": 1}}', "no text under `findings`"),
        (b'{"findings": "' + b"x" * handoff.MAX_FINDINGS_BYTES + b'"}', "more than 262144"),
    ],
)
def test_invalid_findings_are_refused_and_removed(session, content, problem):
    path = put(session, content)

    findings, said = handoff.take(session)

    assert (findings, problem in said) == ("", True)
    assert not path.exists()


def test_findings_of_50_megabytes_are_refused_unread(session):
    path = put(session, b"{")
    with path.open("r+b") as file:
        file.truncate(50 * 1024 * 1024)

    assert "52428800 bytes" in handoff.take(session)[1]


def test_a_directory_in_place_of_the_file_is_refused_without_a_crash(session):
    handoff.prepare(session).mkdir()

    findings, problem = handoff.take(session)

    assert (findings, bool(problem)) == ("", True)


def test_req7_after_missing_ids_tier_1_writes_a_findings_file(fake_cli, after_missing_ids):
    fake_cli.reports(HEALTHY)

    run(after_missing_ids)

    assert "## Findings file" in fake_cli.calls[0].stdin
    assert f"`{handoff.path_for(after_missing_ids)}`" in fake_cli.calls[0].stdin


def test_req7_no_findings_file_while_ids_are_reported(fake_cli, session):
    fake_cli.reports(HEALTHY)

    run(session)

    assert "findings file" not in fake_cli.calls[0].stdin.lower()


def escalates_without_id(fake: FakeCli, session: Session, writes: str = WRITES) -> Session:
    fake.then(
        f"init({WITHOUT_ID}); tool('df /', 'disk is 100% full'); {writes}"
        f"result(ESCALATE, {WITHOUT_ID})"
    ).reports(HEALTHY)
    return run(child_of(run(session)))


def test_req7_findings_reach_the_next_tier_inside_the_record(fake_cli, after_missing_ids, settings):
    child = escalates_without_id(fake_cli, after_missing_ids)

    assert child.continued_by == Session.ContinuedBy.HANDOFF
    assert "the cache of web is corrupt" in fake_cli.calls[1].stdin
    assert handoff_files(settings.CLAUDEOPS_STATE_DIR) == []


def test_req7_with_findings_the_record_still_has_the_report_and_every_tool_call(
    fake_cli, after_missing_ids
):
    escalates_without_id(fake_cli, after_missing_ids)

    assert "disk is 100% full" in fake_cli.calls[1].stdin
    assert ESCALATE["summary"] in fake_cli.calls[1].stdin
    assert '"ended_as": "escalated"' in fake_cli.calls[1].stdin


def test_req7_missing_findings_are_a_warning_and_the_record_is_used(fake_cli, after_missing_ids):
    child = escalates_without_id(fake_cli, after_missing_ids, writes="")

    assert "the agent wrote no findings file" in notes_of(after_missing_ids, "warning")[1]
    assert "disk is 100% full" in fake_cli.calls[1].stdin
    assert child.cycle.outcome == Cycle.Outcome.HEALTHY


@pytest.fixture
def thin(fake_cli, session) -> Session:
    """Tier 2, escalated by hand from a Tier 1 that left nothing behind."""
    fake_cli.then("init(session_id=None); say(); sys.exit(1)")
    failed = run(session)
    return manual.escalate(failed, "look at web")


def test_req7_a_record_that_is_too_thin_runs_the_escalating_tier_again(fake_cli, thin):
    waiting = run(thin)

    invoked = thin.parent_session.children.exclude(pk=thin.pk).get()
    assert waiting.status == Status.CANCELLED
    assert "too thin to hand on" in waiting.escalation_reason
    assert [event.payload["to"] for event in waiting.events.filter(kind="status")] == [
        "running",
        "cancelled",
    ]
    assert (invoked.tier, invoked.purpose) == (1, Purpose.FINDINGS)
    assert len(fake_cli.calls) == 1


def test_req7_the_chain_continues_after_the_tier_wrote_its_findings(fake_cli, thin, settings):
    fake_cli.then(f"init({WITHOUT_ID}); say(); {WRITES} result(ESCALATE, {WITHOUT_ID})")
    fake_cli.reports(HEALTHY)

    cycle = run_to_end(thin.cycle, print)

    assert "## Findings file" in fake_cli.calls[1].stdin
    assert "the cache of web is corrupt" in fake_cli.calls[2].stdin
    assert cycle.outcome == Cycle.Outcome.HEALTHY
    assert handoff_files(settings.CLAUDEOPS_STATE_DIR) == []


def test_findings_are_kept_when_the_next_tier_needs_a_handoff_anyway(fake_cli, thin):
    """The tier that was invoked again has an id, but the cycle is to start anew at each tier."""
    Cycle.objects.filter(pk=thin.cycle_id).update(force_fresh=True)
    fake_cli.then(f"init(); say(); {WRITES} result(ESCALATE)")
    fake_cli.reports(HEALTHY)

    run_to_end(Cycle.objects.get(pk=thin.cycle_id), print)

    assert "the cache of web is corrupt" in fake_cli.calls[2].stdin


def test_a_tier_without_findings_is_not_run_a_third_time(fake_cli, thin):
    fake_cli.then(f"init({WITHOUT_ID}); say(); result(ESCALATE, {WITHOUT_ID})").reports(HEALTHY)

    cycle = run_to_end(thin.cycle, print)

    assert len(fake_cli.calls) == 3
    assert cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_follow_up_is_asked_although_the_record_is_thin(fake_cli, session):
    fake_cli.then("init(session_id=None); say(); sys.exit(1)")
    failed = run(session)
    asked = manual.follow_up(failed, "Why did it fail?")
    fake_cli.then("init(); say(); result(None)")

    run_to_end(asked.cycle, print)

    assert "Why did it fail?" in fake_cli.calls[1].stdin
    assert Session.objects.get(pk=asked.pk).status == Status.COMPLETED


def test_when_enqueueing_fails_no_findings_session_is_created(thin):
    def refuse(session: Session) -> None:
        raise RuntimeError("the queue is gone")

    with enqueue_with(refuse), pytest.raises(RuntimeError):
        runner.run(Session.objects.get(pk=thin.pk))

    assert not Session.objects.filter(purpose=Purpose.FINDINGS).exists()
    assert Session.objects.get(pk=thin.pk).status == Status.FAILED
    assert Cycle.objects.get(pk=thin.cycle_id).state == Cycle.State.FINISHED
