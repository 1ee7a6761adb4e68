"""Approvals that people give, and the changes that sessions made."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.urls import reverse
from django.utils import timezone

from sessions_app.models.fields import OutsideCharField, OutsideJSONField, OutsideTextField
from sessions_app.models.installation import moment_text
from sessions_app.models.session import Session
from sessions_app.models.watch import Watch


class ApprovalQuerySet(models.QuerySet["Approval"]):
    def answerable(self) -> ApprovalQuerySet:
        """Select the requests that wait for an answer, without drills."""
        return self.filter(state="waiting", expires_at__gt=timezone.now(), session__cycle__drill="")


class Approval(models.Model):
    """Request for a person's approval of a tier or of one command.

    A conditional update (`escalation/supervisor`) decides it once. The approval of a command stays
    valid if the CLI stops waiting: when the agent runs the same command again, it is found by its
    fingerprint.
    """

    class Kind(models.TextChoices):
        TIER = "tier", "tier"
        COMMAND = "command", "command"

    class State(models.TextChoices):
        WAITING = "waiting", "waiting"
        APPROVED = "approved", "approved"
        REJECTED = "rejected", "rejected"
        EXPIRED = "expired", "expired"
        WITHDRAWN = "withdrawn", "withdrawn"

    class Way(models.TextChoices):
        """Place of an answer."""

        PAGE = "page", "on the page"
        LINK = "link", "by the link in a message"
        TERMINAL = "terminal", "in a terminal"
        ADMIN = "admin", "in the admin"
        NTFY = "ntfy", "in ntfy"
        TELEGRAM = "telegram", "in Telegram"
        START = "start", "by the confirmed start"
        API = "api", "by the API"

    LONGEST_NOTE = 1_000

    kind = models.CharField(max_length=20, choices=Kind.choices)
    session = models.ForeignKey(
        Session,
        on_delete=models.CASCADE,
        related_name="approvals",
        help_text="Session that waits, or whose command waits.",
    )
    why = OutsideCharField(max_length=300, help_text="Why approval is needed.")
    command = OutsideTextField(blank=True)
    actions = OutsideJSONField(
        default=list, blank=True, help_text="Actions that the command policy recognised."
    )
    grants = OutsideJSONField(
        default=list, blank=True, help_text="Grants that the command would get."
    )
    cwd = OutsideCharField("working directory", max_length=1000, blank=True)
    fingerprint = models.CharField(
        max_length=64,
        blank=True,
        help_text="Hash of the command before redaction.",
    )
    plan = OutsideTextField(blank=True, help_text="Plan of the agent, with its reasons.")
    plan_run = models.ForeignKey(
        Session,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="+",
        help_text="Plan session that made the plan.",
    )

    budget_usd = models.DecimalField(
        "budget in US dollars",
        max_digits=20,
        decimal_places=10,
        null=True,
        blank=True,
        help_text="Budget of a tier that was allowed once, whatever the policy of its watch.",
    )

    state = models.CharField(max_length=20, choices=State.choices, default=State.WAITING)
    asked_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField()
    decided_at = models.DateTimeField(null=True, blank=True)
    decided_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    way = models.CharField(
        max_length=20, choices=Way.choices, blank=True, help_text="Where the answer was given."
    )
    note = OutsideTextField(blank=True, help_text="Stored, and passed to the model.")
    used_at = models.DateTimeField(
        null=True, blank=True, help_text="When the approval was used. It can be used once."
    )

    objects = ApprovalQuerySet.as_manager()

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session"],
                condition=Q(kind="tier", state="waiting"),
                name="one_waiting_approval_per_tier",
            ),
        ]
        indexes = [
            # Waiting approvals, and those that expire.
            models.Index(fields=["state", "expires_at"], name="approval_waiting"),
            # Date filter: the first id of a day.
            models.Index(fields=["asked_at"], name="approval_asked"),
            # A repeated command finds its approval.
            models.Index(fields=["fingerprint"], name="approval_asked_again"),
        ]

    def __str__(self) -> str:
        what = self.command if self.kind == self.Kind.COMMAND else f"Tier {self.session.tier}"
        return f"Approval {self.pk} ({self.get_state_display()}): {what}"

    def get_absolute_url(self) -> str:
        return reverse("web:approval", args=[self.pk])

    @property
    def has_plan(self) -> bool:
        """True if a plan session made the plan; otherwise it is what was said before."""
        return self.plan_run is not None and self.plan_run.status == Session.Status.COMPLETED

    @property
    def is_waiting(self) -> bool:
        return self.state == self.State.WAITING

    @property
    def is_overdue(self) -> bool:
        """True if it waits although its time is over."""
        return self.is_waiting and self.expires_at <= timezone.now()

    @property
    def answer_text(self) -> str:
        """Answer with its account, time, place and note; empty while it waits."""
        if self.is_waiting:
            return ""
        who = f" by {self.decided_by.get_username()}" if self.decided_by else ""
        where = f" {self.get_way_display()}" if self.way else ""
        when = f" at {moment_text(self.decided_at)}" if self.decided_at else ""
        note = f": {self.note}" if self.note else ""
        return f"{str(self.get_state_display()).capitalize()}{who}{where}{when}{note}"

    @property
    def subject(self) -> str:
        """Subject of the request, for people."""
        return "a command" if self.kind == self.Kind.COMMAND else f"Tier {self.session.tier}"


class FileContent(models.Model):
    """Content of a file before an edit: encrypted, and stored once however often it occurs."""

    digest = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the content.")
    content = models.BinaryField(help_text="Compressed and encrypted.")
    created_at = models.DateTimeField(default=timezone.now)

    def __str__(self) -> str:
        return f"content {self.digest[:12]}"


class Change(models.Model):
    """Command with an effect that the command policy permitted, or a file that was written.

    Recorded when it happens, not taken from a report. Cooldowns count these rows.
    """

    class Kind(models.TextChoices):
        RESTART = "restart", "restart"
        REDEPLOY = "redeploy", "redeployment"
        OTHER = "other", "other change"
        EDIT = "edit", "edit of a file"
        FILE = "file", "file written by commands"

    class Before(models.TextChoices):
        """Knowledge of a file before its edit."""

        KEPT = "kept", "kept"
        ABSENT = "absent", "the file did not exist"
        TOO_LARGE = "too_large", "too large to keep"
        NOT_KEPT = "not_kept", "not kept"

    session = models.ForeignKey(Session, on_delete=models.CASCADE, related_name="changes")
    watch = models.ForeignKey(
        Watch, on_delete=models.SET_NULL, null=True, blank=True, related_name="changes"
    )
    call = OutsideCharField(
        max_length=100,
        help_text="Id of the call, from the command policy or, for an edit, from the CLI.",
    )
    number = models.PositiveSmallIntegerField(default=0, help_text="Position in the command.")
    kind = models.CharField(max_length=20, choices=Kind.choices)
    service = models.CharField(
        max_length=200, blank=True, help_text="Normalised name of the changed service."
    )
    host = models.CharField(
        max_length=500,
        blank=True,
        help_text="Keys of the host that ssh reached; empty for this host and unknown ones.",
    )
    action = OutsideCharField(
        max_length=300, help_text="Action that the command policy recognised."
    )
    command = OutsideTextField(help_text="Redacted command.")
    path = OutsideCharField(max_length=1000, blank=True, help_text="Edited file.")
    diff = OutsideTextField(blank=True, help_text="Redacted diff of an edit; a long one is cut.")
    at = models.DateTimeField(default=timezone.now)
    exit_code = models.IntegerField(null=True, blank=True)
    is_cleared = models.BooleanField(
        default=False,
        help_text="True after two healthy cycles; it does not count for cooldowns any more.",
    )

    # An edit can be undone if its content before is kept.
    before = models.CharField(max_length=20, choices=Before.choices, default=Before.NOT_KEPT)
    before_content = models.ForeignKey(
        FileContent, on_delete=models.SET_NULL, null=True, blank=True, related_name="changes"
    )
    left_digest = models.CharField(
        max_length=64,
        blank=True,
        help_text="SHA-256 of the file after the edit, or absent; empty if not known.",
    )
    undone_at = models.DateTimeField(null=True, blank=True)
    undone_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(
                fields=["session", "call", "number"], name="change_written_once"
            ),
        ]
        indexes = [
            # Cooldowns: recent changes of a watch.
            models.Index(fields=["watch", "at"], name="change_cooldown"),
            # Filters of the list of changes, newest first.
            models.Index(fields=["watch", "-id"], name="change_watch"),
            models.Index(fields=["service", "-id"], name="change_service"),
            models.Index(fields=["kind", "-id"], name="change_kind"),
            # Date filter, and the changes of a day in the digest.
            models.Index(fields=["at"], name="change_at"),
        ]

    def __str__(self) -> str:
        return f"{self.action} (session {self.session_id})"

    def get_absolute_url(self) -> str:
        return reverse("web:change", args=[self.pk])

    @property
    def is_edit(self) -> bool:
        return self.kind == self.Kind.EDIT

    @property
    def is_file(self) -> bool:
        """True for a file that the CLI edited or commands wrote."""
        return self.kind in (self.Kind.EDIT, self.Kind.FILE)

    @property
    def can_be_undone(self) -> bool:
        kept = self.before == self.Before.KEPT and self.before_content_id is not None
        return self.undone_at is None and (kept or self.before == self.Before.ABSENT)

    @property
    def has_failed(self) -> bool:
        return self.exit_code not in (None, 0)
