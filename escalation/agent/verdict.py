"""The verdict on a run, from its exit code and its result line.

A run succeeded if the process exited with 0 and its result line says success and no error. The
report is checked separately (`escalation.report`), because a run can be asked for a missing one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from escalation.agent.process import Ended, Manner
from escalation.agent.stream import StreamFacts
from sessions_app.credentials import API_KEY
from sessions_app.redaction.redact import redacted

API_ADVICE = {
    400: "The API refused the request as invalid.",
    401: f"The API refused the key. Check {API_KEY}.",
    403: "The API key may not use this model or feature. Check its permissions.",
    404: "The API does not know this model or address. Check the tier's model and "
    "ANTHROPIC_BASE_URL.",
    413: "The request was too large for the API.",
    429: "The API's rate limit was reached. Wait, or run fewer cycles at once.",
    529: "The API is overloaded. The next cycle will try again.",
}
LIMIT_ADVICE = {
    "error_max_turns": "The run used up its turns. Raise CLAUDEOPS_TIER{tier}_MAX_TURNS, or narrow "
    "what the watch asks for.",
    "error_max_budget_usd": "The run used up its budget. Raise CLAUDEOPS_TIER{tier}_MAX_BUDGET_USD "
    "if it should be allowed to spend more, or the budget that left it so little.",
    "error_max_structured_output_retries": "The model could not write a valid report.",
}
UNREACHABLE = re.compile(
    r"(?i:unable to connect|connection (?:error|refused|reset|timed out))"
    r"|\bECONN|\bENOTFOUND|\bEAI_AGAIN"
)
ERROR_TEXT_LENGTH = 2000


class Judgement(StrEnum):
    WENT_WELL = "went well"
    FAILED = "failed"
    TIMED_OUT = "timed out"
    STOPPED = "stopped"
    """A person or the supervisor asked for it."""
    KILLED = "killed"
    """Ended from outside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunVerdict:
    judgement: Judgement
    error: str = ""
    resume_refused: bool = False
    """The CLI did not resume the conversation; nothing was done."""
    conversation_broken: bool = False
    """The API refuses the history of this conversation."""
    turn_limit: bool = False
    budget_spent: bool = False
    """The CLI stopped at its budget."""


def judge(
    facts: StreamFacts,
    ended: Ended,
    *,
    tier: int,
    timeout_seconds: int,
    stderr: str,
    resumed: bool = False,
) -> RunVerdict:
    result = facts.result
    by_fault = ended.stop is not None and ended.stop.by_fault
    says_well = result.get("subtype") == "success" and result.get("is_error") is False
    if says_well and not by_fault:
        return _with_good_result(ended, stderr)
    if cut_short := _cut_short(ended, result, tier, timeout_seconds, stderr):
        return cut_short
    verdict = (
        RunVerdict(judgement=Judgement.FAILED, error=_failure(result, tier, stderr))
        if result
        else _without_result(ended, stderr)
    )
    broken = _breaks_conversation(result, stderr)
    return replace(
        verdict,
        conversation_broken=broken,
        resume_refused=resumed
        and not facts.answered
        and ended.exit_code != 0
        and (broken or not _is_api_failure(result, stderr)),
        turn_limit=result.get("subtype") == "error_max_turns",
        budget_spent=result.get("subtype") == "error_max_budget_usd",
    )


