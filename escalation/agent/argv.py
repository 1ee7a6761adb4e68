"""The command line of one run. Every flag is given on every run: the CLI inherits none of them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal

from escalation.agent.binary import FORK_FLAG, ClaudeBinary
from escalation.tiers import Tier

# The CLI deletes transcripts after 30 days by itself; a conversation that can be resumed is kept.
RUN_SETTINGS = json.dumps({"cleanupPeriodDays": 3650})
# A child of the CLI could read the run's token there.
NO_ENVIRONMENT = ("Read(//proc/*/environ)", "Read(//proc/*/task/**)")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRequest:
    tier: Tier
    session_id: str
    """The id that this run's conversation is to have: chosen by us, lower case."""
    resumes: str | None
    """The id of the conversation to continue; None begins a new one."""
    report_schema: str | None
    """None where no report is expected."""
    max_budget_usd: Decimal
    """What is left of the tier's budget."""
    is_kept: bool = True
    """The conversation is saved, so that it can be continued."""
    sealed: str = ""
    """The CLI's own configuration, conversations included: its tools have no business there."""


def build_argv(binary: ClaudeBinary, request: RunRequest) -> list[str]:
    """The prompt is not here: it goes by stdin, where no variadic flag can swallow it."""
    tier = request.tier
    return [
        binary.path,
        "-p",
        *_conversation_flags(binary, request),
        *(() if request.is_kept or not binary.can_forget else ("--no-session-persistence",)),
        *("--model", tier.model),
        *("--output-format", "stream-json", "--verbose"),
        *(("--json-schema", request.report_schema) if request.report_schema else ()),
        *("--max-turns", str(tier.max_turns)),
        *("--max-budget-usd", f"{request.max_budget_usd:f}"),
        *("--permission-mode", "dontAsk"),
        *("--setting-sources", ""),
        *("--settings", RUN_SETTINGS),
        "--strict-mcp-config",
        *("--tools", ",".join(tier.tool_names)),
        *("--allowedTools", ",".join(tier.allowed_tools)),
        *("--disallowedTools", ",".join((*tier.disallowed_tools, *_sealed(request.sealed)))),
    ]


def _sealed(directory: str) -> tuple[str, ...]:
    """In its room the CLI must be able to write these itself; a rule keeps its tools from it."""
    return (f"Edit(/{directory}/**)", *NO_ENVIRONMENT) if directory else NO_ENVIRONMENT


def conversation_id(binary: ClaudeBinary, request: RunRequest) -> str:
    """The id to expect in the stream: a CLI that cannot fork keeps the resumed one."""
    if request.resumes and not binary.can_fork:
        return request.resumes
    return request.session_id


def _conversation_flags(binary: ClaudeBinary, request: RunRequest) -> list[str]:
    if not request.resumes:
        return ["--session-id", request.session_id]
    resume = ["--resume", request.resumes]
    if not binary.can_fork:
        return resume
    return [*resume, FORK_FLAG, "--session-id", request.session_id]
