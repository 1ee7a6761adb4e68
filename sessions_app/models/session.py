"""Sessions and their events, with the choices and the status transitions of a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import IntegrityError, models, transaction
from django.db.models import F
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property

from sessions_app.models.autonomy import Policy
from sessions_app.models.costs import COUNTED_FIELDS, PeriodCost
from sessions_app.models.cycle import Cycle
from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.installation import shared_now
from sessions_app.models.telemetry import MetricTotal
from sessions_app.models.watch import Watch
from sessions_app.tiers import tier_choices


class Purpose(models.TextChoices):
    """Reason for which a session was started; `TRAITS` states what each one implies."""

    TIER = "tier", "tier"
    REPORT = "report", "repeated request for the report"
    CONTINUATION = "continuation", "continued after its turn limit"
    FINDINGS = "findings", "repeated for its findings"
    FOLLOW_UP = "follow_up", "follow-up question"
    FORK = "fork", "another approach"
    RETRY = "retry", "retry"
    RECOVERY = "recovery", "continued after an interruption"
    PLAN = "plan", "plan, without changes"
    ATTACHED = "attached", "attached in a terminal"

    @property
    def traits(self) -> Traits:
        return TRAITS[self]


@dataclass(frozen=True, slots=True)
class Traits:
    """Properties of a purpose. None has a default, so a new purpose must state all of them."""

    counts_as_evidence: bool
    """Incidents, service states, cooldowns and the circuit breaker are derived from its report
    and its end."""
    may_change: bool
    """May change the system, within its tier and the policy."""
    is_question: bool
    """Answers an operator's question read-only, without a report."""
    is_plan: bool
    """Plans the actions of a tier that waits for approval."""
    ends_cycle: bool
    """Ends the cycle if no other session follows."""
    continues_tier: bool
    """Continues work of its tier under the approval that the tier already has."""
    spends_tier_budget: bool
    """Has the remaining budget of its tier instead of the whole one."""
    starts_branch: bool
    """Starts a new branch of the chain."""
    looks_back: bool
    """Is about finished work and gets no new work."""
    is_compared: bool
    """Counts in the comparison of resume and handoff."""
    is_interactive: bool
    """Is held by a person in a terminal: without a prompt and a report, and nothing follows it."""


# fmt: off
_ROWS: Mapping[Purpose, tuple[int, ...]] = {
    # in the order of the fields:
    # evidence, change, question, plan, ends, continues, budget, branch, looks back, compared,
    # interactive
    Purpose.TIER:         (1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0),
    Purpose.REPORT:       (1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0),
    Purpose.CONTINUATION: (1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0),
    Purpose.FINDINGS:     (1, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0),
    Purpose.FOLLOW_UP:    (0, 0, 1, 0, 1, 0, 0, 1, 1, 0, 0),
    Purpose.FORK:         (1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0),
    Purpose.RETRY:        (1, 1, 0, 0, 1, 0, 0, 1, 0, 1, 0),
    Purpose.RECOVERY:     (1, 1, 0, 0, 1, 1, 1, 0, 0, 0, 0),
    Purpose.PLAN:         (0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0),
    Purpose.ATTACHED:     (0, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1),
}
# fmt: on
TRAITS: Mapping[Purpose, Traits] = {
    purpose: Traits(*map(bool, row)) for purpose, row in _ROWS.items()
}


def purposes_where(holds: Callable[[Traits], bool]) -> tuple[Purpose, ...]:
    """Return the purposes whose traits satisfy a condition, for queries."""
    return tuple(purpose for purpose in Purpose if holds(purpose.traits))


NO_EVIDENCE = purposes_where(lambda traits: not traits.counts_as_evidence)


class ContinuedBy(models.TextChoices):
    FRESH = "fresh", "fresh conversation"
    RESUME = "resume", "resumed conversation"
    HANDOFF = "handoff", "handoff"


class CostBasis(models.TextChoices):
    OWN_SHARE = "own_share", "reported by the CLI for this session"
    PER_RUN = "per_run", "reported by a CLI that counts each session separately"
    DIFFERENCE = "difference", "reported total minus the total of the parent"
    TELEMETRY = "telemetry", "reported by the CLI for each answer, without a result"
    MEASURED = "measured", "measured: counted tokens at the prices of the CLI, without a result"
    ESTIMATE = "estimate", "estimated from the stream, without a result"
    UNKNOWN = "unknown", "unknown, without a result"


