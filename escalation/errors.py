"""Failures that are expected: each message tells the operator what to do."""

from __future__ import annotations


class CannotRun(Exception):
    """A run cannot be started; nothing was spent and nothing was touched."""


class CliMissing(CannotRun):
    """No usable `claude` was found."""


class PromptMissing(CannotRun):
    """A prompt file is missing or cannot be filled in."""


class Postponed(Exception):
    """The run must not begin now; it waits, and nothing of it has happened."""


class OperationRefused(Exception):
    """What a person asked for cannot be done with this session now."""


class CycleActive(Exception):
    """The watch has a cycle under way; a second one would work against it."""


class RecordTooThin(Exception):
    """There is nothing to hand on: the tier before must be asked for its findings first."""
