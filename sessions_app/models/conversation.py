from __future__ import annotations

from django.db import models
from django.utils import timezone

from sessions_app.models.session import Session


class Conversation(models.Model):
    """The CLI's conversation behind a session id: may it be continued, and who is in it now?

    The CLI itself has no lock: of two runs that continue one conversation at once, one is silently
    lost. So a run takes the conversation by a conditional update, and leaves it at its end.
    """

    class State(models.TextChoices):
        LIVE = "live", "live"
        RETIRED = "retired", "retired"
        EXPIRED = "expired", "expired"

    session_id = models.CharField(max_length=100, unique=True)
    state = models.CharField(max_length=20, choices=State.choices, default=State.LIVE)
    reason = models.TextField(blank=True, help_text="Why it must not be continued.")
    in_use_by = models.OneToOneField(
        Session, on_delete=models.SET_NULL, null=True, blank=True, related_name="conversation_held"
    )
    last_used_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ["-last_used_at"]
        indexes = [
            # The cleaning task's look for what is old enough to expire.
            models.Index(fields=["state", "last_used_at"], name="conversation_age"),
            # The admin's list: the latest first.
            models.Index(fields=["-last_used_at", "-id"], name="conversation_latest"),
        ]

    def __str__(self) -> str:
        return f"Conversation {self.session_id}"

    @classmethod
    def take(cls, session_id: str, session: Session) -> bool:
        """Hold a conversation for a run. False: another run is in it."""
        hold = {"in_use_by": session, "last_used_at": timezone.now()}
        _conversation, is_new = cls.objects.get_or_create(session_id=session_id, defaults=hold)
        return is_new or bool(
            cls.objects.filter(session_id=session_id, in_use_by=None).update(**hold)
        )

    @classmethod
    def leave(cls, session: Session) -> None:
        cls.objects.filter(in_use_by=session).update(in_use_by=None, last_used_at=timezone.now())

    @classmethod
    def retire(cls, session_id: str, reason: str) -> None:
        """Never continue it again; the first reason is the one that counts."""
        cls.objects.get_or_create(session_id=session_id)
        cls.objects.filter(session_id=session_id, state=cls.State.LIVE).update(
            state=cls.State.RETIRED, reason=reason
        )
