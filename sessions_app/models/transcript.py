from __future__ import annotations

from django.db import models
from django.utils import timezone


class Transcript(models.Model):
    """A copy of one transcript file of the CLI, kept where the CLI cannot delete it.

    The main conversation has an empty subpath; a subagent's has its own.
    """

    project_key = models.CharField(max_length=300)
    session_id = models.CharField(max_length=100)
    subpath = models.CharField(max_length=300, blank=True)

    summary = models.JSONField(null=True, blank=True)
    updated_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["project_key", "session_id", "subpath"], name="one_transcript_per_key"
            ),
        ]
        indexes = [
            # Restoring on another host, where only the id is known for sure.
            models.Index(fields=["session_id"], name="transcript_session"),
            # The admin's list: the latest first.
            models.Index(fields=["-updated_at", "-id"], name="transcript_latest"),
        ]

    def __str__(self) -> str:
        return f"Transcript {self.session_id}{'/' + self.subpath if self.subpath else ''}"


class TranscriptChunk(models.Model):
    """Some lines of a transcript, compressed and sealed: in the row, or in the storage that is
    configured."""

    transcript = models.ForeignKey(Transcript, on_delete=models.CASCADE, related_name="chunks")
    number = models.PositiveIntegerField()
    content = models.BinaryField(blank=True)
    stored_as = models.CharField(
        max_length=500, blank=True, help_text="Its name in the storage, when it is not in the row."
    )
    entries = models.PositiveIntegerField()
    sealed = models.BooleanField(
        default=False, help_text="Encrypted. What was kept before that, cleaning seals."
    )

    class Meta:
        ordering = ["transcript", "number"]
        constraints = [
            models.UniqueConstraint(fields=["transcript", "number"], name="chunk_order"),
        ]
        indexes = [
            # What is still to be sealed: soon nothing.
            models.Index(fields=["id"], condition=models.Q(sealed=False), name="chunk_clear"),
        ]

    def __str__(self) -> str:
        return f"{self.transcript} #{self.number}"
