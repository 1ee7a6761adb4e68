from __future__ import annotations

from django.db import models
from django.utils import timezone


class LoginFailure(models.Model):
    """An attempt to log in that did not succeed. In the database, so that all web processes count
    together; old ones go with the next attempt."""

    username = models.CharField(max_length=150)
    address = models.CharField(max_length=45)
    at = models.DateTimeField(default=timezone.now)

    class Meta:
        indexes = [
            models.Index(fields=["at"], name="login_failure_at"),  # what is counted, what is old
        ]
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.username} from {self.address}"
