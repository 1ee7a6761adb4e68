"""The facts that a prompt is written from, as they follow from the rows of a cycle."""

from __future__ import annotations

import pytest

from escalation.run.manifest import accept_first
from escalation.run.prompts import (
    EarlierRun,
    PromptContext,
    prompt_context_of,
    prompt_for,
)
from escalation.supervisor import manual
from escalation.supervisor.successors import lineage_of
from escalation.tiers import get_tier
from sessions_app.history.resume import Continuation, Fresh, Resume
from sessions_app.models import Cycle, Session
from tests.escalation.rows import CONVERSATION, ESCALATE
from tests.factories import (
    CycleFactory,
    IncidentFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
)

pytestmark = pytest.mark.django_db
Status, Purpose, By = Session.Status, Session.Purpose, Session.ContinuedBy
FRESH, RESUME = Fresh(why="first run of the cycle"), Resume(CONVERSATION, "asked")


def way_of(session: Session) -> Continuation:
    return RESUME if session.parent_session else FRESH


def prompt_context(session: Session) -> PromptContext:
    return prompt_context_of(lineage_of(session), get_tier(session.tier), way_of(session), None)


def prompt(session: Session) -> str:
    return prompt_for(lineage_of(session), get_tier(session.tier), way_of(session), None)


def escalated(**fields) -> Session:
    return SessionFactory(escalated=True, report=ESCALATE, **fields)


def failed(**fields) -> Session:
    return SessionFactory(failed=True, **fields)


def say(session: Session) -> None:
    SessionEventFactory(session=session)


def call(session: Session, command: str, *, answered: bool = False, tool: str = "Bash") -> None:
    number = f"toolu_{session.events.count()}"
    used = {"type": "tool_use", "id": number, "name": tool, "input": {"command": command}}
    lines = [{"type": "assistant", "message": {"content": [used]}}]
    if answered:
        result = {"type": "tool_result", "tool_use_id": number, "content": ""}
        lines.append({"type": "user", "message": {"content": [result]}})
    for line in lines:
        SessionEventFactory(session=session, kind=line["type"], payload=line)


def tried_again(session: Session, **options) -> Session:
    Cycle.objects.filter(pk=session.cycle_id).update(state=Cycle.State.FINISHED)
    session.refresh_from_db()
    return manual.retry(session, **options)


def test_a_retried_first_session_mentions_the_attempt_before():
    first = failed()
    call(first, "df -h", answered=True)

    again = tried_again(first)

    assert prompt_context(again).purpose == Purpose.TIER
    assert "An earlier attempt at this failed. Check first what it left." in prompt(again)


def test_a_first_session_that_is_started_again_mentions_the_attempt_before():
    first = SessionFactory(status=Status.INTERRUPTED)

    again = SessionFactory(cycle=first.cycle, status=Status.QUEUED, started_at=None)

    assert "An earlier attempt at this was interrupted before it began." in prompt(again)


def test_a_retried_escalation_names_the_requesting_tier():
    parent = escalated()
    broken = failed(tier=2, parent_session=parent)
    say(broken)

    told = prompt(tried_again(broken))

    assert "granted the escalation that Tier 1 asked for" in told
    assert "An earlier attempt at this failed." in told


@pytest.mark.parametrize(
    ("purpose", "words"),
    [
        (Purpose.REPORT, "ended without the structured report"),
        (Purpose.CONTINUATION, "stopped at its turn limit"),
        (Purpose.RECOVERY, "was interrupted: its process"),
        (Purpose.FORK, "An operator wants another approach"),
    ],
)
def test_a_retry_within_a_tier_has_the_purpose_of_the_failed_session(purpose, words):
    parent = failed(tier=2, parent_session=escalated())
    request = "this way" if purpose == Purpose.FORK else ""
    broken = failed(tier=2, parent_session=parent, purpose=purpose, request=request)

    again = tried_again(broken)

    assert again.purpose == Purpose.RETRY
    assert words in prompt(again)
    assert "granted" not in prompt(again)


def test_a_retry_of_a_retry_has_the_purpose_of_the_first():
    parent = failed(tier=2, parent_session=escalated())
    first = failed(tier=2, parent_session=parent, purpose=Purpose.CONTINUATION)
    second = tried_again(first)
    Session.objects.filter(pk=second.pk).update(status=Status.FAILED, started_at=first.started_at)
    second.refresh_from_db()

    found = prompt_context(tried_again(second))

    assert found.purpose == Purpose.CONTINUATION
    assert len(found.attempts) == 2


def test_a_retried_manual_escalation_keeps_its_reason():
    parent = SessionFactory(report=ESCALATE)
    sent = manual.escalate(parent, "I do not believe it")
    Session.objects.filter(pk=sent.pk).update(status=Status.FAILED, started_at=parent.started_at)
    sent.refresh_from_db()

    told = prompt(tried_again(sent))

    assert "An operator escalated from Tier 1:\nI do not believe it\n" in told
    assert "granted" not in told


def test_a_retried_follow_up_mentions_only_its_own_attempts():
    parent = SessionFactory(report=ESCALATE)
    failed(parent_session=parent, purpose=Purpose.FORK, request="Why?")
    question = failed(parent_session=parent, purpose=Purpose.FOLLOW_UP, request="Why?")

    again = tried_again(question)

    assert (again.purpose, len(prompt_context(again).attempts)) == (Purpose.FOLLOW_UP, 1)


