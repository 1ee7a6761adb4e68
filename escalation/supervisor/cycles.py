"""Starting a cycle: one at a time for each watch, guaranteed by the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from django.db import IntegrityError, transaction

from escalation.errors import CycleActive, OperationRefused
from escalation.next_step.run_choice import AS_USUAL, RunChoice
from escalation.next_step.starting import begin
from escalation.policy.budgets import require_budget
from escalation.tiers import LOWEST_TIER
from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.policy import refusal

if TYPE_CHECKING:
    from django.contrib.auth.models import User

Enqueue = Callable[[Session], None]


def leave_to_caller(session: Session) -> None:
    """The enqueue of a foreground run: the caller runs the session itself."""


def start(
    watch: Watch,
    *,
    trigger: str,
    enqueue: Enqueue,
    requested_by: User | None = None,
    prompt: str = "",
    tier: int = LOWEST_TIER,
    force_fresh: bool = False,
    ephemeral: bool = False,
    max_tier: int | None = None,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Cycle:
    """Create the cycle and its first session, and hand that on, in one transaction."""
    if why := refusal(tier, watch.policy):
        raise OperationRefused(why)
    require_budget(Cycle(watch=watch))
    cycle = Cycle(
        watch=watch,
        watch_name=watch.name,
        trigger=trigger,
        requested_by=requested_by,
        prompt=prompt,
        workdir=watch.workdir,
        instructions=watch.instructions,
        first_tier=tier,
        max_tier=watch.max_tier if max_tier is None else min(max_tier, watch.max_tier),
        dry_run=watch.dry_run,
        approval=watch.approval,
        ask=watch.ask,
        force_fresh=force_fresh,
        ephemeral=ephemeral,
    )
    try:
        with transaction.atomic():
            cycle.save()
            begin(
                first_session(cycle, choice),
                enqueue=enqueue,
                by=requested_by,
                confirmed=confirmed,
            )
    except IntegrityError as error:
        active = Cycle.active_of(watch)
        if active is None:
            raise
        raise CycleActive(
            f"Cycle {active.pk} of {watch.name} is still {active.get_state_display()}; "
            "wait for it to finish."
        ) from error
    return cycle


def first_session(cycle: Cycle, choice: RunChoice = AS_USUAL) -> Session:
    return Session.objects.create(
        cycle=cycle,
        tier=cycle.first_tier,
        workdir=cycle.workdir,
        continued_by=Session.ContinuedBy.FRESH,
        continued_why="first run of the cycle",
        **choice.fields(cycle.first_tier),
    )
