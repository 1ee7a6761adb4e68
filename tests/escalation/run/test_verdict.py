"""Every way in which a run can end, as the real CLI shows it (see "Judging a run")."""

from __future__ import annotations

from typing import Any

import pytest

from escalation.agent.process import Ended, Manner, StopAsked
from escalation.agent.stream import StreamFacts
from escalation.run.finish import Judgement, RunVerdict, judge
from tests.tables import each_row

GOOD = {"type": "result", "subtype": "success", "is_error": False}


def judged(
    result: dict[str, Any] | None = None,
    *,
    exit_code: int = 0,
    manner: Manner = Manner.EXITED,
    why: str = "",
    stderr: str = "",
    tier: int = 2,
) -> RunVerdict:
    facts = StreamFacts()
    if result is not None:
        facts.observe({"type": "result", **result})
    stop = StopAsked("person", why) if why else None
    ended = Ended(exit_code=exit_code, manner=manner, stop=stop)
    return judge(facts, ended, tier=tier, timeout_seconds=900, stderr=stderr)


def failed(subtype: str = "success", **fields) -> dict[str, Any]:
    return {"subtype": subtype, "is_error": True, **fields}


def test_exit_0_and_a_good_result_is_a_success():
    assert judged(GOOD) == RunVerdict(judgement=Judgement.WENT_WELL)


@each_row(
    ("result", "exit_code"),
    [
        (None, 0),
        (None, 1),
        (GOOD, 1),
        (GOOD, -15),
        (failed(), 0),
        (failed(), 1),
        (failed("error_during_execution"), 1),
        (failed("error_max_turns"), 1),
        ({"subtype": "success"}, 0),
        ({"subtype": "success", "is_error": None}, 0),
        ({"subtype": "success", "is_error": "false"}, 0),
        ({"subtype": "success", "is_error": 0}, 0),
        ({"subtype": "error_during_execution", "is_error": False}, 0),
        ({"subtype": None, "is_error": False}, 0),
        ({"is_error": False}, 0),
        ({"subtype": ["success"], "is_error": False}, 0),
    ],
)
def test_any_missing_sign_of_success_is_a_failure_with_a_message(result, exit_code):
    verdict = judged(result, exit_code=exit_code)

    assert verdict.judgement == Judgement.FAILED
    assert verdict.error


def test_api_failure_with_success_subtype_and_is_error_is_a_failure():
    verdict = judged(failed(result="API Error: 500 internal"), exit_code=1)

    assert verdict.judgement == Judgement.FAILED
    assert "status 500" in verdict.error
    assert "API Error: 500 internal" in verdict.error


def test_sigint_with_exit_0_and_no_result_is_a_failure():
    verdict = judged(None, exit_code=0)

    assert "exited with code 0 without a result" in verdict.error


@pytest.mark.parametrize("signal", [9, 15])
def test_a_killed_run_is_interrupted_with_the_name_of_the_signal(signal):
    verdict = judged(None, exit_code=-signal)

    assert verdict.judgement == Judgement.KILLED
    assert f"killed by signal {signal}" in verdict.error


def test_prompt_too_long_is_a_failure_that_quotes_it():
    too_long = failed(result="Prompt is too long", terminal_reason="prompt_too_long")

    assert "Prompt is too long" in judged(too_long, exit_code=1).error


def test_a_good_result_without_structured_output_is_a_success():
    assert judged({**GOOD, "result": "All is well."}).judgement == Judgement.WENT_WELL


@pytest.mark.parametrize(
    ("subtype", "advice"),
    [
        ("error_max_turns", "CLAUDEOPS_TIER2_MAX_TURNS"),
        ("error_max_budget_usd", "CLAUDEOPS_TIER2_MAX_BUDGET_USD"),
        ("error_max_structured_output_retries", "valid report"),
    ],
)
def test_a_limit_names_its_setting(subtype, advice):
    verdict = judged(failed(subtype), exit_code=1)

    assert advice in verdict.error


