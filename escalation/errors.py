"""Failures that are expected: each message tells the operator what to do."""

from __future__ import annotations

from enum import StrEnum


class WhyNot(StrEnum):
    """Why nothing could run, by name: the message beside it is for people alone."""

    NO_CREDENTIALS = "no_credentials"
    CLI = "cli"
    PROMPTS = "prompts"
    WALLS = "walls"
    WAY_TO_THE_API = "way_to_the_api"
    WORKER = "worker"
    NO_HOST = "no_host"
    WORKDIR = "workdir"
    POLICY = "policy"
    BUDGET = "budget"
    FAILED = "failed"


class CannotRun(Exception):
    """A run cannot be started; nothing was spent and nothing was touched."""

    why_not = WhyNot.FAILED

    def __init__(self, message: object = "", why_not: WhyNot | None = None) -> None:
        super().__init__(message)
        self.why_not = why_not or self.why_not


class CliMissing(CannotRun):
    """No usable `claude` was found."""

    why_not = WhyNot.CLI


class PromptMissing(CannotRun):
    """A prompt file is missing or cannot be filled in."""

    why_not = WhyNot.PROMPTS


class Postponed(Exception):
    """The run must not begin now; it waits, and nothing of it has happened."""


class OperationRefused(Exception):
    """What a person asked for cannot be done with this session now."""


class CycleActive(Exception):
    """The watch has a cycle under way; a second one would work against it."""


class RecordTooThin(Exception):
    """There is nothing to hand on: the tier before must be asked for its findings first."""
