"""Tokens of the API, and the answers to requests that carried an `Idempotency-Key`."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q
from django.utils import timezone

from sessions_app.models.fields import OutsideJSONField


class ApiToken(models.Model):
    """A token by which a program acts for an account, within scopes.

    It is stored as a hash. The prefix is kept in the clear, so that a person recognises it.
    """

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    scopes = models.CharField(max_length=500, help_text="Separated by spaces.")
    prefix = models.CharField(max_length=20, help_text="The first characters of the token.")
    token_hash = models.CharField(max_length=64, unique=True, editable=False)
    created_at = models.DateTimeField(default=timezone.now)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(
        null=True, blank=True, help_text="To the minute; stored once for several requests."
    )
    window_start = models.DateTimeField(null=True, blank=True, editable=False)
    window_used = models.PositiveIntegerField(
        default=0, editable=False, help_text="Requests that were given out in this window."
    )

    class Meta:
        ordering = ["-id"]
        verbose_name = "API token"
        constraints = [
            models.UniqueConstraint(
                fields=["user", "name"],
                condition=Q(revoked_at__isnull=True),
                name="api_token_name",
            )
        ]

    def __str__(self) -> str:
        return f"{self.name} of {self.user.get_username()}"

    @property
    def scope_list(self) -> list[str]:
        return self.scopes.split()

    @property
    def state(self) -> str:
        if self.revoked_at:
            return "revoked"
        if not self.user.is_active:
            return "account disabled"
        return "expired" if self.is_expired(timezone.now()) else "valid"

    def is_expired(self, now: datetime) -> bool:
        return self.expires_at is not None and self.expires_at <= now


class IdempotentRequest(models.Model):
    """A request with an `Idempotency-Key`, and its answer once there is one."""

    KEPT = timedelta(hours=24)

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="requests")
    key = models.CharField(max_length=255)
    fingerprint = models.CharField(max_length=64, help_text="Hash of method, address and body.")
    status = models.PositiveSmallIntegerField(null=True, blank=True)
    answer: models.JSONField[Any, Any] = OutsideJSONField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["token", "key"], name="idempotent_request_key")
        ]
        indexes = [
            # Housekeeping.
            models.Index(fields=["created_at"], name="idempotent_request_age")
        ]

    def __str__(self) -> str:
        return self.key