class StopCause(models.TextChoices):
    """Reason for which a session was stopped early. `stop_requested` adds a text for people."""

    PERSON = "person", "stopped by a person"
    PAUSE = "pause", "Claude Ops was paused"
    WORKER = "worker", "the worker was stopped"
    FOREGROUND = "foreground", "the command in the terminal ended"
    TIME_LIMIT = "time_limit", "time limit reached"
    SILENCE = "silence", "idle for too long"
    BUDGET = "budget", "budget spent"
    UNGUARDED = "unguarded", "a command ran without the command policy"
    RATE_LIMIT = "rate_limit", "rate limit reached"
    TOLD = "told", "stopped to be told something"
    """By a person; the session that continues it gets the message."""


ENDINGS = frozenset({"completed", "escalated", "failed", "timed_out", "interrupted", "cancelled"})

# Every change of a status is checked against this table of transitions.
ALLOWED: Mapping[str, frozenset[str]] = {
    "queued": frozenset({"running", "awaiting_approval", "cancelled", "failed", "expired"}),
    "awaiting_approval": frozenset({"queued", "cancelled", "expired"}),
    # Back to the queue if Claude Ops was paused before the process started.
    "running": ENDINGS | {"queued"},
    # An operator may escalate a finished session.
    "completed": frozenset({"escalated"}),
    "failed": frozenset({"escalated"}),
    "timed_out": frozenset({"escalated"}),
    # An interrupted session may be continued until its conversation expires.
    "interrupted": frozenset({"escalated", "expired"}),
    "escalated": frozenset(),
    "cancelled": frozenset(),
    "expired": frozenset(),
}

# Statuses after which an operator may retry the tier.
RETRIED = frozenset({"failed", "timed_out", "interrupted", "cancelled"})


class IllegalTransition(Exception):
    """Raised for a change of status that `ALLOWED` does not contain."""


def sources_of(target: str) -> list[str]:
    """Return the statuses from which a session may change to this one."""
    return [status for status, targets in ALLOWED.items() if target in targets]


# Columns that lists do not load.
LONG_FIELDS = (
    *("prompt", "result", "argv", "report", "handoff", "continuation_facts", "branch_reason"),
)


class SessionQuerySet(models.QuerySet["Session"]):
    def real(self) -> SessionQuerySet:
        """Exclude drills, which cost no money."""
        return self.filter(cycle__drill="")

    def drills(self) -> SessionQuerySet:
        """Select drills. They have no watch, so the index on `watch` finds them."""
        return self.filter(watch=None).exclude(cycle__drill="")

    def evidence(self) -> SessionQuerySet:
        """Select sessions whose purpose counts as evidence (see `TRAITS`).

        A branch changes nothing but its own outcome. An exclusion, so that SQLite keeps using the
        index of the other conditions.
        """
        return self.exclude(purpose__in=NO_EVIDENCE).filter(in_branch=False)

    def ask_to_stop(self, cause: str, words: str) -> int:
        """Request that running sessions stop, unless that was requested before.

        Each runner ends its CLI within a second and records the session as interrupted.
        """
        running = self.filter(status="running", stop_cause="")
        return running.update(stop_cause=cause, stop_requested=words[:200])

    def for_list(self) -> SessionQuerySet:
        """Load the columns that a list shows, without the long ones."""
        return self.select_related("cycle__watch").defer(*LONG_FIELDS)


class EventSource(models.TextChoices):
    STREAM = "stream", "stream"
    """A line of the CLI's stdout that is a JSON object."""
    NOISE = "noise", "noise"
    """Any other line of the CLI's stdout."""
    STDERR = "stderr", "stderr"
    SUPERVISOR = "supervisor", "supervisor"
    """An action or a decision of Claude Ops."""


