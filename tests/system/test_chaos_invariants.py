"""The invariants of chaos: each violation that is planted into real evidence is reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from django.conf import settings

from tests.devtools.chaos.leftovers import left_after_all
from tests.devtools.chaos.prices import learned_prices
from tests.system.finished_experiment import FinishedExperiment, delete, play_drill, update

# They check the checks of chaos, which is a proof too.
pytestmark = pytest.mark.prove
EVENTS = "sessions_app_sessionevent"
TOKEN_COLUMNS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_creation_tokens")


@pytest.fixture(scope="module")
def prices():
    return learned_prices([tier.model for tier in settings.CLAUDEOPS_TIERS.values()])


@pytest.fixture(scope="module")
def played(tmp_path_factory, prices) -> FinishedExperiment:
    state = tmp_path_factory.mktemp("played") / "state"
    play_drill(state)
    return FinishedExperiment(state, prices)


@pytest.fixture(scope="module")
def played_with_a_kill(tmp_path_factory, prices) -> FinishedExperiment:
    state = tmp_path_factory.mktemp("killed") / "state"
    play_drill(state, kill_first_cli=True)
    return FinishedExperiment(state, prices)


@pytest.fixture
def good(played, tmp_path) -> FinishedExperiment:
    return played.copied_to(tmp_path / "copy")


@pytest.fixture
def cut_off(played_with_a_kill, tmp_path) -> FinishedExperiment:
    """Four sessions: the first was killed, the second went on from there."""
    copy = played_with_a_kill.copied_to(tmp_path / "copy")
    copy.correct_costs(1)
    return copy


def test_an_experiment_without_a_fault_has_no_violation(good):
    assert good.violations == []
    assert [run.row["status"] for run in good.evidence.runs] == [
        *("escalated", "escalated", "completed")
    ]


def test_an_experiment_that_continued_after_a_kill_has_no_violation(cut_off):
    assert cut_off.violations == []
    assert [run.row["status"] for run in cut_off.evidence.runs][0] == "interrupted"
    assert cut_off.evidence.runs[0].results == []


@pytest.mark.parametrize(
    ("planted", "reported"),
    [
        (update("sessions", "status = 'running'", "id = 2"), "session 2 is still running"),
        (update("sessions", "status = 'queued'", "id = 3"), "session 3 is still queued"),
        (update("sessions", "finished_at = NULL", "id = 2"), "session 2 is escalated and has no"),
        (update("sessions", "report = NULL", "id = 3"), "without a result and a report"),
        (update("sessions_app_cycle", "state = 'running'", "id = 1"), "cycle 1 is running"),
        (update("sessions_app_cycle", "outcome = ''", "id = 1"), "its outcome open"),
        (
            update("sessions", "error = 'Claude Ops itself failed: disk'", "id = 2"),
            "session 2 is escalated: Claude Ops itself failed: disk",
        ),
    ],
)
def test_a_missing_end_is_reported(good, planted, reported):
    good.change(planted)

    assert [found for found in good.violations if reported in found]


@pytest.mark.parametrize(
    ("planted", "reported"),
    [
        ("parent_session_id = NULL", "goes on from the beginning 2 times, 2 of them at work"),
        ("parent_session_id = 999", "hangs on session 999, which is not in its cycle"),
        ("parent_session_id = 1", "goes on from session 1 2 times, 2 of them at work"),
        ("tier = 1", "session 3 is of a lower tier than session 2"),
        ("status = 'escalated'", "session 3 is escalated and nothing follows it"),
    ],
)
def test_a_broken_link_is_reported(good, planted, reported):
    good.change(update("sessions", planted, "id = 3"))

    assert [found for found in good.violations if reported in found]


def test_a_chain_without_a_beginning_is_reported(good):
    good.change(update("sessions", "parent_session_id = 3", "id = 1"))

    assert "the chain has no beginning" in good.violations


def test_one_attempt_without_output_is_no_violation(good):
    good.add_silent_attempt(beside=3)

    assert good.violations == []


def test_a_second_attempt_without_output_is_reported(good):
    good.add_silent_attempt(beside=3)
    good.add_silent_attempt(beside=3)

    assert good.violations == ["the chain goes on from session 2 3 times, 1 of them at work"]


def test_an_attempt_with_an_answer_counts_as_work(good):
    key = good.add_silent_attempt(beside=3)
    good.rewrite_log(
        lambda entries: entries.extend(
            {**entry, "run": str(key)} for entry in entries[-4:] if "body" in entry
        )
    )

    assert "the chain goes on from session 2 2 times, 2 of them at work" in good.violations
    assert "Tier 3 was run 2 times" in good.violations


def test_a_resume_without_the_earlier_conversation_is_reported(good):
    def forget(entries):
        first = next(entry for entry in entries if entry["run"] == "2" and "body" in entry)
        first["body"]["messages"] = first["body"]["messages"][-1:]

    good.rewrite_log(forget)

    assert [
        found for found in good.violations if "session 2 resumes session 1 and was not" in found
    ]


def test_a_second_start_of_a_session_is_reported(good):
    def start_again(entries):
        again = json.loads(json.dumps(entries[0]))
        user = json.loads(again["body"]["metadata"]["user_id"])
        again["body"]["metadata"]["user_id"] = json.dumps({**user, "session_id": "another"})
        entries.append(again)

    good.rewrite_log(start_again)

    assert "session 1 was started 2 times" in good.violations


def test_a_session_that_is_not_stored_is_reported(good):
    good.rewrite_log(lambda entries: entries.append({**entries[0], "run": "77"}))

    assert [found for found in good.violations if "served a session 77" in found]


def test_a_tier_that_ran_twice_is_reported(good):
    good.change(update("sessions", "tier = 2", "id = 3"))

    assert "Tier 2 was run 2 times" in good.violations


@pytest.mark.parametrize("kind", ["assistant", "user"])
def test_a_lost_event_is_reported_without_a_gap_in_the_numbers(good, kind):
    (number,) = [
        event["sequence"] for event in good.evidence.runs[1].events if event["kind"] == kind
    ][:1]
    good.change(
        delete(EVENTS, f"session_id = 2 AND sequence = {number}"),
        update(EVENTS, "sequence = sequence + 999", f"session_id = 2 AND sequence > {number}"),
        update(EVENTS, "sequence = sequence - 1000", "session_id = 2 AND sequence > 999"),
    )

    assert [found for found in good.violations if "session 2 lost 1 events" in found]


def test_a_lost_tool_call_is_reported_even_without_a_transcript(good):
    good.transcript(2).unlink()
    good.change(delete(EVENTS, "session_id = 2 AND kind IN ('assistant', 'user')"))

    assert "session 2 has no event for 1 tool calls that the API saw" in good.violations


def test_a_gap_in_the_numbers_is_reported(good):
    good.change(delete(EVENTS, "session_id = 2 AND sequence = 2"))

    gap = re.compile(r"session 2 has \d+ events, numbered up")
    assert [found for found in good.violations if gap.search(found)]


def test_a_repeated_event_is_reported(good):
    good.change(
        "INSERT INTO sessions_app_sessionevent"
        " (session_id, sequence, source, kind, payload, created_at)"
        " SELECT session_id, (SELECT MAX(sequence) + 1 FROM sessions_app_sessionevent"
        " WHERE session_id = 2), source, kind, payload, created_at"
        " FROM sessions_app_sessionevent WHERE session_id = 2 AND sequence = 6"
    )

    assert "session 2 has 1 events twice" in good.violations


@pytest.mark.parametrize("column", TOKEN_COLUMNS)
@pytest.mark.parametrize("by", [1, -1])
def test_wrong_tokens_of_each_kind_are_reported(good, column, by):
    good.change(update("sessions", f"{column} = {column} + {by}", "id = 2"))

    (found,) = good.violations
    assert found.startswith("session 2 counts ")
    assert "the API served" in found


def test_a_wrong_cost_is_reported_by_prices_and_by_the_total_of_the_cli(good):
    good.change(update("sessions", "cost_usd = cost_usd + 0.001", "id = 3"))

    by_price, by_account = sorted(good.violations)
    assert "session 3 cost" in by_price
    assert "the CLI's own account says" in by_account


def test_a_missing_cost_is_reported(good):
    good.change(update("sessions", "cost_usd = NULL", "id = 1"))

    assert "session 1 has no cost, though its CLI stated one" in good.violations


def test_a_total_that_differs_from_that_of_the_cli_is_reported(good):
    transcript = good.transcript(3)
    with transcript.open("a") as file:
        file.write(json.dumps({"type": "cost-state", "totalCostUSD": 5.0}) + "\n")

    (found,) = good.violations
    assert "the chain up to session 3" in found


def test_a_total_without_its_beginning_is_no_violation(good):
    first = good.transcript(1)
    kept = [line for line in first.read_text().splitlines() if '"cost-state"' not in line]
    first.write_text("\n".join(kept) + "\n")
    with good.transcript(3).open("a") as file:
        file.write(json.dumps({"type": "cost-state", "totalCostUSD": 0.01}) + "\n")

    assert good.violations == []


@pytest.mark.parametrize("column", TOKEN_COLUMNS)
def test_fewer_tokens_than_the_transcript_of_an_interrupted_session_are_reported(cut_off, column):
    cut_off.change(update("sessions", f"{column} = {column} - 1", "id = 1"))

    (found,) = cut_off.violations
    assert "its transcript proves" in found


@pytest.mark.parametrize("column", TOKEN_COLUMNS)
def test_more_tokens_than_an_interrupted_session_was_offered_are_reported(cut_off, column):
    cut_off.change(update("sessions", f"{column} = {column} + 100000", "id = 1"))

    (found,) = cut_off.violations
    assert found.endswith("offered")


@pytest.mark.parametrize(
    ("planted", "reported"),
    [
        ("cost_usd = 1", "all that was offered costs"),
        ("cost_usd = 0", "its transcript proves"),
        ("estimated_cost_usd = 1", "session 1 is estimated at $1,"),
    ],
)
def test_a_wrong_cost_of_an_interrupted_session_is_reported(cut_off, planted, reported):
    cut_off.change(update("sessions", planted, "id = 1"))

    (found,) = cut_off.violations
    assert reported in found


def test_a_conversation_that_is_still_in_use_is_reported(good):
    good.change(update("sessions_app_conversation", "in_use_by_id = 1", "id = 1"))

    assert [found for found in good.violations if found.endswith("is still held")]


@pytest.mark.parametrize(
    "name", ["runs/session-2/tools", "spool/session-2.jsonl", "handoffs/session-2.json"]
)
def test_a_leftover_file_is_reported(good, name):
    path = good.state / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("something")

    assert good.violations == [f"the file {name} was left behind"]


def test_a_file_of_another_experiment_is_no_violation(good):
    path = good.state / "runs" / "session-22" / "tools"
    path.parent.mkdir(parents=True)
    path.write_text("something")

    assert good.violations == []


def test_a_file_left_after_all_experiments_is_reported(good):
    assert left_after_all(good.state, good.place.drills) == []

    (good.state / "runs" / "nobody-knows-whose").write_text("something")

    assert left_after_all(good.state, good.place.drills) == [
        "the file runs/nobody-knows-whose was left behind"
    ]


@pytest.fixture
def survivor() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


@pytest.mark.parametrize("known_by", ["mark", "directory", "command"])
def test_a_leftover_process_is_reported(good, survivor, known_by):
    mark = good.evidence.runs[1].row["run_mark"]
    marked = {"CLAUDEOPS_RUN": mark} if known_by == "mark" else {}
    told = str(good.place.drill / "system") if known_by == "command" else "nothing"
    survivor.append(
        subprocess.Popen(
            ["sh", "-c", "sleep 60 & wait", told],
            env={"PATH": os.environ["PATH"], **marked},
            cwd=good.place.drill / "system" if known_by == "directory" else "/",
        )
    )

    number = survivor[0].pid
    assert [found for found in good.violations if f"the process {number} (sh" in found]
