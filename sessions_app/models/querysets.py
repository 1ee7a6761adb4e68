"""Named questions about sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import models

if TYPE_CHECKING:
    from sessions_app.models import Session  # noqa: F401  (named in the base class below)

# What a list never shows.
LONG_FIELDS = ("prompt", "result", "argv", "report", "handoff", "findings", "continuation_facts")


class SessionQuerySet(models.QuerySet["Session"]):
    def real(self) -> SessionQuerySet:
        """Without drills: only these cost money."""
        return self.filter(cycle__drill="")

    def drills(self) -> SessionQuerySet:
        """None of them has a watch, which is what the index knows."""
        return self.filter(watch=None).exclude(cycle__drill="")

    def ask_to_stop(self, cause: str, words: str) -> int:
        """The one place that asks a run to stop: those that run and were not asked before.

        Each ends its CLI within a second and is recorded as interrupted.
        """
        running = self.filter(status="running", stop_cause="")
        return running.update(stop_cause=cause, stop_requested=words[:200])

    def for_list(self) -> SessionQuerySet:
        """With all that a row of a list shows, and nothing that is long."""
        return self.select_related("cycle__watch").defer(*LONG_FIELDS)
