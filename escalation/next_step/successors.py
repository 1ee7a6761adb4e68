"""The run that continues another, and the same run once more."""

from __future__ import annotations

from typing import Any

from escalation.next_step.run_choice import AS_USUAL, carried_over
from sessions_app.models import Session


def successor(session: Session, tier: int, purpose: str, **fields: Any) -> Session:
    """The run that continues a session. How it continues is decided when it starts."""
    return Session.objects.create(
        **{
            "cycle": session.cycle,
            "parent_session": session,
            "tier": tier,
            "purpose": purpose,
            "workdir": session.workdir,
            "continued_by": Session.ContinuedBy.RESUME,
            "continued_why": session.escalation_reason,
            **(carried_over(session) if tier == session.tier else AS_USUAL.fields(tier)),
            **fields,
        }
    )


def sibling(session: Session, **fields: Any) -> Session:
    """The same run once more, from the same point."""
    return Session.objects.create(
        **{
            "cycle": session.cycle,
            "parent_session": session.parent_session,
            "tier": session.tier,
            "purpose": session.purpose,
            "request": session.request,
            "requested_by": session.requested_by,
            "force_fresh": session.force_fresh,
            **carried_over(session),
            "workdir": session.workdir,
            **fields,
        }
    )
