"""Expected failures and refusals. Each message tells the operator what to do."""

from __future__ import annotations

from enum import StrEnum


class WhyNot(StrEnum):
    """Causes for which a session could not run. Incidents are opened by cause, not by message."""

    NO_CREDENTIALS = "no_credentials"
    CLI = "cli"
    PROMPTS = "prompts"
    SANDBOX = "sandbox"
    WAY_TO_THE_API = "way_to_the_api"
    WORKER = "worker"
    NO_HOST = "no_host"
    WORKDIR = "workdir"
    POLICY = "policy"
    APPROVAL = "approval"
    BUDGET = "budget"
    """The budget of a day or a month. `BudgetNotice` records its notification."""
    CHAIN_BUDGET = "chain_budget"
    CONVERSATION = "conversation"
    DRILL = "drill"
    CRASH = "crash"
    FAILED = "failed"


class CannotRun(Exception):
    """The session cannot start. Nothing was spent and nothing was changed.

    The title of the incident follows from the cause.
    """

    def __init__(self, message: object, why_not: WhyNot) -> None:
        super().__init__(message)
        self.why_not = why_not


class CliMissing(CannotRun):
    """No usable `claude` was found."""

    def __init__(self, message: object) -> None:
        super().__init__(message, WhyNot.CLI)


class PromptMissing(CannotRun):
    """A prompt file is missing or cannot be filled in."""

    def __init__(self, message: object) -> None:
        super().__init__(message, WhyNot.PROMPTS)


class Postponed(Exception):
    """The session must not start yet. It keeps waiting, and nothing has happened."""


class RefusalCode(StrEnum):
    """Reasons for refusing what a person or a schedule asked for. The message is for people."""

    NOT_PERMITTED = "not_permitted"
    ACCOUNT_MISSING = "account_missing"
    OWN_REQUEST = "own_request"
    """The requester of an unattended run may not approve it."""
    TEXT_MISSING = "text_missing"
    TEXT_TOO_LONG = "text_too_long"
    INVALID_CHOICE = "invalid_choice"
    """A value that the form, the tier or the incident does not allow."""
    POLICY = "policy"
    BUDGET = "budget"
    WATCH_REMOVED = "watch_removed"
    MANIFEST_CHANGED = "manifest_changed"
    """The file has changed since the person looked at it."""
    CYCLE_ACTIVE = "cycle_active"
    SESSION_STATUS = "session_status"
    """The status of the session does not allow it."""
    NO_CONVERSATION = "no_conversation"
    NO_TERMINAL = "no_terminal"
    PAUSED = "paused"
    NOT_SUPPORTED = "not_supported"
    """The CLI of the session cannot do it."""
    PLAN_REQUESTED = "plan_requested"
    APPROVAL_ANSWERED = "approval_answered"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_WITHDRAWN = "approval_withdrawn"
    CHANGE_NOT_KEPT = "change_not_kept"
    """The content of the file before the change is not kept."""
    CHANGE_UNDONE = "change_undone"
    FILE_CHANGED = "file_changed"
    """The file is not as the session left it."""
    OTHER_HOST = "other_host"
    INCIDENT_STATE = "incident_state"
    """The state of the incident does not allow it."""
    INCIDENT_RESOLVED = "incident_resolved"
    INCIDENT_UNCHANGED = "incident_unchanged"
    """The incident already is as requested."""
    INCIDENT_DUPLICATE = "incident_duplicate"
    """Another unresolved incident has the same cause."""

    # Refusals of commands.
    NOT_FOUND = "not_found"
    """The database has no row with this name or number."""
    INVALID_ARGUMENTS = "invalid_arguments"
    NOT_CONFIRMED = "not_confirmed"
    CONFIGURATION = "configuration"
    """A system check reports an error."""
    DATABASE = "database"
    """The database does not answer, or belongs to another version."""
    NEWER_DATABASE = "newer_database"
    DATABASE_ENCODING = "database_encoding"
    IN_USE = "in_use"
    """A worker, a session or another process uses the installation."""
    RECORD_EXISTS = "record_exists"
    FILE = "file"
    """A file exists already, or cannot be read or written."""
    CANNOT_LISTEN = "cannot_listen"
    NOT_DELIVERED = "not_delivered"
    SCENARIO = "scenario"
    NOT_INSTALLED = "not_installed"


class OperationRefused(Exception):
    """Refuses what a person or a schedule asked for; the message says what to do."""

    def __init__(self, code: RefusalCode, message: object) -> None:
        super().__init__(message)
        self.code = code


class CycleActive(OperationRefused):
    """The watch has an active cycle; a second one would work against it."""

    def __init__(self, message: object) -> None:
        super().__init__(RefusalCode.CYCLE_ACTIVE, message)


class RecordTooThin(Exception):
    """There is nothing to hand over: the tier before must run again first."""
