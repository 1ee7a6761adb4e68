from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.db import models
from django.utils import timezone

KINDS = {
    "five_hour": "five-hour window",
    "seven_day": "weekly window",
    "extra_usage": "extra usage",
    "requests": "rate of requests",
}


class AccountClock(models.Model):
    """When the account's own limit is over, for the whole installation. There is at most one row.

    All tiers use the same account, so that all of them wait for it; drills use none.
    """

    THE_ONE = 1

    until = models.DateTimeField(null=True, blank=True, help_text="No new tier starts before.")
    kind = models.CharField(max_length=50, blank=True, help_text="Which window is used up.")
    words = models.CharField(max_length=300, blank=True, help_text="What the API said.")
    times_in_a_row = models.PositiveIntegerField(
        default=0, help_text="Runs that met the limit since the last one that did not."
    )
    windows = models.JSONField(
        default=dict,
        blank=True,
        help_text="By name: the share that was used when it was last said, and its reset.",
    )
    lifted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    changed_at = models.DateTimeField(default=timezone.now)

    class Meta:
        verbose_name_plural = "account clock"

    def __str__(self) -> str:
        return self.sentence or "the account has room"

    @classmethod
    def current(cls) -> AccountClock:
        return cls.objects.filter(pk=cls.THE_ONE).first() or cls(pk=cls.THE_ONE)

    @classmethod
    def holding(cls) -> AccountClock | None:
        """The clock while tiers wait for it."""
        clock = cls.current()
        return clock if clock.is_holding else None

    @property
    def is_holding(self) -> bool:
        return self.until is not None and self.until > timezone.now()

    @property
    def sentence(self) -> str:
        """Why tiers wait, or nothing."""
        if not self.is_holding:
            return ""
        which = f" ({KINDS[self.kind]})" if self.kind in KINDS else ""
        return f"the account's limit is reached{which}; it waits until {moment_text(self.until)}"

    @property
    def fullest(self) -> WindowUse | None:
        """Of the windows that have not begun anew since they were told."""
        now = timezone.now()
        uses = (WindowUse(name, facts) for name, facts in self.windows.items())
        return max(
            (use for use in uses if use.resets_at > now), key=lambda use: use.share, default=None
        )


class WindowUse:
    """How much of one window is used, as it is stored in the clock."""

    def __init__(self, name: str, facts: dict[str, Any]) -> None:
        self.name = KINDS.get(name, name)
        self.share = float(facts["share"])
        self.resets_at = datetime.fromtimestamp(float(facts["resets_at"]), UTC)

    def __str__(self) -> str:
        return (
            f"{self.share:.0%} of the account's {self.name} is used; it begins anew at "
            f"{moment_text(self.resets_at)}"
        )


def moment_text(moment: datetime | None) -> str:
    return timezone.localtime(moment).strftime("%Y-%m-%d %H:%M %Z") if moment else ""
