"""Looks up the facts for the continuation decision: first in the database, last on disk."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from escalation.agent.binary import ClaudeBinary, fingerprint_of
from escalation.agent.stream import default_window
from escalation.resume import transcripts
from escalation.tiers import Tier
from sessions_app.history.resume import (
    Continuation,
    NextRun,
    ParentFacts,
    ResumeLimits,
    TranscriptLocation,
    cheap_objection,
    continuation_from,
    recorded_facts,
)
from sessions_app.models import Conversation, Session

READABLE = (TranscriptLocation.ON_DISK, TranscriptLocation.ARCHIVED)


def decide_continuation(
    session: Session, tier: Tier, binary: ClaudeBinary
) -> tuple[Continuation, dict[str, Any]]:
    """Decide how the session begins; return the decision and its facts, ready to be stored."""
    limits = resume_limits()
    run = NextRun(
        tier=tier.number,
        cli_version=binary.version,
        can_resume=binary.can_resume,
        force_fresh=_is_fresh_wanted(session),
        context_window=_window(session, tier, binary),
    )
    parent = None
    if session.parent_session is not None:
        parent = parent_facts(session.parent_session, session, binary)
        if not cheap_objection(parent, run, limits):
            parent = with_transcript(parent, session.parent_session)
    facts = {"parent": asdict(parent) if parent else None, "run": asdict(run)}
    facts["limits"] = {
        "context_threshold": str(limits.context_threshold),
        "max_age_seconds": limits.max_age_seconds,
    }
    return continuation_from(parent, run, limits), facts


def resume_limits() -> ResumeLimits:
    return ResumeLimits(
        context_threshold=settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD,
        max_age_seconds=settings.CLAUDEOPS_RESUME_MAX_AGE,
    )


def parent_facts(parent: Session, session: Session, binary: ClaudeBinary) -> ParentFacts:
    conversation = Conversation.objects.filter(session_id=parent.session_id).first()
    same_host = parent.host == socket.gethostname()
    return replace(
        recorded_facts(parent, conversation, timezone.now()),
        same_binary=not same_host or _same_binary(parent, binary),
        same_directory=_same_directory(parent, session, same_host=same_host),
        same_host=same_host,
        context_tokens=last_known_occupancy(parent),
    )


def with_transcript(facts: ParentFacts, parent: Session) -> ParentFacts:
    """Add the facts of the transcript: its location and the size of the last answer."""
    found = transcript_of(parent)
    filled = transcripts.occupancy(parent) if found in READABLE else 0
    return replace(facts, transcript=found, context_tokens=max(facts.context_tokens, filled))


def last_known_occupancy(parent: Session) -> int:
    """Context tokens of the parent, or of the session that it resumed if it got no answer."""
    run: Session | None = parent
    while run is not None and not run.context_tokens:
        resumed = run.continued_by == Session.ContinuedBy.RESUME
        run = run.parent_session if resumed else None
    return run.context_tokens if run else 0


def transcript_of(parent: Session) -> TranscriptLocation:
    match transcripts.find_on_disk(parent):
        case transcripts.TranscriptState.PRESENT:
            return TranscriptLocation.ON_DISK
        case transcripts.TranscriptState.UNREADABLE:
            return TranscriptLocation.UNREADABLE
    return (
        TranscriptLocation.ARCHIVED
        if transcripts.is_archived(parent.session_id)
        else TranscriptLocation.GONE
    )


def context_window_of(model: str, cli_version: str) -> int:
    """Context window as last reported by this version of the CLI.

    A tier may name a model by its alias, and the CLI reports the full name: both are searched.
    """
    reported = Session.objects.filter(
        Q(model=model) | Q(model_used=model), cli_version=cli_version, context_window__gt=0
    )
    seen = reported.order_by("-pk").values_list("context_window", flat=True).first()
    return seen or default_window(model, cli_version)


def _window(session: Session, tier: Tier, binary: ClaudeBinary) -> int:
    """Context window, looked up only for a session that continues another."""
    if session.parent_session_id is None:
        return default_window(tier.model, binary.version)
    return context_window_of(tier.model, binary.version)


def _is_fresh_wanted(session: Session) -> bool:
    """Return whether a fresh conversation is asked for; a cycle asks at a change of tier only."""
    parent = session.parent_session
    changes_tier = parent is not None and parent.tier != session.tier
    return session.force_fresh or (session.cycle.force_fresh and changes_tier)


def _same_binary(parent: Session, binary: ClaudeBinary) -> bool:
    """Compare path and content: the file may have been replaced in place."""
    if not _same_file(parent.cli_path, binary.path):
        return False
    return parent.cli_fingerprint in ("", fingerprint_of(Path(binary.path)))


def _same_directory(parent: Session, session: Session, *, same_host: bool) -> bool:
    """Compare the directories: another one may have taken the place of the parent's."""
    if not _same_file(parent.workdir, session.workdir):
        return False
    return not same_host or parent.workdir_identity in ("", directory_identity(session.workdir))


# Of `struct statx` in <linux/stat.h>: its size, and where the mask and the time of creation are.
STATX_SIZE, STATX_BTIME, BTIME_OFFSET, AT_FDCWD = 256, 0x800, 80, -100


def directory_identity(path: str) -> str:
    """Return inode and time of creation, because a new directory may get the inode of a removed
    one. The time is 0 where the file system does not store it.
    """
    try:
        inode = os.stat(path).st_ino
    except OSError:
        return ""
    found = ctypes.create_string_buffer(STATX_SIZE)
    status = ctypes.CDLL(None).statx(AT_FDCWD, os.fsencode(path), 0, STATX_BTIME, found)
    (mask,) = struct.unpack_from("=I", found)
    if status != 0 or not mask & STATX_BTIME:
        return f"{inode}:0"
    seconds, nanoseconds = struct.unpack_from("=qI", found, BTIME_OFFSET)
    return f"{inode}:{seconds}.{nanoseconds:09d}"


def _same_file(one: str, other: str) -> bool:
    """Compare the files, not the paths: a symlink may lead to the same file."""
    try:
        return Path(one).samefile(other)
    except OSError:
        return one == other
