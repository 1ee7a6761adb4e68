"""Conversations of the CLI and the stored copies of their transcripts."""

from __future__ import annotations

from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models.fields import OutsideJSONField, OutsideTextField
from sessions_app.models.session import Session


class Conversation(models.Model):
    """Lock and state of one conversation of the CLI, found by the CLI's session id.

    The CLI does not lock conversations: if two processes resume one at the same time, one of them
    is silently lost. A session takes the conversation with a conditional update and releases it at
    its end.
    """

    class State(models.TextChoices):
        LIVE = "live", "live"
        RETIRED = "retired", "retired"
        EXPIRED = "expired", "expired"

    session_id = models.CharField(max_length=100, unique=True)
    state = models.CharField(max_length=20, choices=State.choices, default=State.LIVE)
    reason = OutsideTextField(blank=True, help_text="Why the conversation must not be resumed.")
    in_use_by = models.OneToOneField(
        Session, on_delete=models.SET_NULL, null=True, blank=True, related_name="conversation_held"
    )
    last_used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-last_used_at"]
        indexes = [
            # Cleaning: live conversations that are old enough to expire.
            models.Index(fields=["state", "last_used_at"], name="conversation_age"),
            # Admin's list, newest first.
            models.Index(fields=["-last_used_at", "-id"], name="conversation_latest"),
        ]

    def __str__(self) -> str:
        return f"Conversation {self.session_id}"

    @classmethod
    def take(cls, session_id: str, session: Session) -> bool:
        """Lock a conversation for a session. Return False if another session holds it.

        The holder may take it again, because the reply to an earlier attempt may have been lost.
        """
        hold = {"in_use_by": session, "last_used_at": timezone.now()}
        _conversation, is_new = cls.objects.get_or_create(session_id=session_id, defaults=hold)
        free = cls.objects.filter(Q(in_use_by=None) | Q(in_use_by=session), session_id=session_id)
        return is_new or bool(free.update(**hold))

    @classmethod
    def leave(cls, session: Session) -> None:
        cls.objects.filter(in_use_by=session).update(in_use_by=None, last_used_at=timezone.now())

    @classmethod
    def retire(cls, session_id: str, reason: str) -> None:
        """Forbid to resume a conversation. The first reason is kept."""
        cls.objects.get_or_create(session_id=session_id)
        cls.objects.filter(session_id=session_id, state=cls.State.LIVE).update(
            state=cls.State.RETIRED, reason=reason
        )


class Transcript(models.Model):
    """Stored copy of one transcript file of the CLI.

    `subpath` is empty for the main conversation and set for a subagent.
    """

    project_key = models.CharField(max_length=300)
    session_id = models.CharField(max_length=100)
    subpath = models.CharField(max_length=300, blank=True)

    summary = OutsideJSONField(null=True, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project_key", "session_id", "subpath"], name="one_transcript_per_key"
            ),
        ]
        indexes = [
            # Restoring a transcript on another host, which knows only the id.
            models.Index(fields=["session_id"], name="transcript_session"),
            # Admin's list, newest first.
            models.Index(fields=["-updated_at", "-id"], name="transcript_latest"),
        ]

    def __str__(self) -> str:
        return f"Transcript {self.session_id}{'/' + self.subpath if self.subpath else ''}"


class TranscriptChunk(models.Model):
    """Compressed and encrypted lines of a transcript, in the row or in a file."""

    transcript = models.ForeignKey(Transcript, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    content = models.BinaryField(blank=True)
    stored_as = models.CharField(
        max_length=500,
        blank=True,
        help_text="File in CLAUDEOPS_ARCHIVE_DIR; empty if the content is in the row.",
    )
    entries = models.PositiveIntegerField()
    encrypted = models.BooleanField(
        default=False, help_text="False for chunks of old versions, until cleaning encrypts them."
    )

    class Meta:
        ordering = ["transcript", "number"]
        constraints = [
            models.UniqueConstraint(fields=["transcript", "number"], name="chunk_order"),
        ]
        indexes = [
            # Cleaning: chunks that are not encrypted yet.
            models.Index(fields=["id"], condition=models.Q(encrypted=False), name="chunk_clear"),
        ]

    def __str__(self) -> str:
        return f"{self.transcript} #{self.number}"