class EventKind(StrEnum):
    """Kinds of events with the source `supervisor`."""

    STATUS = "status"
    """The status changed; the payload has `from` and `to`."""
    STARTED = "started"
    SETTINGS = "settings"
    FALLBACK = "fallback"
    """The conversation could not be resumed."""
    COMMAND = "command"
    """The command policy decided on a command; the payload has the verdict."""
    COMMAND_END = "command_end"
    """A permitted command ended."""
    APPROVAL = "approval"
    """A command waits for approval, or was approved or rejected."""
    COMPACTION = "compaction"
    TOLD = "told"
    """A person told the running session something; the payload has the name in `by`."""
    WARNING = "warning"
    SPOOL = "spool"
    """Spooled events were stored after the database had been unavailable."""
    CANNOT_RUN = "cannot_run"
    CRASH = "crash"
    DECISION = "decision"
    """The supervisor's decision on what follows the session."""
    UNDO = "undo"
    """A person undid an edit of the session."""


class StreamKind(StrEnum):
    """Kinds of lines of the CLI that queries ask for; the CLI has others."""

    ASSISTANT = "assistant"
    USER = "user"
    RESULT = "result"


SPOKEN = (StreamKind.ASSISTANT, StreamKind.USER)
"""Kinds of the lines that form the conversation."""


class Verdict(models.TextChoices):
    """Decision of the command policy on a command."""

    ALLOW = "allow", "allowed"
    """Understood and permitted: runs in a sandbox with the grants that it needs."""
    ISOLATE = "isolate", "isolated"
    """Not understood: runs in a sandbox without grants."""
    DENY = "deny", "denied"
    """Does not run."""
    ASK = "ask", "needs approval"
    """Permitted once a person approves it."""


class DailyVerdict(models.Model):
    """Number of commands with one verdict on one day.

    Updated in the transaction that stores the events (`EventLog`), and kept longer than they are.
    """

    day = models.DateField(help_text="Date in the time zone of the installation.")
    verdict = models.CharField(max_length=20)
    count = models.BigIntegerField(default=0)

    class Meta:
        constraints = [
            # Also the index for the latest days on the sandbox page.
            models.UniqueConstraint(fields=["day", "verdict"], name="one_daily_verdict"),
        ]

    def __str__(self) -> str:
        return f"{self.day}: {self.count} × {self.verdict}"

    @classmethod
    def count_events(cls, events: Sequence[SessionEvent]) -> None:
        judged = (event for event in events if is_verdict(event))
        found = Counter(
            (timezone.localdate(event.created_at), event.payload["verdict"]) for event in judged
        )
        # Sorted, so that concurrent writers lock the rows in the same order.
        for (day, verdict), count in sorted(found.items()):
            cls._add(day, verdict, count)
        by_tier = Counter(
            (event.session.tier, event.payload["verdict"])
            for event in events
            if is_verdict(event) and not event.session.is_drill
        )
        for (tier, verdict), count in sorted(by_tier.items()):
            MetricTotal.add(MetricTotal.Name.DECISIONS, tier, verdict, count=count)

    @classmethod
    def _add(cls, day: date, verdict: str, count: int) -> None:
        row = cls.objects.filter(day=day, verdict=verdict)
        if not row.update(count=F("count") + count):
            cls.objects.get_or_create(day=day, verdict=verdict)
            row.update(count=F("count") + count)


def is_verdict(event: SessionEvent) -> bool:
    return (
        event.source == EventSource.SUPERVISOR
        and event.kind == EventKind.COMMAND
        and isinstance(event.payload, dict)
        and isinstance(event.payload.get("verdict"), str)
        and len(event.payload["verdict"]) <= 20
    )