@pytest.mark.parametrize(
    "other",
    [
        {"status": Status.COMPLETED},
        {"status": Status.ESCALATED},
        {"status": Status.RUNNING},
        {"status": Status.FAILED, "request": "another way"},
        {"status": Status.FAILED, "tier": 2},
        {"status": Status.CANCELLED, "started_at": None},
        {"status": Status.FAILED, "purpose": Purpose.FOLLOW_UP},
    ],
)
def test_unrelated_sessions_are_no_earlier_attempts(other):
    parent = escalated()
    SessionFactory(parent_session=parent, **other)

    session = SessionFactory(parent_session=parent, purpose=Purpose.CONTINUATION)

    assert prompt_context(session).attempts == ()


def test_attempts_of_another_cycle_do_not_count():
    failed()

    assert prompt_context(SessionFactory()).attempts == ()


def test_a_manually_escalated_parent_is_described_by_its_end():
    parent = SessionFactory(status=Status.INTERRUPTED)
    say(parent)

    child = manual.escalate(parent, "It was mine to stop")

    assert prompt_context(child).parent.ended_as == Status.INTERRUPTED
    assert "Tier 1 was interrupted and left no report." in prompt(child)


def test_an_interrupted_command_is_quoted():
    parent = SessionFactory(status=Status.INTERRUPTED)
    call(parent, "docker ps", answered=True)
    call(parent, "docker   restart\nweb")

    told = prompt(SessionFactory(parent_session=parent, purpose=Purpose.RECOVERY))

    assert "Cut off in the middle" in told
    assert "\nBash: docker restart web\n" in told
    assert "docker ps" not in told


def test_an_interrupted_command_is_redacted_disarmed_and_shortened():
    parent = SessionFactory(status=Status.INTERRUPTED)
    call(parent, "curl -d token=swordfish @/etc/passwd " + "x" * 1000)

    told = prompt(SessionFactory(parent_session=parent, purpose=Purpose.RECOVERY))

    assert "swordfish" not in told
    assert "@ /etc/passwd" in told
    assert "x" * 300 in told
    assert "x" * 401 not in told


def test_the_newest_interrupted_commands_are_quoted():
    parent = SessionFactory(status=Status.INTERRUPTED)
    for number in range(5):
        call(parent, f"probe {number}")

    found = prompt_context(SessionFactory(parent_session=parent, purpose=Purpose.RECOVERY))

    assert found.parent.cut_calls == ("Bash: probe 2", "Bash: probe 3", "Bash: probe 4")


def test_unfinished_call_of_a_failed_attempt_is_quoted():
    first = SessionFactory(status=Status.TIMED_OUT)
    call(first, "docker pull web")

    assert "\nBash: docker pull web\n" in prompt(tried_again(first))


def test_earlier_sessions_are_ordered_from_the_first_tier():
    first = escalated(continued_by=By.FRESH)
    second = escalated(tier=2, parent_session=first, continued_by=By.HANDOFF, compactions=1)

    found = prompt_context(SessionFactory(tier=3, parent_session=second))

    assert [(run.tier, run.continued_by, run.compacted) for run in found.line] == [
        (1, By.FRESH, False),
        (2, By.HANDOFF, True),
    ]
    assert (found.in_conversation, found.in_record) == (found.line[1:], found.line[:1])


def test_a_conversation_resumed_throughout_contains_all_earlier_sessions():
    line = (
        EarlierRun(tier=1, continued_by=By.FRESH),
        EarlierRun(tier=2, continued_by=By.RESUME),
    )

    found = PromptContext(tier=get_tier(3), continuation=RESUME, line=line)

    assert (found.in_conversation, found.in_record) == (line, ())


def test_a_resumed_session_reads_no_manifest(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("House rules")
    parent = escalated(cycle=CycleFactory(workdir=str(tmp_path)))

    assert prompt_context(SessionFactory(tier=2, parent_session=parent)).operator.manifest == ""


def test_a_fresh_run_gets_the_accepted_manifest_and_a_changed_one_beside_it(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("House rules")
    watch = WatchFactory(workdir=str(tmp_path))
    accept_first(watch, by="ada")
    cycle = CycleFactory(watch=watch, workdir=str(tmp_path))
    as_accepted = prompt_context(SessionFactory(cycle=cycle)).operator
    (tmp_path / "CLAUDE-OPS.md").write_text("Forged rules")
    changed = prompt_context(SessionFactory(cycle=cycle)).operator

    assert (as_accepted.manifest, as_accepted.unaccepted_manifest) == ("House rules", "")
    assert (changed.manifest, changed.unaccepted_manifest) == ("House rules", "Forged rules")


def test_an_ordinary_escalation_needs_two_queries(
    django_assert_num_queries,
):
    child = SessionFactory(tier=2, parent_session=escalated())

    with django_assert_num_queries(2):
        prompt_context(child)


@pytest.mark.parametrize(("tier", "told"), [(1, ()), (2, ("restarted web",))])
def test_failed_remedies_are_given_above_tier_1_only(tier, told):
    session = SessionFactory(tier=tier)
    incident = IncidentFactory(cause="web")
    incident.cycles.add(session.cycle)
    for _ in range(2):
        incident.events.create(kind="did_not_hold", text="restarted web")

    assert prompt_context(session).failed_remedies == told
