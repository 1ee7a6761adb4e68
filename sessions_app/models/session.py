from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models, transaction
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property

from sessions_app.models import session_choices
from sessions_app.models.clock import shared_now
from sessions_app.models.cycle import Cycle
from sessions_app.models.event_log import EventLog
from sessions_app.models.period_cost import COUNTED_FIELDS, PeriodCost
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.models.transitions import IllegalTransition, sources_of
from sessions_app.models.watch import TIER_CHOICES, Watch


class Session(models.Model):
    """One tier's run: one `claude -p` process, its cost, its parent and its reason."""

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

    class Purpose(models.TextChoices):
        TIER = "tier", "tier run"
        REPORT = "report", "asked again for the report"
        CONTINUATION = "continuation", "continued after its turn limit"
        FINDINGS = "findings", "asked to write its findings down"
        FOLLOW_UP = "follow_up", "follow-up question"
        FORK = "fork", "another approach"
        RETRY = "retry", "tried again"
        RECOVERY = "recovery", "continued after an interruption"
        PLAN = "plan", "asked for its plan, changing nothing"

    ContinuedBy = session_choices.ContinuedBy
    CostBasis = session_choices.CostBasis
    StopCause = session_choices.StopCause
    ASKED_TO_STOP = (
        StopCause.PERSON,
        StopCause.PAUSE,
        StopCause.WORKER,
        StopCause.FOREGROUND,
    )
    """Somebody wanted it to stop; the other causes are limits of the run itself."""
    NO_FAULT_OF_THE_WATCH = (*ASKED_TO_STOP, StopCause.ACCOUNT_LIMIT)
    OPEN_STATUSES = (Status.QUEUED, Status.RUNNING, Status.AWAITING_APPROVAL)
    FINISHED_STATUSES = (
        Status.COMPLETED,
        Status.FAILED,
        Status.TIMED_OUT,
        Status.INTERRUPTED,
    )
    """Ended, and nobody has gone on from there yet."""
    GOOD_STATUSES = (Status.COMPLETED, Status.ESCALATED)

    cycle = models.ForeignKey(Cycle, on_delete=models.CASCADE, related_name="sessions")
    watch = models.ForeignKey(
        Watch,
        on_delete=models.SET_NULL,
        null=True,
        editable=False,
        related_name="sessions",
        db_index=False,  # `session_watch` below
        help_text="Its cycle's: lists by watch are read along an index of their own.",
    )
    parent_session = models.ForeignKey(
        "self", on_delete=models.RESTRICT, null=True, blank=True, related_name="children"
    )
    tier = models.PositiveSmallIntegerField(choices=TIER_CHOICES)
    purpose = models.CharField(max_length=20, choices=Purpose.choices, default=Purpose.TIER)
    model = models.CharField("model asked for", max_length=100)
    max_turns = models.PositiveIntegerField(
        null=True, blank=True, help_text="Fewer turns than its tier has, for this run."
    )
    max_budget_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Less money than its tier has, for this run.",
    )
    prompt = models.TextField(blank=True)
    continued_by = models.CharField(
        max_length=20, choices=ContinuedBy.choices, default=ContinuedBy.FRESH
    )
    continued_why = models.TextField(blank=True)
    continued_guard = models.CharField(
        max_length=40, blank=True, help_text="The guard that forbade to resume, by name."
    )
    continuation_facts = models.JSONField(
        default=dict, blank=True, help_text="What was seen when the decision was made."
    )
    force_fresh = models.BooleanField(
        default=False, help_text="Start a conversation of its own, by handoff."
    )
    handoff = models.JSONField(
        null=True, blank=True, help_text="The handoff that this run was given."
    )
    requested_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    request = models.TextField(
        blank=True, help_text="What a person asked of this run, or why they started it."
    )

    status = models.CharField(max_length=20, choices=Status.choices, default=Status.QUEUED)
    session_id = models.CharField(
        max_length=100,
        blank=True,
        db_index=True,  # looked up when a conversation is resumed
        help_text="The CLI's id of the conversation. Not unique: a resumed run may keep it.",
    )
    model_used = models.CharField(max_length=100, blank=True)
    argv = models.JSONField(default=list, blank=True)
    workdir = models.CharField("working directory", max_length=1000, blank=True)
    host = models.CharField(max_length=255, blank=True)
    cli_path = models.CharField("CLI", max_length=1000, blank=True)
    cli_version = models.CharField("CLI version", max_length=100, blank=True)
    cli_fingerprint = models.CharField(max_length=64, blank=True)
    config_dir = models.CharField("CLI configuration", max_length=1000, blank=True)
    runner_pid = models.PositiveIntegerField(null=True, blank=True)
    runner_started = models.BigIntegerField(null=True, blank=True)
    cli_pid = models.PositiveIntegerField(null=True, blank=True)
    cli_started = models.BigIntegerField(null=True, blank=True)
    boot_id = models.CharField(max_length=64, blank=True)
    run_mark = models.CharField(max_length=64, blank=True)
    walls = models.JSONField(
        default=dict,
        blank=True,
        help_text="What held this run: rooms or why none, doors, where the key was.",
    )
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    stop_cause = models.CharField(max_length=20, choices=StopCause.choices, blank=True)
    stop_requested = models.CharField(
        max_length=200, blank=True, help_text="Who or what asked the run to stop, in words."
    )

    cost_usd = models.DecimalField(max_digits=20, decimal_places=10, null=True, blank=True)
    reported_cost_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="What the CLI printed: newer versions count the whole conversation.",
    )
    baseline_cost_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="The conversation's total before this run.",
    )
    spent_so_far_usd = models.DecimalField(
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="While it runs: the gateway's count at the last known price, at each heartbeat.",
    )
    estimated_cost_usd = models.DecimalField(
        max_digits=20, decimal_places=10, null=True, blank=True
    )
    cost_basis = models.CharField(max_length=20, choices=CostBasis.choices, blank=True)
    input_tokens = models.PositiveBigIntegerField(default=0)
    output_tokens = models.PositiveBigIntegerField(default=0)
    cache_read_tokens = models.PositiveBigIntegerField(default=0)
    cache_creation_tokens = models.PositiveBigIntegerField(default=0)
    context_tokens = models.PositiveBigIntegerField(default=0)
    context_window = models.PositiveBigIntegerField(default=0)
    compactions = models.PositiveIntegerField(default=0)
    turns = models.PositiveIntegerField(default=0)
    messages = models.PositiveIntegerField(default=0)
    duration_ms = models.PositiveBigIntegerField(null=True, blank=True)
    exit_code = models.IntegerField(null=True, blank=True)
    stop_reason = models.CharField(
        max_length=100, blank=True, help_text="Why the model ended its last answer."
    )
    terminal_reason = models.CharField(
        max_length=100, blank=True, help_text="Why the CLI ended the run, where it says so."
    )
    result = models.TextField(blank=True)
    findings = models.TextField(
        blank=True, help_text="What the agent itself wrote down for the next tier, when asked to."
    )
    report = models.JSONField(null=True, blank=True, encoder=DjangoJSONEncoder)
    escalation_reason = models.TextField(
        blank=True, help_text="Why the supervisor escalated after this run, or why it did not."
    )
    error = models.TextField(blank=True)

    created_at = models.DateTimeField(default=timezone.now)
    waiting_since = models.DateTimeField(
        null=True, blank=True, help_text="Since when it has waited for a free place."
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
            # The dashboard's list and the worker's look for what is still open.
            models.Index(fields=["status", "-id"], name="session_status"),
            # The runs of a period, and those that have not said what they cost, for budgets.
            models.Index(fields=["started_at"], name="session_started"),
            models.Index(
                fields=["started_at"],
                name="session_unpriced",
                condition=models.Q(cost_usd__isnull=True),
            ),
            # The list and the admin's, by one of their filters, newest first.
            models.Index(fields=["watch", "-id"], name="session_watch"),
            models.Index(fields=["tier", "-id"], name="session_tier"),
            models.Index(fields=["continued_by", "-id"], name="session_continued"),
            models.Index(fields=["purpose", "-id"], name="session_purpose"),
            models.Index(fields=["continued_guard", "-id"], name="session_guard"),
            models.Index(fields=["cost_basis", "-id"], name="session_basis"),
            models.Index(fields=["model", "-id"], name="session_model"),
            # The newest runs that took over from another one, for the comparison of ways.
            models.Index(
                fields=["-id"],
                name="session_step",
                condition=models.Q(parent_session__isnull=False),
            ),
            # Where a day begins and ends among the numbers, for the admin's filter by date.
            models.Index(fields=["created_at"], name="session_created"),
        ]

    def __str__(self) -> str:
        return f"Session {self.pk} (Tier {self.tier})"

    def save(self, *args: Any, **options: Any) -> None:
        if self._state.adding:
            self.watch_id = self.cycle.watch_id
        super().save(*args, **options)

    def get_absolute_url(self) -> str:
        return reverse("sessions_app:session", args=[self.pk])

    @property
    def is_open(self) -> bool:
        return self.status in self.OPEN_STATUSES

    @property
    def is_question(self) -> bool:
        """A person's question about a finished session: answered by reading, without a report."""
        return self.purpose == self.Purpose.FOLLOW_UP

    @property
    def is_plan(self) -> bool:
        """A tier that may think and change nothing, before it is approved."""
        return self.purpose == self.Purpose.PLAN

    @property
    def resumed(self) -> bool:
        """Whether this run continues its parent's conversation itself."""
        return self.continued_by == self.ContinuedBy.RESUME

    @property
    def stopped_by(self) -> str:
        """The person who stopped or cancelled it on purpose, where one did."""
        ended = self.status in (self.Status.INTERRUPTED, self.Status.CANCELLED)
        by_person = self.stop_cause == self.StopCause.PERSON and not self.is_plan
        return self.stop_requested if ended and by_person else ""

    @property
    def met_account_limit(self) -> bool:
        return self.stop_cause == self.StopCause.ACCOUNT_LIMIT

    @property
    def is_drill(self) -> bool:
        return bool(self.cycle.drill)

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
        """How full the conversation is, from 0 to 1."""
        if not self.context_window:
            return None
        return Decimal(self.context_tokens) / Decimal(self.context_window)

    @cached_property
    def event_log(self) -> EventLog:
        """Where all that this process writes about the session is numbered."""
        return EventLog(self)

    def claim(self, **runner: Any) -> bool:
        """Take a queued session for this process. False: somebody else has it, or had it."""
        now = timezone.now()
        return self._moved(
            self.Status.RUNNING,
            "taken by a worker",
            started_at=now,
            last_activity_at=now,
            heartbeat_at=shared_now(),
            **runner,
        )

    def put_back(self, reason: str) -> bool:
        """Wait again: it was taken, but nothing of it has begun."""
        return self._moved(
            self.Status.QUEUED,
            reason,
            among=[self.Status.RUNNING],
            started_at=None,
            stop_cause="",
            stop_requested="",
        )

    def await_approval(self, reason: str) -> bool:
        """It does not start before a person has said so."""
        return self._moved(self.Status.AWAITING_APPROVAL, reason)

    def let_start(self, reason: str) -> bool:
        """A person has approved it. False: it does not wait for that any more."""
        return self._moved(self.Status.QUEUED, reason, among=[self.Status.AWAITING_APPROVAL])

    def finish(self, status: str, reason: str = "", **facts: Any) -> None:
        """End the session once, with all that is known about the run."""
        if status in self.OPEN_STATUSES:
            raise IllegalTransition(f"{status} is not an ending")
        if not self._moved(status, reason, finished_at=timezone.now(), **facts):
            raise IllegalTransition(
                f"session {self.pk} is {self.get_status_display()} and cannot become {status}"
            )

    def mark_escalated(self, reason: str) -> bool:
        """A person escalates a finished session. False: somebody else was first."""
        return self._moved(
            self.Status.ESCALATED, reason, among=self.FINISHED_STATUSES, escalation_reason=reason
        )

    def expire(self, reason: str) -> bool:
        """Too old to be gone on with."""
        return self._moved(self.Status.EXPIRED, reason)

    def _moved(
        self, status: str, reason: str, among: Iterable[str] | None = None, **facts: Any
    ) -> bool:
        """Change the status if the table allows it, count what that costs, and note the change as
        an event."""
        sources = [source for source in sources_of(status) if among is None or source in among]
        with transaction.atomic():
            before = self._locked()
            row = Session.objects.filter(pk=self.pk, status__in=sources)
            moved = row.update(status=status, **facts)
            if moved:
                for field, value in {"status": status, **facts}.items():
                    setattr(self, field, value)
                PeriodCost.move(before, {**before, **facts})
                self.note("status", reason, **{"from": before["status"], "to": status})
            else:
                self.refresh_from_db(fields=["status"])
        return bool(moved)

    def _locked(self) -> dict[str, Any]:
        """The row as it is, kept from others until the end of the transaction."""
        row = Session.objects.select_for_update(of=("self",)).filter(pk=self.pk)
        return row.values("status", *COUNTED_FIELDS).first() or {"status": "", "started_at": None}

    def note(self, kind: str, text: str, level: str = "info", **more: str) -> None:
        """Add a word of ours to the end of the stream."""
        event = self.events.model(
            session=self,
            source="supervisor",
            kind=kind,
            payload={"text": text, "level": level, **more},
        )
        self.event_log.append([event])
