"""One factory per model: boring valid defaults, traits for situations that have a name."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.utils import timezone
from factory.declarations import (
    LazyAttribute,
    LazyFunction,
    Maybe,
    SelfAttribute,
    Sequence,
    SubFactory,
    Trait,
)
from factory.django import DjangoModelFactory

from sessions_app.models import Cycle, Session, SessionEvent, Watch

PASSWORD = "correct horse battery staple"
MODELS = {1: "haiku", 2: "sonnet", 3: "opus"}


class ModelFactory(DjangoModelFactory[Any]):
    class Meta:
        abstract = True

    if TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """Calling a factory gives a row, which its class does not say."""


class UserFactory(ModelFactory):
    class Meta:
        model = User

    username = Sequence(lambda n: f"person-{n}")
    password = LazyFunction(lambda: make_password(PASSWORD))


class WatchFactory(ModelFactory):
    class Meta:
        model = Watch

    name = Sequence(lambda n: f"watch-{n}")
    workdir = "/tmp"
    interval_minutes = 60
    max_tier = 3
    dry_run = False


class CycleFactory(ModelFactory):
    """A cycle that ended well. `running` is still under way."""

    class Meta:
        model = Cycle

    class Params:
        drilled = Trait(watch=None, drill="disk-full")
        running = Trait(state=Cycle.State.RUNNING, outcome="", outcome_reason="", finished_at=None)
        failed = Trait(
            outcome=Cycle.Outcome.COULD_NOT_RUN, outcome_reason="The CLI ended with exit code 1."
        )

    watch = SubFactory(WatchFactory)
    trigger = Cycle.Trigger.SCHEDULE
    workdir = "/tmp"
    state = Cycle.State.FINISHED
    outcome = Cycle.Outcome.HEALTHY
    outcome_reason = "All services answer."
    finished_at = LazyFunction(timezone.now)


class SessionFactory(ModelFactory):
    """A Tier 1 run that ended well. A child belongs to its parent's cycle."""

    class Meta:
        model = Session

    class Params:
        running = Trait(
            status=Session.Status.RUNNING,
            cycle=SubFactory(CycleFactory, running=True),
            cost_usd=None,
            duration_ms=None,
            finished_at=None,
            exit_code=None,
        )
        failed = Trait(
            status=Session.Status.FAILED, cost_usd=None, exit_code=1, error="The CLI broke."
        )
        escalated = Trait(
            status=Session.Status.ESCALATED, escalation_reason="The tier asks for help."
        )
        drill = Trait(cycle=SubFactory(CycleFactory, drilled=True))

    cycle = Maybe(
        "parent_session",
        yes_declaration=SelfAttribute("parent_session.cycle"),
        no_declaration=SubFactory(CycleFactory),
    )
    parent_session = None
    tier = 1
    model = LazyAttribute(lambda session: MODELS[session.tier])
    status = Session.Status.COMPLETED
    session_id = Sequence(lambda n: f"00000000-0000-4000-8000-{n:012d}")
    cost_usd = Decimal("0.03")
    duration_ms = 42_000
    exit_code = 0
    started_at = LazyFunction(lambda: timezone.now() - timedelta(minutes=1))
    finished_at = LazyFunction(timezone.now)


class SessionEventFactory(ModelFactory):
    """Claude said something."""

    class Meta:
        model = SessionEvent

    class Params:
        said = "All quiet."

    session = SubFactory(SessionFactory)
    sequence = Sequence(lambda n: n)
    source = SessionEvent.Source.STREAM
    kind = "assistant"
    payload = LazyAttribute(
        lambda event: {
            "type": "assistant",
            "message": {"content": [{"type": "text", "text": event.said}]},
        }
    )


def three_tier_chain(**facts: object) -> tuple[Session, Session, Session]:
    """The chain of REQ-4 and REQ-5: $0.03, then $0.47, then $2.00."""
    first = SessionFactory(escalated=True, cost_usd=Decimal("0.03"), **facts)
    second = SessionFactory(
        escalated=True, tier=2, parent_session=first, cost_usd=Decimal("0.47"), duration_ms=95_000
    )
    third = SessionFactory(
        tier=3, parent_session=second, cost_usd=Decimal("2.00"), duration_ms=400_000
    )
    return first, second, third
