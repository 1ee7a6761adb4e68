"""The one room that knows this agent's CLI: its command line, its stream, its files, its habits.

The names below are all that the rest of the program may use of it, and a test holds that. They say
what a supervisor needs from any agent that runs as a process (find it, start it, read it, judge its
end, keep its conversation), so that another agent's CLI could stand behind them one day.
"""

from escalation.agent import transcript_files
from escalation.agent.argv import RunRequest, build_argv, conversation_id
from escalation.agent.binary import ClaudeBinary, find_binary, fingerprint_of, locate_binary
from escalation.agent.capabilities import capabilities_of, forget_capabilities
from escalation.agent.context import default_window, occupancy_of
from escalation.agent.environment import (
    CREDENTIALS,
    NO_CREDENTIALS,
    cli_environment,
    credentials_configured,
    has_credentials,
)
from escalation.agent.message_stream import NO_USAGE, Answer, ToolCall, usage_of
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
    recorded_tools,
    started_at,
    stop_family,
)
from escalation.agent.stream import (
    COST_STEP,
    StreamFacts,
    StreamLine,
    Tokens,
    parse_line,
    storable,
)
from escalation.agent.transcript_files import Entry
from escalation.agent.verdict import Judgement, Verdict, judge

__all__ = [
    # the program, and what it can do
    "ClaudeBinary",
    "capabilities_of",
    "find_binary",
    "fingerprint_of",
    "forget_capabilities",
    "locate_binary",
    # one run of it: command line, environment, process, what is left of its family
    "CREDENTIALS",
    "NO_CREDENTIALS",
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
    "credentials_configured",
    "family",
    "has_credentials",
    "recorded_tools",
    "run_process",
    "started_at",
    "stop_family",
    # what it says, what that means, and what it leaves on disk
    "COST_STEP",
    "Entry",
    "Judgement",
    "StreamFacts",
    "StreamLine",
    "Tokens",
    "Verdict",
    "default_window",
    "judge",
    "occupancy_of",
    "parse_line",
    "storable",
    "transcript_files",
    # the other side of its API, for those who play it
    "Answer",
    "MessagesHandler",
    "NO_USAGE",
    "ToolCall",
    "is_auxiliary",
    "opening_words",
    "serve_messages",
    "usage_of",
]
