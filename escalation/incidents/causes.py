"""The names of all that is wrong without being a service: why nothing could run, how a run ended.

They are kept apart from the names of services by a sign that no service's spelling has. A cause is
looked up by what is known of a run, never by a sentence.
"""

from __future__ import annotations

from enum import StrEnum

from escalation.errors import WhyNot
from sessions_app.models import Incident, Session

Severity, Status, StopCause = Incident.Severity, Session.Status, Session.StopCause

INSTALLATION = "installation"
EVERYWHERE = frozenset(
    {
        WhyNot.NO_CREDENTIALS,
        WhyNot.CLI,
        WhyNot.PROMPTS,
        WhyNot.WALLS,
        WhyNot.WAY_TO_THE_API,
        WhyNot.WORKER,
    }
)
"""What keeps every watch from running: one incident of the installation."""

COULD_NOT_RUN = {
    WhyNot.NO_CREDENTIALS: "Nothing can run: there are no credentials",
    WhyNot.CLI: "Nothing can run: the claude CLI cannot be used",
    WhyNot.PROMPTS: "Nothing can run: a prompt is missing or broken",
    WhyNot.WALLS: "Nothing can run: the walls cannot be put up",
    WhyNot.WAY_TO_THE_API: "Nothing can run: the way to the API is misconfigured",
    WhyNot.WORKER: "Nothing was started: no worker took it",
    WhyNot.NO_HOST: "It could not run: no host with its label is live",
    WhyNot.WORKDIR: "It could not run: the working directory cannot be used",
    WhyNot.POLICY: "It could not run: the policy forbids the tier",
    WhyNot.BUDGET: "It could not run: a budget is spent",
    WhyNot.FAILED: "It could not run: the CLI failed before it said anything",
}


class RunCause(StrEnum):
    """Why a round told nothing of the system, or nothing that has a name."""

    STOPPED = "#stopped"
    CUT_OFF = "#cut_off"
    TIME_UP = "#time_up"
    SILENT = "#silent"
    BUDGET = "#budget"
    UNGUARDED = "#unguarded"
    ACCOUNT_LIMIT = "#account_limit"
    FAILED = "#failed"
    NO_REPORT = "#no_report"
    NO_SERVICES = "#no_services"
    ASKED_FOR_HELP = "#asked_for_help"
    UNDECIDED = "#undecided"


TITLES = {
    RunCause.STOPPED: "A run was stopped by hand",
    RunCause.CUT_OFF: "A run was cut off and does not continue by itself",
    RunCause.TIME_UP: "A run reached its time limit",
    RunCause.SILENT: "A run said nothing for too long",
    RunCause.BUDGET: "A run spent its budget",
    RunCause.UNGUARDED: "A command ran that the gate had not seen",
    RunCause.ACCOUNT_LIMIT: "The account's limit ended a run too often",
    RunCause.FAILED: "A run failed",
    RunCause.NO_REPORT: "A run ended without a usable report",
    RunCause.NO_SERVICES: "A round reported on no service",
    RunCause.ASKED_FOR_HELP: "A round asked for help and named no service",
    RunCause.UNDECIDED: "A round needs a person",
}
SEVERITIES = {RunCause.STOPPED: Severity.NOTICE, RunCause.UNGUARDED: Severity.CRITICAL}
BY_STOP = {
    StopCause.PERSON: RunCause.STOPPED,
    StopCause.PAUSE: RunCause.STOPPED,
    StopCause.FOREGROUND: RunCause.STOPPED,
    StopCause.WORKER: RunCause.CUT_OFF,
    StopCause.TIME_LIMIT: RunCause.TIME_UP,
    StopCause.SILENCE: RunCause.SILENT,
    StopCause.BUDGET: RunCause.BUDGET,
    StopCause.UNGUARDED: RunCause.UNGUARDED,
    StopCause.ACCOUNT_LIMIT: RunCause.ACCOUNT_LIMIT,
}
BY_STATUS = {
    Status.INTERRUPTED: RunCause.CUT_OFF,
    Status.TIMED_OUT: RunCause.TIME_UP,
    Status.FAILED: RunCause.FAILED,
    Status.COMPLETED: RunCause.NO_REPORT,
}


def run_cause(status: str, stop_cause: str) -> RunCause:
    """How a run ended that left no usable report, by name."""
    by_stop = BY_STOP.get(StopCause(stop_cause)) if stop_cause else None
    return by_stop or BY_STATUS.get(Status(status), RunCause.UNDECIDED)


def is_of_a_run(cause: str) -> bool:
    return cause.startswith("#")
