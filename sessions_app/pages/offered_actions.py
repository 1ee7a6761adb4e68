"""What a person is offered to do with a session: what its endpoint would accept from them."""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.access.roles import Right
from sessions_app.models import Session
from sessions_app.reading.session_actions import Action, actions_for, held_back

ACTION_RIGHTS = {
    "follow_up": Right.FOLLOW_UP,
    "fork_session": Right.RUN,
    "retry_session": Right.RUN,
    "escalate_session": Right.ESCALATE,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferedActions:
    session: Session
    actions: tuple[Action, ...]
    held_back: str


def offered_actions(session: Session, rights: frozenset[Right]) -> OfferedActions:
    return OfferedActions(
        session=session,
        actions=tuple(
            action for action in actions_for(session) if ACTION_RIGHTS[action.name] in rights
        ),
        held_back=held_back(session),
    )