class EventLog:
    """Appends events to a session and gives them consecutive numbers.

    The last number is cached. If another process (a web request, the recovery) has used the next
    one, it is read from the database again.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._last: int | None = None

    def append(self, events: Sequence[SessionEvent]) -> None:
        try:
            self._insert(events)
        except IntegrityError:
            self._last = None
            self._insert(events)

    def _insert(self, events: Sequence[SessionEvent]) -> None:
        last = self._last_number() if self._last is None else self._last
        for number, event in enumerate(events, start=last + 1):
            event.sequence = number
            event.pk = None  # may be set by a failed attempt
        is_final = not transaction.get_connection().in_atomic_block
        with transaction.atomic():
            self._session.events.model.objects.bulk_create(events)
            DailyVerdict.count_events(events)
        # The outer transaction may still be rolled back.
        self._last = last + len(events) if is_final else None

    def _last_number(self) -> int:
        return self._session.events.aggregate(last=models.Max("sequence"))["last"] or 0


class Session(models.Model):
    """One run of the CLI (`claude -p`) for one tier of a cycle.

    `parent_session` links the sessions of a cycle to a chain. `status` changes only through the
    methods below, each of which checks `ALLOWED` and stores an event.
    """

    class Status(models.TextChoices):
        QUEUED = "queued", "queued"
        RUNNING = "running", "running"
        COMPLETED = "completed", "completed"
        ESCALATED = "escalated", "escalated"
        FAILED = "failed", "failed"
        TIMED_OUT = "timed_out", "timed out"
        INTERRUPTED = "interrupted", "interrupted"
        AWAITING_APPROVAL = "awaiting_approval", "awaiting approval"
        CANCELLED = "cancelled", "cancelled"
        EXPIRED = "expired", "expired"

    Purpose = Purpose
    ContinuedBy = ContinuedBy
    CostBasis = CostBasis
    StopCause = StopCause
    ASKED_TO_STOP = (
        StopCause.PERSON,
        StopCause.PAUSE,
        StopCause.WORKER,
        StopCause.FOREGROUND,
    )
    """Requests from outside; the other causes are limits of the session."""
    NO_FAULT_OF_THE_WATCH = (*ASKED_TO_STOP, StopCause.RATE_LIMIT, StopCause.TOLD)
    OPEN_STATUSES = (Status.QUEUED, Status.RUNNING, Status.AWAITING_APPROVAL)
    FINISHED_STATUSES = (
        Status.COMPLETED,
        Status.FAILED,
        Status.TIMED_OUT,
        Status.INTERRUPTED,
    )
    """Ended, and not escalated."""
    GOOD_STATUSES = (Status.COMPLETED, Status.ESCALATED)

    # Identity
    cycle = models.ForeignKey(Cycle, on_delete=models.CASCADE, related_name="sessions")
    watch = models.ForeignKey(
        Watch,
        on_delete=models.SET_NULL,
        null=True,
        editable=False,
        related_name="sessions",
        db_index=False,  # `session_watch` below
        help_text="Copy of the watch of the cycle, for lists by watch.",
    )
    parent_session = models.ForeignKey(
        "self", on_delete=models.RESTRICT, null=True, blank=True, related_name="children"
    )
    tier = models.PositiveSmallIntegerField(choices=tier_choices)
    purpose = models.CharField(max_length=20, choices=Purpose.choices, default=Purpose.TIER)
    in_branch = models.BooleanField(
        default=False,
        help_text="Tries another approach, or follows a session that does: the cycle keeps its "
        "outcome and its incidents.",
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    request = OutsideTextField(
        blank=True, help_text="The question, instruction or reason that a person gave."
    )
    status = models.CharField(max_length=20, choices=Status.choices, default=Status.QUEUED)
    session_id = models.CharField(
        max_length=100,
        blank=True,
        db_index=True,  # finds the sessions of a conversation
        help_text="Conversation id of the CLI. Not unique: a resumed session may keep it.",
    )

    # Plan
    model = models.CharField("requested model", max_length=100)
    max_turns = models.PositiveIntegerField(
        null=True, blank=True, help_text="Limit of turns, if lower than the limit of the tier."
    )
    max_budget_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Budget in US dollars, if lower than the budget of the tier.",
    )
    prompt = OutsideTextField(blank=True)
    continued_by = models.CharField(
        max_length=20, choices=ContinuedBy.choices, default=ContinuedBy.FRESH
    )
    continued_why = OutsideTextField(blank=True)
    continued_guard = models.CharField(
        max_length=40, blank=True, help_text="Name of the guard that refused resume."
    )
    continuation_facts = OutsideJSONField(
        default=dict, blank=True, help_text="Facts that the decision on resume was based on."
    )
    force_fresh = models.BooleanField(
        default=False, help_text="Start a new conversation by handoff instead of resume."
    )
    allowed_once = models.BooleanField(
        default=False,
        help_text="A person allowed this tier once, whatever the policy of the watch and the "
        "budget of the chain; the approval has the limits.",
    )
    handoff = OutsideJSONField(
        null=True, blank=True, help_text="Handoff that the session started with."
    )

    # Process
    model_used = OutsideCharField(max_length=100, blank=True)
    argv = OutsideJSONField(default=list, blank=True)
    workdir = models.CharField("working directory", max_length=1000, blank=True)
    workdir_identity = models.CharField(
        max_length=64,
        blank=True,
        help_text="Inode and time of creation of the directory, which tell a replaced one.",
    )
    host = models.CharField(max_length=255, blank=True)
    cli_path = models.CharField("CLI", max_length=1000, blank=True)
    cli_version = OutsideCharField("CLI version", max_length=100, blank=True)
    cli_fingerprint = models.CharField(max_length=64, blank=True)
    config_dir = models.CharField("CLI configuration", max_length=1000, blank=True)
    runner_pid = models.PositiveIntegerField(null=True, blank=True)
    runner_started = models.BigIntegerField(null=True, blank=True)
    cli_pid = models.PositiveIntegerField(null=True, blank=True)
    cli_started = models.BigIntegerField(null=True, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    run_mark = models.CharField(max_length=64, blank=True)
    sandbox = OutsideJSONField(
        default=dict,
        blank=True,
        help_text="Sandbox and grants of the session, and the location of the API key.",
    )
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    task_number = models.BigIntegerField(
        null=True,
        editable=False,
        help_text="Id of the last queue task of the session, even if the task is gone.",
    )

    # Cost and tokens
    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True, blank=True)
    reported_cost_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Cost that the CLI printed. Newer versions print that of the conversation.",
    )
    baseline_cost_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Total of the conversation before this session.",
    )
    spent_so_far_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Cost so far, from the tokens that the API proxy counted.",
    )
    estimated_cost_usd = models.DecimalField(
        max_digits=20, decimal_places=10, null=True, blank=True
    )
    cost_basis = models.CharField(max_length=20, choices=CostBasis.choices, blank=True)
    telemetry_cost_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Cost by the telemetry of the CLI, a second count; empty if none was received.",
    )
    telemetry_tokens = models.PositiveBigIntegerField(
        null=True, blank=True, help_text="Tokens by the telemetry of the CLI."
    )
    telemetry_differs = models.BooleanField(
        default=False, help_text="Cost and telemetry differ by more than their rounding."
    )
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cache_read_tokens = models.PositiveBigIntegerField(default=0)
    cache_creation_tokens = models.PositiveBigIntegerField(default=0)
    context_tokens = models.PositiveBigIntegerField(default=0)
    context_window = models.PositiveBigIntegerField(default=0)
    facts_told = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        editable=False,
        help_text="Number of facts in the cycle's evidence when the prompt was written.",
    )
    compactions = models.PositiveIntegerField(default=0)
    turns = models.PositiveIntegerField(default=0)
    messages = models.PositiveIntegerField(default=0)

    # End
    stop_cause = models.CharField(max_length=20, choices=StopCause.choices, blank=True)
    stop_requested = OutsideCharField(
        max_length=200, blank=True, help_text="Who or what requested the stop, for people."
    )
    duration_ms = models.PositiveBigIntegerField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    stop_reason = OutsideCharField(
        max_length=100, blank=True, help_text="Stop reason of the last answer of the model."
    )
    terminal_reason = OutsideCharField(
        max_length=100, blank=True, help_text="Reason of the CLI for ending, if it printed one."
    )
    result = OutsideTextField(blank=True)
    report = OutsideJSONField(null=True, blank=True, encoder=DjangoJSONEncoder)
    escalation_reason = OutsideTextField(
        blank=True, help_text="Why the supervisor escalated after this session, or why it did not."
    )
    error = OutsideTextField(blank=True)
    branch_outcome = models.CharField(
        max_length=20,
        choices=Cycle.Outcome.choices,
        blank=True,
        help_text="Outcome of the branch that this session begins.",
    )
    branch_reason = OutsideTextField(blank=True)

    # Times
    created_at = models.DateTimeField(default=timezone.now)
    waiting_since = models.DateTimeField(
        null=True, blank=True, help_text="Start of waiting for a free slot."
    )
    started_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)
    first_activity_at = models.DateTimeField(null=True, blank=True)
    last_activity_at = models.DateTimeField(null=True, blank=True)

    objects = SessionQuerySet.as_manager()

    class Meta:
        db_table = "sessions"
        ordering = ["-id"]
        indexes = [
            # Session list and admin by status; the worker's query for open sessions.
            models.Index(fields=["status", "-id"], name="session_status"),
            # Budgets: sessions of a period, and those whose cost is not known.
            models.Index(fields=["started_at"], name="session_started"),
            models.Index(
                fields=["started_at"],
                name="session_unpriced",
                condition=models.Q(cost_usd__isnull=True),
            ),
            # `claudeops doctor`: sessions whose second count differs.
            models.Index(
                fields=["-id"],
                name="session_differs",
                condition=models.Q(telemetry_differs=True),
            ),
            # Filters of the session list and of the admin, newest first.
            models.Index(fields=["watch", "-id"], name="session_watch"),
            models.Index(fields=["tier", "-id"], name="session_tier"),
            models.Index(fields=["continued_by", "-id"], name="session_continued"),
            models.Index(fields=["purpose", "-id"], name="session_purpose"),
            models.Index(fields=["continued_guard", "-id"], name="session_guard"),
            models.Index(fields=["cost_basis", "-id"], name="session_basis"),
            models.Index(fields=["model", "-id"], name="session_model"),
            # Comparison of resume and handoff: the newest sessions with a parent.
            models.Index(
                fields=["-id"],
                name="session_step",
                condition=models.Q(parent_session__isnull=False),
            ),
            # Admin's date filter: the first id of a day.
            models.Index(fields=["created_at"], name="session_created"),
        ]

    def __str__(self) -> str:
        return f"Session {self.pk} (Tier {self.tier})"

    def save(self, *args: Any, **options: Any) -> None:
        if self._state.adding:
            self.watch_id = self.cycle.watch_id
        super().save(*args, **options)

    def get_absolute_url(self) -> str:
        return reverse("web:session", args=[self.pk])

    @property
    def is_open(self) -> bool:
        return self.status in self.OPEN_STATUSES

    @property
    def traits(self) -> Traits:
        return self.Purpose(self.purpose).traits

    @property
    def is_question(self) -> bool:
        return self.traits.is_question

    @property
    def is_plan(self) -> bool:
        return self.traits.is_plan

    @property
    def is_interactive(self) -> bool:
        return self.traits.is_interactive

    @property
    def expects_report(self) -> bool:
        return not (self.is_question or self.is_interactive)

    @property
    def counts_as_evidence(self) -> bool:
        """True if `evidence` selects the session."""
        return self.traits.counts_as_evidence and not self.in_branch

    @property
    def resumed(self) -> bool:
        """True if the session continues the conversation of its parent."""
        return self.continued_by == self.ContinuedBy.RESUME

    @property
    def stopped_by(self) -> str:
        """Name of the person who stopped or cancelled the session, or an empty string."""
        ended = self.status in (self.Status.INTERRUPTED, self.Status.CANCELLED)
        by_person = self.stop_cause == self.StopCause.PERSON and not self.is_plan
        return self.stop_requested if ended and by_person else ""

    @property
    def met_rate_limit(self) -> bool:
        return self.stop_cause == self.StopCause.RATE_LIMIT

    @property
    def was_told(self) -> bool:
        """True if it was stopped so that the session that continues it gets a message."""
        return self.stop_cause == self.StopCause.TOLD

    @property
    def is_drill(self) -> bool:
        return bool(self.cycle.drill)

    @property
    def takes_messages(self) -> bool:
        """True if the CLI of the session can be told something while it runs."""
        return "--input-format" in self.argv

    @property
    def can_be_told(self) -> bool:
        """True if a message reaches the session: while it runs, or by a stop and a resume."""
        can_be_continued = self.expects_report and not self.is_plan and not self.cycle.ephemeral
        return self.takes_messages or (bool(self.argv) and can_be_continued)

    @property
    def policy(self) -> Policy:
        """The policy of the cycle, widened for a session that a person allowed once."""
        return self._widened(self.cycle.policy)

    def current_policy(self) -> Policy:
        """Return the policy with the watch read from the database again."""
        return self._widened(self.cycle.current_policy())

    def _widened(self, policy: Policy) -> Policy:
        return policy.allowing(self.tier) if self.allowed_once else policy

    @property
    def total_tokens(self) -> int:
        return (
            self.input_tokens
            + self.output_tokens
            + self.cache_read_tokens
            + self.cache_creation_tokens
        )

    @property
    def context_share(self) -> Decimal | None:
        """Used share of the context window, from 0 to 1."""
        if not self.context_window:
            return None
        return Decimal(self.context_tokens) / Decimal(self.context_window)

    @property
    def telemetry_difference_usd(self) -> Decimal:
        """Difference between the recorded cost and that of the telemetry."""
        return abs((self.cost_usd or Decimal(0)) - (self.telemetry_cost_usd or Decimal(0)))

    @cached_property
    def event_log(self) -> EventLog:
        """Event log of this process for the session."""
        return EventLog(self)

    def claim(self, at: datetime | None = None, **runner: Any) -> bool:
        """Claim a queued session for this process. Return False if it is not queued any more."""
        now = at or timezone.now()
        return self._moved(
            self.Status.RUNNING,
            "taken by a worker",
            started_at=now,
            last_activity_at=now,
            heartbeat_at=shared_now(),
            **runner,
        )

    def put_back(self, reason: str) -> bool:
        """Return a claimed session to the queue before its process has started."""
        return self._moved(
            self.Status.QUEUED,
            reason,
            among=[self.Status.RUNNING],
            started_at=None,
            stop_cause="",
            stop_requested="",
        )

    def await_approval(self, reason: str) -> bool:
        """Hold the session until a person approves it."""
        return self._moved(self.Status.AWAITING_APPROVAL, reason)

    def let_start(self, reason: str) -> bool:
        """Queue an approved session. Return False if it does not wait for approval."""
        return self._moved(self.Status.QUEUED, reason, among=[self.Status.AWAITING_APPROVAL])

    def finish(self, status: str, reason: str = "", **facts: Any) -> None:
        """End the session and store the facts about its run. Raise if it has ended before."""
        if status in self.OPEN_STATUSES:
            raise IllegalTransition(f"{status} is not an ending")
        if not self._moved(status, reason, finished_at=timezone.now(), **facts):
            raise IllegalTransition(
                f"session {self.pk} is {self.get_status_display()} and cannot become {status}"
            )

    def mark_escalated(self, reason: str) -> bool:
        """Mark a finished session as escalated. Return False if it is not finished."""
        return self._moved(
            self.Status.ESCALATED, reason, among=self.FINISHED_STATUSES, escalation_reason=reason
        )

    def expire(self, reason: str) -> bool:
        """Mark a session that is too old to be continued."""
        return self._moved(self.Status.EXPIRED, reason)

    def _moved(
        self, status: str, reason: str, among: Iterable[str] | None = None, **facts: Any
    ) -> bool:
        """Change the status if `ALLOWED` permits it, update `PeriodCost`, and store an event."""
        sources = [source for source in sources_of(status) if among is None or source in among]
        with transaction.atomic():
            before = self._locked()
            row = Session.objects.filter(pk=self.pk, status__in=sources)
            moved = row.update(status=status, **facts)
            if moved:
                for field, value in {"status": status, **facts}.items():
                    setattr(self, field, value)
                PeriodCost.move(before, {**before, **facts})
                self.note(EventKind.STATUS, reason, **{"from": before["status"], "to": status})
            else:
                self.refresh_from_db(fields=["status"])
        return bool(moved)

    def _locked(self) -> dict[str, Any]:
        """Lock the row until the end of the transaction. Events may still be added."""
        row = Session.objects.select_for_update(of=("self",), no_key=True).filter(pk=self.pk)
        return row.values("status", *COUNTED_FIELDS).first() or {"status": "", "started_at": None}

    def note(self, kind: EventKind, text: str, level: str = "info", **more: Any) -> None:
        """Append an event of the supervisor."""
        event = self.events.model(
            session=self,
            source=EventSource.SUPERVISOR,
            kind=kind,
            payload={"text": text, "level": level, **more},
        )
        self.event_log.append([event])


class SessionEvent(models.Model):
    """One line of the CLI's output, or one event of the supervisor, in order."""

    Source = EventSource

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="events")
    sequence = models.PositiveIntegerField()
    source = models.CharField(max_length=20, choices=Source.choices)
    kind = OutsideCharField(max_length=100, blank=True)
    payload = OutsideJSONField()
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["session", "sequence"]
        constraints = [
            # Also the index for the live view: events of a session after a number.
            models.UniqueConstraint(fields=["session", "sequence"], name="event_sequence"),
        ]

    def __str__(self) -> str:
        return f"{self.source} {self.kind} #{self.sequence}"
