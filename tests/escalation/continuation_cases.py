"""Facts of a parent that may be resumed, and what must be changed for each guard to object."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from sessions_app.history.resume import (
    Guard,
    NextRun,
    ParentFacts,
    ResumeLimits,
    TranscriptLocation,
)
from tests.escalation.rows import CONVERSATION

FENCE = re.compile(r"^=====\[ record [0-9a-f]{16} \]=====$", re.MULTILINE)
VERSION = "2.1.325 (Claude Code)"
LIMITS = ResumeLimits(context_threshold=Decimal("0.80"), max_age_seconds=24 * 3600)
PARENT = ParentFacts(
    tier=1,
    session_id=CONVERSATION,
    age_seconds=60,
    cli_version=VERSION,
    context_tokens=15_000,
    transcript=TranscriptLocation.ON_DISK,
)
RUN = NextRun(
    tier=2, cli_version=VERSION, can_resume=True, force_fresh=False, context_window=200_000
)


class Objection(NamedTuple):
    """A changed fact, and the part of the reason that names it."""

    says: str
    parent: dict[str, Any] = {}
    run: dict[str, Any] = {}


OBJECTIONS = {
    Guard.CLI_CANNOT_RESUME: Objection(f"this CLI ({VERSION}) cannot", run={"can_resume": False}),
    Guard.FORCE_FRESH: Objection("fresh conversation was asked for", run={"force_fresh": True}),
    Guard.NOT_KEPT: Objection("was not kept", {"kept": False}),
    Guard.NO_SESSION_ID: Objection("no session id", {"session_id": ""}),
    Guard.NOT_A_UUID: Objection("not a UUID", {"session_id": "sess_abc123"}),
    Guard.RETIRED: Objection("retired: it was refused", {"retired_because": "it was refused"}),
    Guard.EXPIRED: Objection("older than 86400 s", {"age_seconds": 86_401}),
    Guard.OTHER_RUNTIME: Objection(
        f"used CLI 2.1.197, this host has {VERSION}", {"cli_version": "2.1.197"}
    ),
    Guard.OTHER_DIRECTORY: Objection("another directory", {"same_directory": False}),
    Guard.IN_USE: Objection("session 77 is using", {"in_use_by": 77}),
    Guard.CONTEXT_FULL: Objection(
        "context window pressure: 170000 of 200000 tokens (85.0%)", {"context_tokens": 170_000}
    ),
    Guard.TRANSCRIPT_UNREADABLE: Objection(
        "cannot be read by this user", {"transcript": TranscriptLocation.UNREADABLE}
    ),
    Guard.OTHER_HOST: Objection(
        "another host", {"same_host": False, "transcript": TranscriptLocation.GONE}
    ),
    Guard.TRANSCRIPT_GONE: Objection("gone from the disk", {"transcript": TranscriptLocation.GONE}),
}


def facts_for(*guards: Guard) -> tuple[ParentFacts, NextRun]:
    """Facts to which all these guards object; where two want one fact, the first one has it."""
    parent: dict[str, Any] = {}
    run: dict[str, Any] = {}
    for guard in reversed(guards):
        parent |= OBJECTIONS[guard].parent
        run |= OBJECTIONS[guard].run
    return replace(PARENT, **parent), replace(RUN, **run)
