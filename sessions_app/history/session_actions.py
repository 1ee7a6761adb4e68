"""Actions that a page offers for an ended session. Pure functions.

The endpoints check again if an action is permitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sessions_app.history.commands import SHORT_COMMAND, DeniedCommand, is_dry
from sessions_app.models import Session
from sessions_app.models.autonomy import objection_to
from sessions_app.models.session import RETRIED, sources_of
from sessions_app.text import cut_to_tokens, one_line, token_limit
from sessions_app.tiers import LOWEST_TIER, SAFE, highest_tier, tier_row, tier_title

# Limits in estimated tokens. A reason is part of an escalation prompt, which stays under 500
# tokens in every script.
LONGEST_REASON = 50
LONGEST_REQUEST = 1_200


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
    request_is_optional: bool = False
    request: str = ""
    """Text that the field begins with."""
    command: str = ""
    """The denied command that it is offered for, shortened, and how many more; empty without."""
    longest_request: int = LONGEST_REQUEST
    """In estimated tokens."""
    offers_fresh: bool = False
    most_usd: Decimal | None = None
    """Largest budget that a person may choose; None without a choice."""
    is_harmless: bool = False

    @property
    def most_dollars(self) -> str:
        """Value for a field of a form."""
        return f"{self.most_usd:.2f}" if self.most_usd is not None else ""

    @property
    def limit(self) -> str:
        return token_limit(self.longest_request)

    @property
    def needs_confirmation(self) -> bool:
        return self.tier >= SAFE and not self.is_harmless


def actions_for(
    session: Session,
    chain: Iterable[Session] = (),
    *,
    denied: Iterable[DeniedCommand] = (),
    chain_is_spent: bool = False,
) -> tuple[SessionAction, ...]:
    """Return the actions in the order of a page.

    `chain`: the sessions of its cycle. `denied`: what was denied in them. `chain_is_spent`: the
    budget of the chain is used up.
    """
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
    may_retry = session.status in RETRIED and not session.is_interactive
    if may_retry and (may_run_again or session.is_question):
        offered.append(_retry(session))
    may_escalate = not objection_to(session.tier + 1, session.cycle.policy)
    if _is_finished(session) and may_escalate and not chain_is_spent:
        offered.append(_escalate(session))
    withheld = withheld_tier(session, chain, denied)
    if withheld is not None and (
        withheld.commands or chain_is_spent or _escalate_is_less(session, withheld)
    ):
        offered.append(_allow(session, withheld))
    return tuple(offered)


@dataclass(frozen=True, kw_only=True, slots=True)
class WithheldTier:
    """A tier that a person can allow once, whatever the policy."""

    tier: int
    origin: Session
    """Session whose conversation it continues."""
    commands: tuple[str, ...] = ()
    """Commands that were denied in that session, and that the tier would run."""

    @property
    def is_dry_run(self) -> bool:
        """True if the tier ran already, as a dry run."""
        return self.origin.tier == self.tier

    @property
    def request(self) -> str:
        """Permission as the tier is told of it.

        Empty without a denied command, and for a dry run: that is told to do what it proposed.
        """
        if not self.commands or self.is_dry_run:
            return ""
        return cut_to_tokens(f"You may now run: {'; '.join(self.commands)}", LONGEST_REASON)


def withheld_tier(
    session: Session, chain: Iterable[Session] = (), denied: Iterable[DeniedCommand] = ()
) -> WithheldTier | None:
    """Return the tier that did not follow a session, or None. `chain`: the sessions of its cycle.

    The tier was held back, or its session waited for an answer and never began, or it ran as a dry
    run. What ran for real is not withheld. `denied`: the commands that were denied in the chain.
    """
    if session.is_question or session.is_plan or session.is_open:
        return None
    runs = tuple(chain)
    if _never_began(session):
        parent = next((run for run in runs if run.pk == session.parent_session_id), None)
        is_below = parent is not None and parent.tier == session.tier - 1
        return withheld_tier(parent, runs, denied) if parent is not None and is_below else None
    ran_dry = session.tier > LOWEST_TIER and is_dry(session) and _is_finished(session)
    tier = session.tier if ran_dry else session.tier + 1
    if tier > highest_tier() or not (_is_finished(session) or session.status == "escalated"):
        return None
    followed = [run for run in runs if run.parent_session_id == session.pk and run.tier == tier]
    if any(run.is_open or not (_never_began(run) or _looked_only(run)) for run in followed):
        return None
    commands = [
        one.command for one in denied if one.session == session.pk and one.allowed_from <= tier
    ]
    return WithheldTier(tier=tier, origin=session, commands=tuple(dict.fromkeys(commands)))


def _never_began(session: Session) -> bool:
    """Return True if no conversation was started for the session."""
    return not session.is_open and not session.session_id


def _looked_only(session: Session) -> bool:
    return session.is_question or session.is_plan or session.is_interactive


def _escalate_is_less(session: Session, withheld: WithheldTier) -> bool:
    """Return True if escalating as usual would not run the tier for real."""
    policy = session.cycle.policy
    is_usual = withheld.origin.pk == session.pk and _is_finished(session)
    return not is_usual or policy.dry_run or bool(objection_to(withheld.tier, policy))


def held_back(session: Session) -> str:
    """Return why the policy forbids the next tier, or an empty string."""
    tier = session.tier + 1
    if tier > highest_tier() or not _is_finished(session):
        return ""
    why = objection_to(tier, session.cycle.policy)
    advice = "An approver can allow it once, in this conversation, or change the watch."
    return f"Tier {tier} is not started: {why}. {advice}" if why else ""


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


def _allow(session: Session, withheld: WithheldTier) -> SessionAction:
    tier, origin = withheld.tier, withheld.origin
    command, more = "", len(withheld.commands) - 1
    if withheld.commands:
        command = one_line(withheld.commands[0], SHORT_COMMAND)
        command += f" and {more} more" if more else ""
    where = "this conversation" if origin.pk == session.pk else f"that of session #{origin.pk}"
    return SessionAction(
        name="allow_session",
        title=f"Allow Tier {tier} once{f': {command}' if command else ''}",
        effect=f"Runs {tier_title(tier)}, in {where}, for real, whatever the autonomy of the "
        "watch. This is your approval, once, for the amount below. The budgets of the day, "
        "cooldowns and the sandbox stay in force.",
        button=f"Allow Tier {tier} once",
        tier=tier,
        request_label="Note, which the agent is told",
        request_is_optional=True,
        request=withheld.request,
        command=command,
        longest_request=LONGEST_REASON,
        most_usd=tier_row(tier).max_budget_usd,
    )
