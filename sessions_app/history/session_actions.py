"""What a person may do with a session that has ended. Pure: the forms are built from it.

Only what is offered is decided here; the endpoints that act decide again whether it may be done.
"""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.models import Session
from sessions_app.models.policy import HIGHEST_TIER, objection_to, refusal
from sessions_app.models.transitions import RETRIED, sources_of
from sessions_app.models.watch import TIER_CHOICES

FIRST_CHANGING_TIER = 2
# A reason is part of an escalation prompt, which must stay under 500 tokens.
LONGEST_REASON = 200
LONGEST_REQUEST = 4_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    name: str
    """Names the endpoint, and the fields of the form."""
    title: str
    effect: str
    """What will happen, before it does."""
    button: str
    tier: int
    """The tier that will run."""
    request_label: str = ""
    """Empty when there is nothing to say."""
    longest_request: int = LONGEST_REQUEST
    """In characters."""
    offers_fresh: bool = False
    is_harmless: bool = False

    @property
    def needs_confirmation(self) -> bool:
        return self.tier >= FIRST_CHANGING_TIER and not self.is_harmless


def actions_for(session: Session) -> tuple[Action, ...]:
    if session.is_open or session.cycle.is_active:
        return ()
    may_run_again = not objection_to(session.tier, session.cycle.policy)
    is_question = session.purpose == Session.Purpose.FOLLOW_UP
    has_conversation = session.started_at and not session.cycle.ephemeral
    offered = []
    if has_conversation:
        offered.append(_follow_up(session))
    if session.is_plan:
        return tuple(offered)
    if has_conversation and may_run_again:
        offered.append(_fork(session))
    if session.status in RETRIED and (may_run_again or is_question):
        offered.append(_retry(session))
    if _is_finished(session) and not objection_to(session.tier + 1, session.cycle.policy):
        offered.append(_escalate(session))
    return tuple(offered)


def held_back(session: Session) -> str:
    """Why the next tier is not offered, where one is: the policy holds for a person too."""
    is_highest = session.tier >= HIGHEST_TIER
    if is_highest or not _is_finished(session):
        return ""
    return refusal(session.tier + 1, session.cycle.policy)


def _is_finished(session: Session) -> bool:
    """Ended, and not sent on to the next tier yet."""
    return session.status in sources_of("escalated")


def _follow_up(session: Session) -> Action:
    return Action(
        name="follow_up",
        title="Follow up",
        effect="Asks a question in the same conversation. Claude may look again, with tools that "
        "only read, and answers; nothing is changed.",
        button="Ask",
        tier=session.tier,
        request_label="Your question",
        is_harmless=True,
    )


def _fork(session: Session) -> Action:
    return Action(
        name="fork_session",
        title="Try another approach",
        effect=f"Starts from the end of this conversation and goes another way, as Tier "
        f"{session.tier} with that tier's permissions. This session stays as it is; the new one "
        "is a branch of the chain.",
        button="Fork",
        tier=session.tier,
        request_label="What to do differently",
    )


def _retry(session: Session) -> Action:
    parent = session.parent_session_id
    origin = f"from where session #{parent} ended" if parent else "from the beginning"
    return Action(
        name="retry_session",
        title="Retry",
        effect=f"Runs Tier {session.tier} again {origin}, as if this run had not been. What it "
        "already changed on the system stays changed.",
        button=f"Retry Tier {session.tier}",
        tier=session.tier,
        offers_fresh=True,
    )


def _escalate(session: Session) -> Action:
    tier = session.tier + 1
    powers = "with the wider permissions of that tier"
    if session.cycle.policy.dry_run:
        powers = "as a dry run: it thinks with that tier's model and changes nothing"
    return Action(
        name="escalate_session",
        title=f"Escalate to Tier {tier}",
        effect=f"Runs {dict(TIER_CHOICES)[tier]}, in this conversation, {powers}. "
        "Your reason is part of its prompt and of the record.",
        button=f"Escalate to Tier {tier}",
        tier=tier,
        request_label="Reason",
        longest_request=LONGEST_REASON,
        offers_fresh=True,
    )
