"""The one room that knows this agent's CLI: its command line, its stream, its files, its habits.

The names below are all that the rest of the program may use of it, and a test holds that. They say
what a supervisor needs from any agent that runs as a process (find it, start it, read it, judge its
end, keep its conversation), so that another agent's CLI could stand behind them one day.
"""

from escalation.agent import transcript_files
from escalation.agent.account_limit import AccountLimit, LimitSigns, Window, limit_in, windows_in
from escalation.agent.argv import RunRequest, build_argv, conversation_id
from escalation.agent.bell import Bell
from escalation.agent.binary import ClaudeBinary, find_binary, fingerprint_of, locate_binary
from escalation.agent.capabilities import (
    Capabilities,
    capabilities_of,
    forget_capabilities,
    known_capabilities,
)
from escalation.agent.context import default_window, occupancy_of
from escalation.agent.environment import (
    CREDENTIALS,
    NO_CREDENTIALS,
    cli_environment,
    credential_in,
    credentials_configured,
    has_credentials,
    login_from,
)
from escalation.agent.login_probe import try_login
from escalation.agent.message_stream import NO_USAGE, Answer, ToolCall, error_body, usage_of
from escalation.agent.messages_server import (
    MessagesHandler,
    is_auxiliary,
    opening_words,
    serve_messages,
)
from escalation.agent.process import Ended, Manner, StopAsked, Traces, Watcher, run_process
from escalation.agent.process_tree import (
    ProcessId,
    boot_id,
    family,
    process_id,
    recorded_tools,
    started_at,
    stop_family,
)
from escalation.agent.stream import (
    COST_STEP,
    LineSplitter,
    StreamFacts,
    StreamLine,
    Tokens,
    parse_line,
    storable,
    tokens_in,
)
from escalation.agent.transcript_files import Entry
from escalation.agent.verdict import Judgement, Verdict, judge

__all__ = [
    # the program, and what it can do
    "Capabilities",
    "ClaudeBinary",
    "capabilities_of",
    "find_binary",
    "fingerprint_of",
    "forget_capabilities",
    "known_capabilities",
    "locate_binary",
    # one run of it: command line, environment, process, what is left of its family
    "CREDENTIALS",
    "NO_CREDENTIALS",
    "Bell",
    "Ended",
    "Manner",
    "ProcessId",
    "RunRequest",
    "StopAsked",
    "Traces",
    "Watcher",
    "boot_id",
    "build_argv",
    "cli_environment",
    "conversation_id",
    "credential_in",
    "credentials_configured",
    "family",
    "has_credentials",
    "process_id",
    "login_from",
    "try_login",
    "recorded_tools",
    "run_process",
    "started_at",
    "stop_family",
    # what it says, what that means, and what it leaves on disk
    "AccountLimit",
    "COST_STEP",
    "Entry",
    "Judgement",
    "LimitSigns",
    "LineSplitter",
    "StreamFacts",
    "StreamLine",
    "Tokens",
    "Verdict",
    "Window",
    "default_window",
    "judge",
    "limit_in",
    "occupancy_of",
    "parse_line",
    "storable",
    "tokens_in",
    "transcript_files",
    "windows_in",
    # the other side of its API, for those who play it
    "Answer",
    "MessagesHandler",
    "NO_USAGE",
    "ToolCall",
    "error_body",
    "is_auxiliary",
    "opening_words",
    "serve_messages",
    "usage_of",
]
