"""`claudeops session list|show|messages`, and how a session is named."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pytest
from django.core.management import CommandError, call_command

from escalation.errors import RefusalCode
from sessions_app.models import Session, Transcript
from tests.escalation.refusals import command_refused
from tests.escalation.runs import FINDS_AND_ESCALATES, run
from tests.factories import (
    CycleFactory,
    SessionEventFactory,
    SessionFactory,
    WatchFactory,
    three_tier_chain,
)

pytestmark = pytest.mark.django_db


def session_says(*arguments: object) -> str:
    out = io.StringIO()
    call_command("session", *map(str, arguments), stdout=out, stderr=io.StringIO())
    return out.getvalue()


def listed(*arguments: object) -> list[int]:
    return [entry["id"] for entry in json.loads(session_says("list", *arguments, "--json"))]


def of(name: str) -> Session:
    return SessionFactory(cycle=CycleFactory(watch=WatchFactory(name=name)))


def test_list_shows_the_newest_first():
    sessions = [SessionFactory() for _ in range(3)]

    assert listed() == [session.pk for session in reversed(sessions)]


@pytest.mark.parametrize(
    ("limit", "offset", "shown"), [(2, 0, [5, 4]), (2, 2, [3, 2]), (2, 4, [1]), (2, 9, [])]
)
def test_list_takes_limit_and_offset(limit, offset, shown):
    numbers = [SessionFactory().pk for _ in range(5)]

    found = listed("--limit", limit, "--offset", offset)

    assert found == [numbers[position - 1] for position in shown]


def test_list_shows_the_option_for_the_next_page():
    SessionFactory.create_batch(3)

    last = session_says("list", "--limit", 2).splitlines()[-1]

    assert last == "Sessions 1 to 2 of 3. The next ones: --offset 2"


def test_list_beyond_the_end_shows_the_total():
    SessionFactory()

    assert session_says("list", "--offset", 7) == "No sessions here; 1 in all.\n"


def test_list_shows_number_watch_tier_status_and_cost():
    session = SessionFactory(cost_usd=Decimal("0.47"), cycle=CycleFactory(ephemeral=True))

    (line, _end) = session_says("list").splitlines()

    for text in (
        f"#{session.pk}",
        session.cycle.subject,
        "Tier 1",
        "completed",
        "$0.47",
        "not kept",
    ):
        assert text in line


def test_list_is_filtered_by_watch_and_status():
    shop = of("shop")
    of("lab")
    failed = SessionFactory(failed=True, cycle=CycleFactory(watch=shop.cycle.watch))

    assert listed("--watch", "shop") == [failed.pk, shop.pk]
    assert listed("--watch", "shop", "--status", "failed") == [failed.pk]


def test_list_is_filtered_by_a_removed_watch():
    session = SessionFactory(cycle=CycleFactory(watch=None, watch_name="shop"))
    of("lab")

    assert listed("--watch", "shop") == [session.pk]


@pytest.mark.parametrize(
    "options", [["--limit", "-1"], ["--offset", "x"], ["--status", "good"], ["--watch", "nowhere"]]
)
def test_list_refuses_invalid_options(options):
    with pytest.raises(CommandError, match=options[0] if options[0] != "--watch" else "nowhere"):
        session_says("list", *options)


def test_show_prints_all_known_facts(workdir):
    session = SessionFactory(
        tier=2,
        workdir=str(workdir),
        request="Is db slow?",
        escalation_reason="Tier 2 asked for no escalation.",
        max_turns=5,
        max_budget_usd=Decimal("0.5"),
        report={"summary": "db is slow."},
        cycle=CycleFactory(ephemeral=True),
    )

    shown = session_says("show", session.pk)

    assert shown.startswith(f"Session {session.pk} of {session.cycle.subject}: Tier 2, completed")
    for text in (
        *("not kept", "Is db slow?", "at most 5 turns, at most $0.50", "db is slow."),
        *(session.session_id, str(workdir), "Tier 2 asked for no escalation."),
    ):
        assert text in shown


def test_show_prints_every_column_as_json():
    session = SessionFactory(prompt="Look.", argv=["claude", "-p"], max_budget_usd=Decimal("0.5"))

    shown = json.loads(session_says("show", session.pk, "--json"))

    assert (shown["prompt"], shown["argv"]) == ("Look.", ["claude", "-p"])
    assert (shown["cost_usd"], shown["max_budget_usd"], shown["ephemeral"]) == (0.03, 0.5, False)
    assert {field.attname for field in Session._meta.concrete_fields} <= shown.keys()


def test_messages_are_read_from_the_events_without_an_archived_transcript():
    session = SessionFactory(running=True)
    for number, said in enumerate(["First.", "Second.", "Third."], start=1):
        SessionEventFactory(session=session, sequence=number, said=said)
    SessionEventFactory(session=session, sequence=9, source="supervisor", kind="decision")

    shown = json.loads(session_says("messages", session.pk, "--json"))

    assert [entry["message"]["content"][0]["text"] for entry in shown] == [
        *("First.", "Second.", "Third.")
    ]
    assert {(entry["source"], entry["type"]) for entry in shown} == {("stream", "assistant")}


def test_long_messages_are_complete():
    session = SessionFactory()
    SessionEventFactory(session=session, said="x" * 100_000)

    (shown,) = json.loads(session_says("messages", session.pk, "--json"))

    assert len(shown["message"]["content"][0]["text"]) == 100_000


def test_messages_are_read_from_the_archived_transcript(fake_cli, session):
    fake_cli.then(FINDS_AND_ESCALATES)
    ended = run(session)
    assert Transcript.objects.exists()

    shown, *_more = json.loads(session_says("messages", ended.pk, "--json"))

    assert (shown["source"], shown["type"]) == ("transcript", "user")
    assert shown["message"]["content"] == "the prompt"


def test_messages_take_limit_and_offset():
    session = SessionFactory()
    for number in range(1, 6):
        SessionEventFactory(session=session, sequence=number, said=f"word {number}")

    lines = session_says("messages", session.pk, "--limit", 2, "--offset", 2).splitlines()

    assert [line for line in lines if "word" in line] == [
        *("3.    Claude: word 3", "4.    Claude: word 4")
    ]
    assert lines[-1] == "Messages 3 to 4 of 5. The next ones: --offset 4"


@pytest.mark.parametrize("verb", ["show", "messages"])
def test_an_unknown_session_is_refused(verb):
    with command_refused(RefusalCode.NOT_FOUND, match="987"):
        session_says(verb, 987)


@pytest.mark.parametrize("name", ["abc", "latest", "1.5", "", "99999999999999999999"])
def test_an_invalid_reference_is_refused_with_the_valid_form(name):
    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="latest:NAME"):
        session_says("show", name)


def test_the_latest_session_of_a_watch_can_be_named():
    first = of("shop")
    latest = SessionFactory(tier=2, parent_session=first)
    of("lab")

    assert f"Session {latest.pk} of shop" in session_says("show", "latest:shop")


def test_a_number_may_have_a_number_sign():
    session = SessionFactory()

    assert f"Session {session.pk} of" in session_says("show", f"#{session.pk}")


def test_the_latest_session_can_be_named_for_the_chain_too():
    session = three_tier_chain()[2]
    out = io.StringIO()

    call_command("chain", f"latest:{session.cycle.watch}", "--json", stdout=out)

    assert json.loads(out.getvalue())[-1]["id"] == session.pk


def test_req5_the_chain_shows_an_unknown_cost_as_unknown():
    first = SessionFactory(escalated=True, cost_usd=Decimal("0.03"))
    SessionFactory(tier=2, parent_session=first, failed=True)
    out = io.StringIO()

    call_command("chain", str(first.pk), stdout=out)

    lines = [line.strip() for line in out.getvalue().splitlines()]
    assert "Tier 1: $0.03" in lines
    assert "Tier 2: unknown" in lines


def test_an_unknown_watch_is_refused_with_the_known_ones():
    WatchFactory(name="shop")

    with command_refused(RefusalCode.NOT_FOUND, match="lab.*shop"):
        session_says("show", "latest:lab")


def test_a_watch_without_sessions_is_refused():
    WatchFactory(name="shop")
    WatchFactory(name="mail")

    with command_refused(RefusalCode.NOT_FOUND, match="^(?!.*mail).*shop"):
        session_says("show", "latest:shop")


@pytest.mark.parametrize("flag", ["--queue", "--json", "--no-input", "--fresh"])
def test_stop_refuses_options_that_it_would_ignore(flag):
    with pytest.raises(CommandError, match=flag):
        session_says("stop", 1, flag)


def test_a_follow_up_refuses_options_that_it_would_ignore():
    with pytest.raises(CommandError, match="--no-input"):
        session_says("follow_up", 1, "Why?", "--no-input")


def test_show_prints_the_whole_answer_to_a_question():
    answer = "\n".join(f"line {number}" for number in range(100))
    session = SessionFactory(purpose="follow_up", request="Why?", result=f"{answer}\x1b[2J")

    shown = session_says("show", session.pk)

    assert "line 99" in shown
    assert "\x1b" not in shown
    assert json.loads(session_says("show", session.pk, "--json"))["answer"].startswith("line 0\n")
