"""Looking up what the continuation decision needs: the database first, the disk last."""

from __future__ import annotations

import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone

from escalation.agent.binary import ClaudeBinary, fingerprint_of
from escalation.continuity import transcripts
from escalation.continuity.guards import (
    Continuation,
    NextRun,
    ParentFacts,
    ResumeLimits,
    Transcript,
    cheap_objection,
    continuation_from,
)
from escalation.tiers import Tier
from sessions_app.models import Conversation, Session

# For models that no run here has reported a window for.
DEFAULT_CONTEXT_WINDOW = 200_000


def decide_continuation(
    session: Session, tier: Tier, binary: ClaudeBinary
) -> tuple[Continuation, dict[str, Any]]:
    """The decision, and the facts that were seen, ready to be stored."""
    limits = ResumeLimits(
        context_threshold=settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD,
        max_age_seconds=settings.CLAUDEOPS_RESUME_MAX_AGE,
    )
    run = NextRun(
        tier=tier.number,
        cli_version=binary.version,
        can_resume=binary.can_resume,
        force_fresh=_is_fresh_wanted(session),
        context_window=context_window_of(tier.model),
    )
    parent = None
    if session.parent_session is not None:
        parent = parent_facts(session.parent_session, session, binary)
        if not cheap_objection(parent, run, limits):
            parent = replace(parent, transcript=transcript_of(session.parent_session))
    facts = {"parent": asdict(parent) if parent else None, "run": asdict(run)}
    facts["limits"] = {
        "context_threshold": str(limits.context_threshold),
        "max_age_seconds": limits.max_age_seconds,
    }
    return continuation_from(parent, run, limits), facts


def parent_facts(parent: Session, session: Session, binary: ClaudeBinary) -> ParentFacts:
    conversation = Conversation.objects.filter(session_id=parent.session_id).first()
    last_used = parent.last_activity_at or parent.finished_at or parent.created_at
    same_host = parent.host == socket.gethostname()
    return ParentFacts(
        tier=parent.tier,
        session_id=parent.session_id,
        retired_because=_retirement(conversation),
        expired=conversation is not None and conversation.state == Conversation.State.EXPIRED,
        age_seconds=(timezone.now() - last_used).total_seconds(),
        cli_version=parent.cli_version,
        same_binary=not same_host or _same_binary(parent, binary),
        same_directory=_same_file(parent.workdir, session.workdir),
        same_host=same_host,
        in_use_by=conversation.in_use_by_id if conversation else None,
        context_tokens=parent.context_tokens,
    )


def transcript_of(parent: Session) -> Transcript:
    match transcripts.find_on_disk(parent):
        case transcripts.TranscriptState.PRESENT:
            return Transcript.ON_DISK
        case transcripts.TranscriptState.UNREADABLE:
            return Transcript.UNREADABLE
    return Transcript.ARCHIVED if transcripts.is_archived(parent.session_id) else Transcript.GONE


def context_window_of(model: str) -> int:
    """As last seen for that model: the CLI's versions do not agree about it."""
    seen = (
        Session.objects.filter(model=model, context_window__gt=0)
        .order_by("-pk")
        .values_list("context_window", flat=True)
        .first()
    )
    return seen or DEFAULT_CONTEXT_WINDOW


def _is_fresh_wanted(session: Session) -> bool:
    """The cycle's wish is about higher tiers: a tier may always go on with its own conversation."""
    parent = session.parent_session
    changes_tier = parent is not None and parent.tier != session.tier
    return session.force_fresh or (session.cycle.force_fresh and changes_tier)


def _same_binary(parent: Session, binary: ClaudeBinary) -> bool:
    """The same file with the same content: one that was replaced in place is another."""
    if not _same_file(parent.cli_path, binary.path):
        return False
    return parent.cli_fingerprint in ("", fingerprint_of(Path(binary.path)))


def _retirement(conversation: Conversation | None) -> str:
    if conversation is None or conversation.state != Conversation.State.RETIRED:
        return ""
    return conversation.reason or "no reason was stored"


def _same_file(one: str, other: str) -> bool:
    """The same place, not the same text: a symlink leads to one conversation."""
    try:
        return Path(one).samefile(other)
    except OSError:
        return one == other