@each_row(
    ("status", "advice"),
    [
        (400, "invalid"),
        (401, "ANTHROPIC_API_KEY"),
        (403, "permissions"),
        (404, "model"),
        (413, "too large"),
        (429, "rate limit"),
        (500, "status 500"),
        (529, "overloaded"),
    ],
)
def test_an_api_status_becomes_advice_whether_in_a_field_or_in_text(status, advice):
    stated = judged(failed(api_error_status=status), exit_code=1)
    written = judged(failed(result=f"API Error: {status} {{}}"), exit_code=1)
    in_brackets = judged(failed(result=f"API Error ({status})"), exit_code=1)

    assert all(advice in verdict.error for verdict in (stated, written, in_brackets))


@pytest.mark.parametrize(
    "text", ["Unable to connect to API (ECONNREFUSED)", "Connection error.", "ECONNREFUSED"]
)
def test_an_unreachable_api_names_the_address_to_check(text):
    assert "ANTHROPIC_BASE_URL" in judged(failed(result=text), exit_code=1).error


def test_an_unknown_conversation_is_a_failure_that_quotes_the_cli():
    dead = failed("error_during_execution", num_turns=0)

    verdict = judged(dead, exit_code=1, stderr="No conversation found with session ID: dead\n")

    assert verdict.error.endswith("Output: No conversation found with session ID: dead")


def test_the_errors_of_a_result_are_quoted():
    verdict = judged(failed("error_during_execution", errors=["one", {"two": 2}]), exit_code=1)

    assert "one; {'two': 2}" in verdict.error


def test_a_time_limit_names_its_setting():
    verdict = judged(None, exit_code=-15, manner=Manner.TIMED_OUT, tier=3)

    assert verdict.judgement == Judgement.TIMED_OUT
    assert "900 s" in verdict.error
    assert "CLAUDEOPS_TIER3_TIMEOUT" in verdict.error


def test_a_requested_stop_names_who_asked():
    verdict = judged(None, exit_code=-15, manner=Manner.STOPPED, why="the operator")

    assert verdict == RunVerdict(judgement=Judgement.STOPPED, error="Stopped: the operator.")


@pytest.mark.parametrize("result", [None, GOOD])
def test_a_run_that_caused_its_stop_has_failed(result):
    facts = StreamFacts()
    if result:
        facts.observe(result)
    stop = StopAsked("unguarded", "A command ran undecided.", by_fault=True)
    ended = Ended(exit_code=-15, manner=Manner.STOPPED, stop=stop)

    verdict = judge(facts, ended, tier=1, timeout_seconds=900, stderr="")

    assert verdict == RunVerdict(judgement=Judgement.FAILED, error="A command ran undecided.")


@pytest.mark.parametrize("manner", [Manner.STOPPED, Manner.TIMED_OUT])
def test_a_stopped_run_with_an_error_result_counts_as_stopped(manner):
    verdict = judged(failed("error_during_execution"), exit_code=1, manner=manner, why="x")

    assert verdict.judgement in {Judgement.STOPPED, Judgement.TIMED_OUT}


@pytest.mark.parametrize("manner", [Manner.LINGERED, Manner.TIMED_OUT, Manner.STOPPED])
def test_a_good_result_counts_even_if_the_process_had_to_be_stopped_after_it(manner):
    assert judged(GOOD, exit_code=-15, manner=manner).judgement == Judgement.WENT_WELL


def test_a_long_stderr_is_shortened():
    assert len(judged(None, exit_code=1, stderr="x" * 100_000).error) < 2500


def test_only_the_last_of_several_results_is_judged():
    facts = StreamFacts()
    facts.observe(GOOD)
    facts.observe({"type": "result", **failed("error_max_turns")})

    verdict = judge(
        facts,
        Ended(exit_code=1, manner=Manner.EXITED),
        tier=1,
        timeout_seconds=900,
        stderr="",
    )

    assert verdict.judgement == Judgement.FAILED


@each_row("odd", [None, True, 7, [], {}, [None], {"a": 1}, ""])
def test_malformed_fields_never_raise(odd):
    result = {"subtype": odd, "is_error": odd, "result": odd, "errors": odd}

    assert judged({**result, "api_error_status": odd}, exit_code=1).error