def _cut_short(
    ended: Ended, result: dict[str, Any], tier: int, timeout_seconds: int, stderr: str
) -> RunVerdict | None:
    """Return the verdict on a run that did not end by itself."""
    match ended.manner:
        case Manner.STOPPED:
            if ended.stop and ended.stop.by_fault:
                return RunVerdict(judgement=Judgement.FAILED, error=ended.stop.words)
            words = ended.stop.words if ended.stop else "no reason given"
            return RunVerdict(judgement=Judgement.STOPPED, error=f"Stopped: {words}.")
        case Manner.EXITED if ended.exit_code is not None and ended.exit_code < 0:
            return RunVerdict(
                judgement=Judgement.KILLED,
                error=f"The CLI was killed by signal {-ended.exit_code}. What it did until then is "
                "in the events." + _quoted(stderr),
            )
        case Manner.RUNNER_GONE if not result:
            return RunVerdict(
                judgement=Judgement.KILLED,
                error="The process that ran this session was ended from outside." + _quoted(stderr),
            )
        case Manner.CRASHED:
            return RunVerdict(judgement=Judgement.FAILED, error=ended.why)
        case Manner.ABANDONED:
            return RunVerdict(judgement=Judgement.STOPPED, error=ended.why)
        case Manner.SILENT:
            return RunVerdict(
                judgement=Judgement.TIMED_OUT,
                error=f"The run had no output for {ended.silent_seconds:.0f} s and was stopped. "
                "Raise CLAUDEOPS_IDLE_TIMEOUT, or CLAUDEOPS_TOOL_IDLE_TIMEOUT for commands that "
                "take longer." + _quoted(stderr),
            )
        case Manner.TIMED_OUT:
            return RunVerdict(
                judgement=Judgement.TIMED_OUT,
                error=f"The run was stopped at its limit of {timeout_seconds} s. "
                f"Raise CLAUDEOPS_TIER{tier}_TIMEOUT if it needs longer." + _quoted(stderr),
            )
    return None


def _with_good_result(ended: Ended, stderr: str) -> RunVerdict:
    """Accept a good result unless the process exited by itself with another code than 0."""
    if ended.manner == Manner.EXITED and ended.exit_code != 0:
        return RunVerdict(
            judgement=Judgement.FAILED,
            error=f"The CLI reported success but exited with code {ended.exit_code}."
            + _quoted(stderr),
        )
    return RunVerdict(judgement=Judgement.WENT_WELL)


def _without_result(ended: Ended, stderr: str) -> RunVerdict:
    return RunVerdict(
        judgement=Judgement.FAILED,
        error=f"The CLI exited with code {ended.exit_code} without a result. What it did until "
        "then is in the events." + _quoted(stderr),
    )


def _breaks_conversation(result: dict[str, Any], stderr: str) -> bool:
    detail = _detail(result, stderr)
    return (
        result.get("terminal_reason") == "prompt_too_long"
        or "prompt is too long" in detail.lower()
        or _api_status(result, detail) == 400
    )


def _is_api_failure(result: dict[str, Any], stderr: str) -> bool:
    """Return whether the API failed, which says nothing about the conversation."""
    detail = _detail(result, stderr)
    return bool(_api_status(result, detail)) or _is_unreachable(detail)


def _is_unreachable(detail: str) -> bool:
    return bool(UNREACHABLE.search(detail))


def _detail(result: dict[str, Any], stderr: str) -> str:
    said = result.get("result")
    return said if isinstance(said, str) and said else _listed(result.get("errors")) or stderr


def _failure(result: dict[str, Any], tier: int, stderr: str) -> str:
    detail = _detail(result, stderr)
    subtype = str(result.get("subtype"))
    if advice := LIMIT_ADVICE.get(subtype):
        return advice.format(tier=tier) + _quoted(detail)
    status = _api_status(result, detail)
    if status:
        advice = API_ADVICE.get(status, f"The API failed with status {status}.")
        return advice + _quoted(detail)
    if _is_unreachable(detail):
        return "The API cannot be reached. Check the network and ANTHROPIC_BASE_URL." + _quoted(
            detail
        )
    return f"The CLI ended in an error ({subtype})." + _quoted(detail)


def _api_status(result: dict[str, Any], detail: str) -> int:
    stated = result.get("api_error_status")
    if isinstance(stated, int) and not isinstance(stated, bool):
        return stated
    found = re.search(r"API Error:? \(?(\d{3})\b", detail)
    return int(found[1]) if found else 0


def _listed(errors: Any) -> str:
    return "; ".join(str(error) for error in errors) if isinstance(errors, list) else ""


def _quoted(text: str) -> str:
    """Redact before cutting: half a secret would not be recognized."""
    cut = redacted(text.strip())[:ERROR_TEXT_LENGTH]
    return f" Output: {cut}" if cut else ""
