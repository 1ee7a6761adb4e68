"""How a run continued, where its cost comes from, and why it was stopped: words of a session."""

from __future__ import annotations

from django.db import models


class ContinuedBy(models.TextChoices):
    FRESH = "fresh", "fresh conversation"
    RESUME = "resume", "resumed conversation"
    HANDOFF = "handoff", "handoff"


class CostBasis(models.TextChoices):
    OWN_SHARE = "own_share", "stated by the CLI for this run"
    PER_RUN = "per_run", "this CLI reports each run by itself"
    DIFFERENCE = "difference", "reported total less the parent conversation's"
    ESTIMATE = "estimate", "estimated from the stream: the run printed no result"
    UNKNOWN = "unknown", "unknown: the run printed no result"


class StopCause(models.TextChoices):
    """Why a run was stopped before its end. The words beside it are for people alone."""

    PERSON = "person", "a person stopped it"
    PAUSE = "pause", "Claude Ops was paused"
    WORKER = "worker", "the worker was told to stop"
    FOREGROUND = "foreground", "the command in the terminal was ended"
    TIME_LIMIT = "time_limit", "its time was up"
    SILENCE = "silence", "it said nothing for too long"
    BUDGET = "budget", "its budget was spent"
    UNGUARDED = "unguarded", "a command ran that the gate had not seen"
    ACCOUNT_LIMIT = "account_limit", "the account's limit was reached"
