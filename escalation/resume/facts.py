"""Looking up what the continuation decision needs: the database first, the disk last."""

from __future__ import annotations

import socket
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from django.conf import settings
from django.db.models import Q
from django.utils import timezone

from escalation.agent import ClaudeBinary, default_window, fingerprint_of
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

READABLE = (Transcript.ON_DISK, Transcript.ARCHIVED)


def decide_continuation(
    session: Session, tier: Tier, binary: ClaudeBinary
) -> tuple[Continuation, dict[str, Any]]:
    """The decision, and the facts that were seen, ready to be stored."""
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
    """As the operator set them."""
    return ResumeLimits(
        context_threshold=settings.CLAUDEOPS_RESUME_CONTEXT_THRESHOLD,
        max_age_seconds=settings.CLAUDEOPS_RESUME_MAX_AGE,
    )


def parent_facts(parent: Session, session: Session, binary: ClaudeBinary) -> ParentFacts:
    conversation = Conversation.objects.filter(session_id=parent.session_id).first()
    last_used = parent.last_activity_at or parent.finished_at or parent.created_at
    same_host = parent.host == socket.gethostname()
    return ParentFacts(
        tier=parent.tier,
        session_id=parent.session_id,
        kept=not parent.cycle.ephemeral,
        retired_because=_retirement(conversation),
        expired=conversation is not None and conversation.state == Conversation.State.EXPIRED,
        age_seconds=(timezone.now() - last_used).total_seconds(),
        cli_version=parent.cli_version,
        same_binary=not same_host or _same_binary(parent, binary),
        same_directory=_same_file(parent.workdir, session.workdir),
        same_host=same_host,
        in_use_by=conversation.in_use_by_id if conversation else None,
        context_tokens=last_known_occupancy(parent),
    )


def with_transcript(facts: ParentFacts, parent: Session) -> ParentFacts:
    """What only the transcript can tell: where it is, and how long the last answer became."""
    found = transcript_of(parent)
    filled = transcripts.occupancy(parent) if found in READABLE else 0
    return replace(facts, transcript=found, context_tokens=max(facts.context_tokens, filled))


def last_known_occupancy(parent: Session) -> int:
    """A run that failed before its first answer knows none, but it holds all that it resumed."""
    run: Session | None = parent
    while run is not None and not run.context_tokens:
        resumed = run.continued_by == Session.ContinuedBy.RESUME
        run = run.parent_session if resumed else None
    return run.context_tokens if run else 0


def transcript_of(parent: Session) -> Transcript:
    match transcripts.find_on_disk(parent):
        case transcripts.TranscriptState.PRESENT:
            return Transcript.ON_DISK
        case transcripts.TranscriptState.UNREADABLE:
            return Transcript.UNREADABLE
    return Transcript.ARCHIVED if transcripts.is_archived(parent.session_id) else Transcript.GONE


def context_window_of(model: str, cli_version: str) -> int:
    """As last reported by this version of the CLI, for a model by either of its names.

    A tier may ask for an alias, and the CLI reports the full name.
    """
    reported = Session.objects.filter(
        Q(model=model) | Q(model_used=model), cli_version=cli_version, context_window__gt=0
    )
    seen = reported.order_by("-pk").values_list("context_window", flat=True).first()
    return seen or default_window(model, cli_version)


def _window(session: Session, tier: Tier, binary: ClaudeBinary) -> int:
    """Looked up only for a run that continues another: no other fills it beforehand."""
    if session.parent_session_id is None:
        return default_window(tier.model, binary.version)
    return context_window_of(tier.model, binary.version)


def _is_fresh_wanted(session: Session) -> bool:
    """The cycle's wish is about higher tiers: a tier may always continue its own conversation."""
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
