"""What the page of a watch's trust shows: the steps, and what each would have done lately."""

from __future__ import annotations

from dataclasses import dataclass

from sessions_app.models import Watch
from sessions_app.models.trust import Step
from sessions_app.reading.trust_record import WhatIf, recorded_wishes, what_if


@dataclass(frozen=True, kw_only=True, slots=True)
class StepRow:
    step: Step
    is_in_force: bool
    is_more: bool
    """More than what is in force, or than settings that are no step."""
    would: WhatIf


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustPage:
    watch: Watch
    steps: tuple[StepRow, ...]

    @property
    def by_hand(self) -> bool:
        return self.watch.step is None


def load_trust(watch: Watch) -> TrustPage:
    """Three queries besides the watch itself."""
    record, now = recorded_wishes(watch), watch.step
    rows = (
        StepRow(
            step=step,
            is_in_force=step == now,
            is_more=now is None or step.rank > now.rank,
            would=what_if(record, step),
        )
        for step in Step
    )
    return TrustPage(watch=watch, steps=tuple(rows))
