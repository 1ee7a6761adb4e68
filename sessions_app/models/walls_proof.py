from __future__ import annotations

from django.conf import settings
from django.db import models
from django.utils import timezone


class WallsProof(models.Model):
    """One run of the walls' own trial: what was tried, how it was judged, and what happened."""

    class Kind(models.TextChoices):
        CORPUS = "corpus", "commands, harmless and hostile"
        ATTACKS = "attacks", "attacks"

    kind = models.CharField(max_length=20, choices=Kind.choices)
    host = models.CharField(max_length=255)
    cli_version = models.CharField("CLI version", max_length=100)
    cli_fingerprint = models.CharField(max_length=64)
    kernel = models.CharField(max_length=200)
    rooms = models.CharField(
        max_length=300, help_text="What held the commands: the rooms' version, or why none."
    )
    rows = models.JSONField(
        default=list, help_text="One for each trial: tier, command, expected, decision, happened."
    )
    tried = models.PositiveIntegerField()
    failed = models.PositiveIntegerField(
        help_text="Hostile ones that had an effect, harmless ones that did not work."
    )
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField(default=timezone.now)
    is_worse = models.BooleanField(
        default=False, help_text="More failed than in the proof before: higher tiers wait."
    )
    accepted_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True
    )
    accepted_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.failed} of {self.tried} failed"

    @classmethod
    def holding(cls) -> WallsProof | None:
        """The proof for whose sake higher tiers wait."""
        return cls.all_holding().defer("rows").first()

    @classmethod
    def all_holding(cls) -> models.QuerySet[WallsProof]:
        """Only the newest of each kind counts. Every page asks this, so the long rows of the older
        ones are not read."""
        newest = cls.objects.order_by().values("kind").annotate(newest=models.Max("pk"))
        return cls.objects.filter(pk__in=newest.values("newest"), is_worse=True, accepted_at=None)

    @property
    def holds_higher_tiers(self) -> bool:
        """Tier 2 and 3 wait until an operator accepts walls that got worse."""
        return self.is_worse and self.accepted_at is None
