"""Starts cycles. The database allows one active cycle per watch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import IntegrityError

from escalation.errors import CycleActive, OperationRefused, RefusalCode
from escalation.queue import installation_lock
from escalation.supervisor.budgets import require_budget
from escalation.supervisor.successors import AS_USUAL, RunChoice, begin
from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.autonomy import refusal
from sessions_app.tiers import LOWEST_TIER

if TYPE_CHECKING:
    from django.contrib.auth.models import User


def start(
    watch: Watch,
    *,
    trigger: str,
    requested_by: User | None = None,
    prompt: str = "",
    tier: int = LOWEST_TIER,
    force_fresh: bool = False,
    ephemeral: bool = False,
    max_tier: int | None = None,
    choice: RunChoice = AS_USUAL,
    confirmed: bool = False,
) -> Cycle:
    """Creates a cycle with its first session and enqueues it, in one transaction."""
    if why := refusal(tier, watch.policy):
        raise OperationRefused(RefusalCode.POLICY, why)
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
        with installation_lock():
            if not Watch.objects.filter(pk=watch.pk).exists():
                raise OperationRefused(
                    RefusalCode.WATCH_REMOVED,
                    f"Nothing was started: the watch {watch.name} was removed.",
                )
            cycle.save()
            begin(
                first_session(cycle, choice),
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
