"""Actions that a page offers for an ended session. Pure functions.

The endpoints check again if an action is permitted.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.models import Session
from sessions_app.models.autonomy import objection_to, refusal
from sessions_app.models.session import RETRIED, sources_of
from sessions_app.tiers import SAFE, highest_tier, tier_title

# A reason is part of an escalation prompt, which has a limit of 500 tokens.
LONGEST_REASON = 200
LONGEST_REQUEST = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionAction:
    name: str
    """Name of the endpoint and prefix of the form fields."""
    title: str
    effect: str
    """Description of the effect."""
    button: str
    tier: int
    """Tier of the new session."""
    request_label: str = ""
    """Label of the text field; empty without one."""
    longest_request: int = LONGEST_REQUEST
    offers_fresh: bool = False
    is_harmless: bool = False

    @property
    def needs_confirmation(self) -> bool:
        return self.tier >= SAFE and not self.is_harmless


def actions_for(session: Session) -> tuple[SessionAction, ...]:
    if session.is_open or session.cycle.is_active:
        return ()
    may_run_again = not objection_to(session.tier, session.cycle.policy)
    has_conversation = session.started_at and not session.cycle.ephemeral
    offered = []
    if has_conversation:
        offered.append(_follow_up(session))
    if session.is_plan:
        return tuple(offered)
    if has_conversation and may_run_again:
        offered.append(_fork(session))
    if session.status in RETRIED and (may_run_again or session.is_question):
        offered.append(_retry(session))
    if _is_finished(session) and not objection_to(session.tier + 1, session.cycle.policy):
        offered.append(_escalate(session))
    return tuple(offered)


def held_back(session: Session) -> str:
    """Return why the policy forbids the next tier, or an empty string."""
    is_highest = session.tier >= highest_tier()
    if is_highest or not _is_finished(session):
        return ""
    return refusal(session.tier + 1, session.cycle.policy)


def _is_finished(session: Session) -> bool:
    """Return True if the session has ended and can be escalated."""
    return session.status in sources_of("escalated")


def _follow_up(session: Session) -> SessionAction:
    return SessionAction(
        name="follow_up",
        title="Follow up",
        effect="Asks a question in the same conversation. Claude may use read-only tools to "
        "answer; nothing is changed.",
        button="Ask",
        tier=session.tier,
        request_label="Your question",
        is_harmless=True,
    )


def _fork(session: Session) -> SessionAction:
    return SessionAction(
        name="fork_session",
        title="Try another approach",
        effect="Continues from the end of this conversation with another approach, as Tier "
        f"{session.tier} with the permissions of that tier. This session is not changed; the new "
        "one is a branch of the chain.",
        button="Fork",
        tier=session.tier,
        request_label="What to do differently",
    )


def _retry(session: Session) -> SessionAction:
    parent = session.parent_session_id
    origin = f"from where session #{parent} ended" if parent else "from the beginning"
    return SessionAction(
        name="retry_session",
        title="Retry",
        effect=f"Runs Tier {session.tier} again {origin}, without this conversation. "
        "Changes that it made to the system remain.",
        button=f"Retry Tier {session.tier}",
        tier=session.tier,
        offers_fresh=True,
    )


def _escalate(session: Session) -> SessionAction:
    tier = session.tier + 1
    powers = "with the wider permissions of that tier"
    if session.cycle.policy.dry_run:
        powers = "as a dry run with the model of that tier, without changes"
    return SessionAction(
        name="escalate_session",
        title=f"Escalate to Tier {tier}",
        effect=f"Runs {tier_title(tier)}, in this conversation, {powers}. "
        "Your reason is part of its prompt and is stored.",
        button=f"Escalate to Tier {tier}",
        tier=tier,
        request_label="Reason",
        longest_request=LONGEST_REASON,
        offers_fresh=True,
    )
