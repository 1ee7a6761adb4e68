"""`claudeops session`: follow up, fork, retry and escalate from a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import pytest
from django.core.management import CommandError, call_command
from django_q.models import OrmQ

from escalation.errors import RefusalCode
from sessions_app.models import Cycle, Session, Watch
from tests.escalation.refusals import command_refused
from tests.escalation.rows import ESCALATE, HEALTHY, a_report
from tests.escalation.runs import run
from tests.factories import CycleFactory, SessionFactory, user_with

pytestmark = pytest.mark.django_db
Status, Purpose = Session.Status, Session.Purpose


@dataclass
class Finished:
    code: int
    out: str
    err: str


def session_command(*arguments: object) -> Finished:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command("session", *map(str, arguments), stdout=out, stderr=err)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return Finished(code, out.getvalue(), err.getvalue())


@pytest.fixture
def answer(monkeypatch):
    def type_in(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return type_in


@pytest.fixture
def finished(fake_cli, session) -> Session:
    fake_cli.reports(a_report(services=(("web", "down"),)))
    return run(session)


def test_a_follow_up_runs_in_the_foreground_and_prints_the_chain(fake_cli, finished):
    fake_cli.then("init(); say(); result(None, result='The disk was full.')")

    ended = session_command("follow_up", finished.pk, "Why is web down?")

    asked = finished.children.get()
    assert (asked.purpose, asked.status) == (Purpose.FOLLOW_UP, Status.COMPLETED)
    assert "Why is web down?" in fake_cli.calls[1].stdin
    assert f"#{asked.pk} Tier 1" in ended.out


def test_a_follow_up_prints_the_whole_answer(fake_cli, finished):
    words = "**The disk**\\n\\n" + "\\n".join(f"line {number}" for number in range(60))
    fake_cli.then(f"init(); say(); result(None, result='{words}')")

    ended = session_command("follow_up", finished.pk, "Why?")

    assert ended.out.endswith("line 58\nline 59\n")
    assert "**The disk**" in ended.out


def test_a_follow_up_puts_the_answer_into_the_json(fake_cli, finished):
    fake_cli.then("init(); say(); result(None, result='The disk was full.')")

    ended = session_command("follow_up", finished.pk, "Why?", "--json")

    assert json.loads(ended.out)[-1]["answer"] == "The disk was full."


def test_stop_cancels_a_queued_session():
    session = SessionFactory(running=True, status="queued", started_at=None)

    ended = session_command("stop", session.pk)

    session.refresh_from_db()
    assert session.status == Status.CANCELLED
    assert "nothing more starts" in ended.out


def test_a_fork_of_tier_1_needs_no_confirmation(fake_cli, finished):
    fake_cli.reports(HEALTHY)

    ended = session_command("fork", finished.pk, "look at the cache")

    assert ended.code == 0
    assert finished.children.get().purpose == Purpose.FORK
    assert f"another approach from #{finished.pk}: healthy." in ended.out
    assert ended.out.splitlines()[-2].startswith("Needs a person.")


def test_a_retry_takes_no_text(fake_cli, session):
    fake_cli.then("sys.exit(1)").reports(HEALTHY)
    failed = run(session)

    assert session_command("retry", failed.pk).code == 0
    assert Session.objects.get(purpose=Purpose.RETRY).status == Status.COMPLETED


def test_an_escalation_runs_the_next_tier(fake_cli, finished):
    fake_cli.reports(HEALTHY)

    ended = session_command("escalate", finished.pk, "needed by noon", "--no-input")

    assert ended.code == 0
    assert fake_cli.calls[1].flag("--model") == "sonnet"
    assert Session.objects.get(pk=finished.pk).status == Status.ESCALATED


def test_an_escalation_that_waits_for_approval_exits_with_1(finished):
    Watch.objects.update(approval="2")

    ended = session_command("escalate", finished.pk, "needed by noon", "--no-input")

    assert ended.code == 1
    assert ended.out.rstrip().endswith("Running.")
    assert Session.objects.get(tier=2).status == Status.AWAITING_APPROVAL


@pytest.mark.parametrize("verb", ["retry", "escalate"])
def test_with_fresh_it_runs_by_handoff(fake_cli, session, verb):
    fake_cli.reports(ESCALATE).then("init(); say(); sys.exit(1)").reports(HEALTHY)
    failed = run(run(session).children.get())
    text = ["because"] if verb == "escalate" else []

    session_command(verb, failed.pk, *text, "--fresh", "--no-input")

    assert "--resume" not in fake_cli.calls[2].argv
    assert Session.objects.filter(continued_guard="force_fresh").count() == 1


@pytest.mark.parametrize(
    ("verb", "tier", "named"), [("escalate", 1, 2), ("escalate", 2, 3), ("fork", 2, 2)]
)
def test_a_higher_tier_is_not_started_without_a_confirmation(answer, workdir, verb, tier, named):
    session = SessionFactory(tier=tier, workdir=str(workdir))
    answer("n\n")

    with command_refused(RefusalCode.NOT_CONFIRMED):
        session_command(verb, session.pk, "because")

    assert not session.children.exists()
    assert Session.objects.get(pk=session.pk).status == Status.COMPLETED


def test_a_retry_of_a_higher_tier_starts_after_a_confirmation(fake_cli, answer, workdir):
    session = SessionFactory(failed=True, tier=2, workdir=str(workdir))
    fake_cli.reports(HEALTHY)
    answer("y\n")

    ended = session_command("retry", session.pk)

    assert f"Tier 2 may change {workdir}. Start it?" in ended.err
    assert ended.code == 0


def test_a_follow_up_of_a_higher_tier_needs_no_confirmation(fake_cli, workdir):
    session = SessionFactory(tier=3, workdir=str(workdir), report=HEALTHY)
    fake_cli.then("init(); say(); result(None)")

    ended = session_command("follow_up", session.pk, "Why?")

    assert "Start it?" not in ended.err
    assert session.children.get().status == Status.COMPLETED


def test_with_queue_the_session_is_enqueued(fake_cli, finished):
    ended = session_command("follow_up", finished.pk, "Why?", "--queue")

    assert ended.out == f"Cycle {finished.cycle_id} of {finished.cycle.subject} is queued.\n"
    assert (OrmQ.objects.count(), len(fake_cli.calls)) == (1, 1)


def test_with_json_stdout_is_only_the_chain(fake_cli, finished):
    fake_cli.reports(HEALTHY)

    ended = session_command("fork", finished.pk, "another way", "--json")

    numbers = [row["id"] for row in json.loads(ended.out)]
    assert numbers == [finished.pk, finished.children.get().pk]


def test_an_unknown_session_is_refused():
    with command_refused(RefusalCode.NOT_FOUND, match="987"):
        session_command("retry", 987)


def test_a_session_of_an_active_cycle_is_refused():
    busy = SessionFactory(cycle=CycleFactory(running=True))

    with command_refused(RefusalCode.CYCLE_ACTIVE):
        session_command("follow_up", busy.pk, "Why?")


def test_a_retry_of_a_completed_session_is_refused():
    with command_refused(RefusalCode.SESSION_STATUS):
        session_command("retry", SessionFactory().pk)


@pytest.mark.parametrize(
    "arguments", [[], ["ponder", 1], ["follow_up", 1], ["fork", "x", "y"], ["follow_up"]]
)
def test_an_invalid_command_line_is_refused(arguments):
    with pytest.raises(CommandError):
        session_command(*arguments)


def test_the_exit_code_is_that_of_the_cycle(fake_cli, finished):
    fake_cli.then("init(); say(); result(None)")

    ended = session_command("follow_up", finished.pk, "Why?")

    assert Cycle.objects.get(pk=finished.cycle_id).outcome == Cycle.Outcome.NEEDS_PERSON
    assert ended.code == 1


@pytest.mark.parametrize("command", ["run_cycle", "drill"])
def test_a_cycle_can_be_started_fresh_from_the_terminal(command, settings, workdir):
    settings.CLAUDEOPS_WORKDIR = str(workdir)

    call_command(command, "--fresh", "--queue", stdout=io.StringIO())

    assert Cycle.objects.get().force_fresh


def test_a_withheld_tier_is_allowed_once_by_an_account(fake_cli, session):
    Cycle.objects.filter(pk=session.cycle_id).update(max_tier=1)
    user_with("approver", username="grace")
    fake_cli.reports(ESCALATE)
    first = run(session)
    fake_cli.reports(HEALTHY)
    arguments = ("escalate", first.pk, "--once", "--as", "grace", "--budget", "1.25", "--no-input")

    ended = session_command(*arguments)

    second = first.children.get()
    assert (ended.code, second.status, second.allowed_once) == (0, Status.COMPLETED, True)
    assert fake_cli.calls[1].flag("--resume") == first.session_id
    assert second.approvals.get().way == "terminal"
    with command_refused(RefusalCode.SESSION_STATUS):
        session_command(*arguments)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--as", "grace", "--fresh"), RefusalCode.INVALID_ARGUMENTS),
        (("--as", "nobody"), RefusalCode.ACCOUNT_MISSING),
        (("--as", "ada"), RefusalCode.NOT_PERMITTED),
    ],
)
def test_a_tier_is_not_allowed_once_with_a_wrong_option_or_account(options, code):
    user_with("approver", username="grace")
    user_with("operator", username="ada")
    withheld = SessionFactory(cycle=CycleFactory(max_tier=1))

    with command_refused(code):
        session_command("escalate", withheld.pk, "--once", *options, "--no-input")


def test_an_escalation_without_a_reason_is_refused(finished):
    with command_refused(RefusalCode.TEXT_MISSING):
        session_command("escalate", finished.pk, "--no-input")


def test_a_running_session_is_told_something_from_a_terminal():
    session = SessionFactory(running=True, argv=["claude", "--input-format", "stream-json"])

    assert session_command("tell", session.pk, "Leave db alone.").code == 0

    assert session.events.get().payload["text"] == "Leave db alone."
    with command_refused(RefusalCode.SESSION_STATUS):
        session_command("tell", SessionFactory().pk, "Leave db alone.")
