"""Manual operations on a finished session: ask, fork, retry, escalate."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from escalation.errors import RefusalCode
from escalation.queue import enqueue_with
from escalation.supervisor import manual
from sessions_app.history.chain import own_branch
from sessions_app.history.claims import ClaimCheck, claims_in
from sessions_app.history.session_actions import LONGEST_REASON, LONGEST_REQUEST
from sessions_app.models import Cycle, Incident, IncidentEvent, ServiceState, Session
from sessions_app.text import cut_to_tokens
from tests.escalation.continuation_cases import FENCE
from tests.escalation.refusals import refused
from tests.escalation.rows import ESCALATE, HEALTHY, a_report
from tests.escalation.runs import change, run
from tests.factories import ChangeFactory, CycleFactory, SessionFactory

pytestmark = pytest.mark.django_db
Status, Purpose = Session.Status, Session.Purpose
DOWN = a_report(services=(("web", "down"),))


@pytest.fixture
def finished(fake_cli, session) -> Session:
    """A Tier 1 that found the web down and asked for nothing; its cycle needs a person."""
    fake_cli.then("init(); tool('df /', 'disk is 100% full'); " + f"result({DOWN!r})")
    return run(session)


def with_status(status: str, **fields) -> Session:
    return SessionFactory(status=status, workdir="/tmp", **fields)


OPERATIONS = {
    "follow up": lambda session, **options: manual.follow_up(session, "Why?", **options),
    "fork": lambda session, **options: manual.fork(session, "Another way", **options),
    "retry": lambda session, **options: manual.retry(session, **options),
    "escalate": lambda session, **options: manual.escalate(session, "Help", **options),
}
every_operation = pytest.mark.parametrize("operate", OPERATIONS.values(), ids=OPERATIONS.keys())


def test_a_follow_up_asks_in_the_same_conversation_with_reading_tools(fake_cli, finished):
    fake_cli.then("init(); say(); result(None, result='The disk was full.')")
    asked = manual.follow_up(finished, "Why is web down?")

    answered = run(asked)

    call = fake_cli.calls[1]
    assert call.flag("--resume") == finished.session_id
    assert "Why is web down?" in call.stdin
    assert call.flag("--tools") == "Read,Grep,Glob"
    assert {"Bash", "Task"} <= set(call.flag("--disallowedTools").split(","))
    assert "--json-schema" not in call.argv
    assert (answered.status, answered.result) == (Status.COMPLETED, "The disk was full.")


@pytest.mark.parametrize("program", ["init(); say(); result(None)", "init(); say(); sys.exit(1)"])
def test_a_follow_up_keeps_the_outcome_of_the_cycle(fake_cli, finished, program):
    fake_cli.then(program)
    before = Cycle.objects.get(pk=finished.cycle_id)
    asked = manual.follow_up(finished, "Why?")
    while_it_runs = Cycle.objects.get(pk=finished.cycle_id).state

    run(asked)

    after = Cycle.objects.get(pk=finished.cycle_id)
    assert (while_it_runs, after.state) == (Cycle.State.RUNNING, Cycle.State.FINISHED)
    assert (after.outcome, after.outcome_reason) == (before.outcome, before.outcome_reason)
    assert not asked.children.exists()


def test_a_follow_up_that_cannot_resume_gets_a_handoff(fake_cli, finished):
    change(finished, session_id="")
    fake_cli.then("init(); say(); result(None)")

    run(manual.follow_up(finished, "Why?"))

    asked = fake_cli.calls[1].stdin
    assert "disk is 100% full" in FENCE.split(asked)[1]
    assert "Why?" in asked
    assert "structured report of the state" not in asked


def test_a_fork_leaves_the_original_unchanged(fake_cli, finished):
    before = Session.objects.filter(pk=finished.pk).values().get()
    fake_cli.reports(HEALTHY)
    forked = manual.fork(finished, "Look at the cache")

    ran = run(forked)

    assert (ran.purpose, ran.tier, ran.parent_session_id) == (Purpose.FORK, 1, finished.pk)
    assert fake_cli.calls[1].argv.count("--fork-session") == 1
    assert "Look at the cache" in fake_cli.calls[1].stdin
    assert Session.objects.filter(pk=finished.pk).values().get() == before


def past_of(session: Session) -> tuple[object, ...]:
    """What a branch must not change: outcome, incidents with their stories, service states."""
    cycle = Cycle.objects.get(pk=session.cycle_id)
    return (
        (cycle.state, cycle.outcome, cycle.outcome_reason, cycle.stopped_by),
        list(Incident.objects.order_by("pk").values()),
        list(IncidentEvent.objects.order_by("pk").values()),
        list(ServiceState.objects.order_by("pk").values()),
    )


def test_a_fork_has_an_outcome_of_its_own(fake_cli, finished):
    past = past_of(finished)
    fake_cli.reports(HEALTHY)

    ran = run(manual.fork(finished, "Look at the cache"))

    assert ran.cycle.outcome == Cycle.Outcome.NEEDS_PERSON
    assert past_of(finished) == past
    assert (ran.branch_outcome, ran.branch_reason) == ("healthy", ran.escalation_reason)


def test_tiers_and_repeated_reports_of_a_fork_belong_to_its_branch(fake_cli, finished):
    past = past_of(finished)
    fake_cli.reports(ESCALATE).then("init(); say(); result(None)").reports(DOWN)

    forked = run(manual.fork(finished, "Look at the cache"))
    second = run(forked.children.get())
    third = run(second.children.get())

    forked.refresh_from_db()
    assert (third.tier, third.purpose, third.in_branch) == (2, Purpose.REPORT, True)
    assert past_of(finished) == past
    assert (forked.branch_outcome, third.branch_outcome) == ("needs_person", "")


def test_a_stopped_or_expired_fork_leaves_the_past_as_it_was(fake_cli, finished):
    past = past_of(finished)
    cancelled = manual.fork(finished, "this way")
    manual.stop_cycle(cancelled.cycle, by="ada")
    finished = Session.objects.get(pk=finished.pk)
    expired = manual.fork(finished, "that way")
    manual.expire(expired, by="ada")

    for branch in (cancelled, expired):
        branch.refresh_from_db()
    assert (cancelled.branch_outcome, expired.branch_outcome) == ("needs_person", "could_not_run")
    assert past_of(finished) == past


def test_a_retry_of_a_failed_fork_stays_in_a_branch(fake_cli, finished):
    past = past_of(finished)
    fake_cli.then("init(); say(); sys.exit(1)").reports(HEALTHY)
    failed = run(manual.fork(finished, "this way"))

    again = run(manual.retry(failed))

    assert (failed.branch_outcome, again.branch_outcome) == ("needs_person", "healthy")
    assert past_of(finished) == past


def test_a_change_in_a_branch_proves_no_claim_outside_of_it(fake_cli, finished):
    fake_cli.reports(HEALTHY)
    forked = run(manual.fork(finished, "restart it"))
    ChangeFactory(session=forked)
    mended = a_report(actions=(("restarted web", "succeeded"),))

    [outside] = claims_in(mended, finished.cycle_id)
    [inside] = claims_in(mended, finished.cycle_id, own_branch(forked))

    assert (outside.finding, inside.finding) == (ClaimCheck.CLAIMED, ClaimCheck.SEEN)


def test_two_forks_of_one_session_are_two_branches(fake_cli, finished):
    fake_cli.reports(HEALTHY)
    first = run(manual.fork(finished, "this way"))
    finished = Session.objects.get(pk=finished.pk)

    second = run(manual.fork(finished, "that way"))

    assert set(finished.children.all()) == {first, second}
    assert len({first.session_id, second.session_id, finished.session_id}) == 3


def test_a_retry_runs_the_tier_again_from_the_state_of_its_parent(fake_cli, session):
    fake_cli.reports(ESCALATE).then("init(); say(); sys.exit(1)").reports(HEALTHY)
    first = run(session)
    failed = run(first.children.get())

    again = run(manual.retry(failed))

    assert (again.purpose, again.tier) == (Purpose.RETRY, 2)
    assert again.parent_session == first
    assert fake_cli.calls[2].flag("--resume") == first.session_id
    assert "An earlier attempt at this failed." in fake_cli.calls[2].stdin
    assert again.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_retry_of_a_first_session_begins_a_new_conversation(fake_cli, session):
    fake_cli.then("sys.exit(1)").reports(HEALTHY)
    failed = run(session)

    again = run(manual.retry(failed))

    assert (again.parent_session, again.continued_by) == (None, "fresh")
    assert again.cycle.outcome == Cycle.Outcome.HEALTHY


def test_a_retry_can_begin_a_new_conversation(fake_cli, session):
    fake_cli.reports(ESCALATE).then("init(); say(); sys.exit(1)").reports(HEALTHY)
    failed = run(run(session).children.get())

    again = run(manual.retry(failed, force_fresh=True))

    assert again.continued_guard == "force_fresh"
    assert "--resume" not in fake_cli.calls[2].argv


def test_a_retry_of_a_follow_up_is_a_follow_up():
    cycle = CycleFactory()
    question = with_status(
        Status.FAILED, tier=3, purpose=Purpose.FOLLOW_UP, request="Why?", cycle=cycle
    )

    again = manual.retry(question)

    assert (again.purpose, again.request) == (Purpose.FOLLOW_UP, "Why?")


def test_a_manual_escalation_passes_on_the_findings_and_the_reason(fake_cli, finished, operator):
    fake_cli.reports(HEALTHY)
    second = manual.escalate(finished, "web must be back by noon", requested_by=operator)

    ran = run(second)

    finished.refresh_from_db()
    assert finished.status == Status.ESCALATED
    assert finished.escalation_reason == "Escalated by hand: web must be back by noon"
    assert (ran.tier, ran.request, ran.requested_by) == (2, "web must be back by noon", operator)
    assert fake_cli.calls[1].flag("--resume") == finished.session_id
    assert ran.cycle.outcome == Cycle.Outcome.HEALTHY


def test_the_reason_of_a_manual_escalation_is_in_the_prompt(fake_cli, finished):
    fake_cli.reports(HEALTHY)

    run(manual.escalate(finished, "web must be back by noon"))

    assert "web must be back by noon" in fake_cli.calls[1].stdin


@every_operation
def test_every_operation_enqueues_one_session_with_its_requester(operate, operator):
    handed: list[Session] = []

    with enqueue_with(handed.append):
        created = operate(with_status(Status.FAILED), requested_by=operator)

    assert handed == [created]
    assert (created.status, created.requested_by) == (Status.QUEUED, operator)
    assert created.cycle.state == Cycle.State.RUNNING


@every_operation
def test_an_operation_is_refused_while_the_cycle_is_active(operate):
    session = with_status(Status.FAILED, cycle=CycleFactory(running=True))

    with refused(RefusalCode.CYCLE_ACTIVE):
        operate(session)

    assert not Session.objects.filter(status=Status.QUEUED).exists()


@every_operation
def test_an_operation_is_refused_while_the_watch_has_another_active_cycle(operate):
    session = with_status(Status.FAILED)
    CycleFactory(running=True, watch=session.cycle.watch)

    with refused(RefusalCode.CYCLE_ACTIVE):
        operate(session)

    stored = Session.objects.get(pk=session.pk)
    assert (stored.status, stored.cycle.state) == (Status.FAILED, Cycle.State.FINISHED)
    assert not Session.objects.filter(status=Status.QUEUED).exists()


@every_operation
def test_when_enqueueing_fails_nothing_has_changed(operate):
    session = with_status(Status.FAILED)

    with enqueue_with(_refuse), pytest.raises(RuntimeError):
        operate(session)

    stored = Session.objects.get(pk=session.pk)
    assert (stored.status, stored.cycle.state) == (Status.FAILED, Cycle.State.FINISHED)
    assert Session.objects.count() == 1


@every_operation
def test_of_two_concurrent_operations_on_one_cycle_one_wins(operate):
    """Both have read the cycle as finished before either of them begins."""
    session = with_status(Status.FAILED)
    first, second = (Session.objects.select_related("cycle").get(pk=session.pk) for _ in range(2))
    manual.follow_up(first, "Why?")

    with refused(RefusalCode.CYCLE_ACTIVE):
        operate(second)

    assert Session.objects.filter(status=Status.QUEUED).count() == 1


@pytest.mark.parametrize("text", ["", "   ", "\n"])
@pytest.mark.parametrize(
    ("operate", "what"),
    [
        (manual.follow_up, "a question"),
        (manual.fork, "what to try instead"),
        (manual.escalate, "a reason"),
    ],
)
def test_an_operation_without_text_is_refused(operate, what, text):
    with refused(RefusalCode.TEXT_MISSING, match=what):
        operate(with_status(Status.COMPLETED), text)


WORDY = [
    (manual.follow_up, "a question", LONGEST_REQUEST),
    (manual.fork, "what to try instead", LONGEST_REQUEST),
    (manual.escalate, "a reason", LONGEST_REASON),
]


@pytest.mark.parametrize("character", ["word ", "語", "ж", "ก", "😀", "$"])
@pytest.mark.parametrize(("operate", "what", "limit"), WORDY)
def test_req3_a_text_is_limited_by_its_tokens_in_every_script(operate, what, limit, character):
    fits = cut_to_tokens(character * limit * 2, limit)

    created = operate(with_status(Status.COMPLETED), fits)

    assert created.request == fits
    with refused(RefusalCode.TEXT_TOO_LONG, match=f"{what} in at most {limit:,} tokens"):
        operate(with_status(Status.COMPLETED), character * limit * 2)


@pytest.mark.parametrize("status", Status)
def test_only_a_failed_or_interrupted_session_can_be_retried(status):
    session = with_status(status)
    allowed = {"failed", "timed_out", "interrupted", "cancelled"}

    if status in allowed:
        assert manual.retry(session).status == Status.QUEUED
    else:
        with refused(RefusalCode.SESSION_STATUS):
            manual.retry(session)


@pytest.mark.parametrize("status", Status)
def test_only_a_finished_session_can_be_escalated_manually(status):
    session = with_status(status)
    allowed = {"completed", "failed", "timed_out", "interrupted"}

    if status in allowed:
        assert manual.escalate(session, "Help").tier == 2
    else:
        with refused(RefusalCode.SESSION_STATUS):
            manual.escalate(session, "Help")
        assert Session.objects.get(pk=session.pk).status == status


@pytest.mark.parametrize(
    ("tier", "max_tier", "why"),
    [
        (3, 3, "there is no tier above 3"),
        (2, 2, "allows no tier above 2"),
        (1, 1, "allows no tier above 1"),
        (2, 1, "allows no tier above 1"),
    ],
)
def test_an_escalation_above_the_policy_is_refused(tier, max_tier, why):
    session = with_status(Status.COMPLETED, tier=tier, cycle=CycleFactory(max_tier=max_tier))

    with refused(RefusalCode.POLICY, match=why):
        manual.escalate(session, "Help")

    assert Session.objects.get(pk=session.pk).status == Status.COMPLETED


def test_a_refused_escalation_leaves_the_cycle_finished():
    session = with_status(Status.ESCALATED)

    with refused(RefusalCode.SESSION_STATUS):
        manual.escalate(session, "Help")

    assert Cycle.objects.get(pk=session.cycle_id).state == Cycle.State.FINISHED


def test_a_drill_does_not_wait_for_other_drills():
    session = with_status(Status.COMPLETED, drill=True)
    CycleFactory(drilled=True, running=True)

    assert manual.follow_up(session, "Why?")


def test_the_requester_is_stored(operator: User):
    session = with_status(Status.COMPLETED)

    asked = manual.follow_up(session, "Why?", requested_by=operator)

    assert (asked.requested_by, asked.request) == (operator, "Why?")


def _refuse(session: Session) -> None:
    raise RuntimeError("the queue is gone")


TAKES_MESSAGES = ["claude", "-p", "--input-format", "stream-json"]


def test_a_running_session_is_told_something_with_the_name_and_without_secrets():
    session = SessionFactory(running=True, argv=TAKES_MESSAGES)

    manual.tell(session, "Leave db alone. password=hunter2hunter2", by="grace")

    event = session.events.get()
    assert (event.kind, event.payload["by"]) == ("told", "grace")
    assert event.payload["text"].startswith("Leave db alone.")
    assert "hunter2hunter2" not in event.payload["text"]


@pytest.mark.parametrize(
    ("fields", "text", "code"),
    [
        ({"running": True}, " ", RefusalCode.TEXT_MISSING),
        ({"running": True}, "語" * LONGEST_REQUEST, RefusalCode.TEXT_TOO_LONG),
        ({"running": True, "argv": []}, "Wait.", RefusalCode.NOT_SUPPORTED),
        (
            {"running": True, "argv": ["claude", "-p"], "purpose": "plan"},
            "Wait.",
            RefusalCode.NOT_SUPPORTED,
        ),
        ({"running": True, "stop_cause": "person"}, "Wait.", RefusalCode.SESSION_STATUS),
        ({}, "Wait.", RefusalCode.SESSION_STATUS),
        ({"status": Status.QUEUED}, "Wait.", RefusalCode.SESSION_STATUS),
    ],
)
def test_a_message_that_cannot_be_told_is_refused(fields, text, code):
    session = SessionFactory(**{"argv": TAKES_MESSAGES, **fields})

    with refused(code):
        manual.tell(session, text, by="grace")
    assert not session.events.exists()
