"""One factory per model: valid defaults, and traits for named situations."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
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

from sessions_app.models import (
    ApiToken,
    Approval,
    Change,
    Channel,
    Cycle,
    DailyVerdict,
    Incident,
    Message,
    Notification,
    PeriodCost,
    Probe,
    Remedy,
    RemedyRun,
    SandboxProof,
    ServiceState,
    Session,
    SessionEvent,
    Source,
    Watch,
)
from sessions_app.models.costs import COUNTED_FIELDS
from sessions_app.redaction.encryption import encrypt_address

PASSWORD = "correct horse battery staple"
MODELS = {1: "haiku", 2: "sonnet", 3: "opus"}


class ModelFactory(DjangoModelFactory[Any]):
    class Meta:
        abstract = True

    if TYPE_CHECKING:

        def __new__(cls, *args: Any, **kwargs: Any) -> Any:
            """Declare for mypy that calling a factory returns a row."""


class UserFactory(ModelFactory):
    class Meta:
        model = User

    username = Sequence(lambda n: f"person-{n}")
    password = LazyFunction(lambda: make_password(PASSWORD))


class ApiTokenFactory(ModelFactory):
    """A token that nobody knows; `sessions_app.access.tokens.create` makes one to use."""

    class Meta:
        model = ApiToken

    user = SubFactory(UserFactory)
    name = Sequence(lambda n: f"token-{n}")
    scopes = "read"
    prefix = "cops_abcd"
    token_hash = Sequence(lambda n: f"{n:064d}")


class WatchFactory(ModelFactory):
    class Meta:
        model = Watch

    name = Sequence(lambda n: f"watch-{n}")
    workdir = "/tmp"
    interval_minutes = 60
    enabled = True
    max_tier = 3
    dry_run = False
    approval = ""


class ProbeFactory(ModelFactory):
    class Meta:
        model = Probe

    watch = SubFactory(WatchFactory)
    name = Sequence(lambda n: f"probe-{n}")
    service = "web"
    kind = Probe.Kind.TCP
    target = "127.0.0.1:9"


class RemedyFactory(ModelFactory):
    class Meta:
        model = Remedy

    watch = SubFactory(WatchFactory)
    name = Sequence(lambda n: f"remedy-{n}")
    description = "Restarts a container."
    command = LazyFunction(lambda: ["docker", "restart", "{service}"])
    parameters = "service: service"
    kind = Remedy.Kind.RESTART
    grants = "docker"


class RemedyRunFactory(ModelFactory):
    """A run by a person that succeeded."""

    class Meta:
        model = RemedyRun

    remedy = SubFactory(RemedyFactory)
    watch = SelfAttribute("remedy.watch")
    name = SelfAttribute("remedy.name")
    kind = SelfAttribute("remedy.kind")
    arguments = LazyFunction(lambda: ["web"])
    service = "web"
    by_name = "ann"
    state = RemedyRun.State.SUCCEEDED
    exit_code = 0


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

    @classmethod
    def _create(cls, model_class: type[Session], *args: Any, **fields: Any) -> Session:
        """Count the session as if it had reached its status by a transition."""
        session: Session = super()._create(model_class, *args, **fields)
        PeriodCost.move(None, Session.objects.values(*COUNTED_FIELDS).get(pk=session.pk))
        return session


class SessionEventFactory(ModelFactory):
    """Event with a text of the model."""

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


class CommandEventFactory(ModelFactory):
    """Event of the command policy: its decision on a command."""

    class Meta:
        model = SessionEvent

    class Params:
        command = "docker ps"
        verdict = "allow"
        more: dict[str, Any] = {}

    session = SubFactory(SessionFactory)
    sequence = Sequence(lambda n: n)
    source = SessionEvent.Source.SUPERVISOR
    kind = "command"
    payload = LazyAttribute(
        lambda event: {
            "text": f"{event.command}: {event.verdict}",
            "command": event.command,
            "verdict": event.verdict,
            "rule": "docker ps",
            "grants": ["docker"],
            "milliseconds": 1.25,
            **event.more,
        }
    )

    @classmethod
    def _create(cls, model_class: type[SessionEvent], *args: Any, **fields: Any) -> SessionEvent:
        event: SessionEvent = super()._create(model_class, *args, **fields)
        DailyVerdict.count_events([event])
        return event


class SandboxProofFactory(ModelFactory):
    """A sandbox proof without failures. With `worse`, the higher tiers wait."""

    class Meta:
        model = SandboxProof

    class Params:
        worse = Trait(is_worse=True, failed=1)

    kind = SandboxProof.Kind.CORPUS
    host = "lab"
    cli_version = "2.1.325"
    cli_fingerprint = "f" * 64
    kernel = "6.1.0"
    sandbox = "bubblewrap 0.8.0"
    rows = LazyFunction(
        lambda: [
            {
                "tier": 1,
                "command": "docker ps",
                "expect": "allow",
                "decision": "allow",
                "happened": "it worked",
                "ok": True,
                "rule": "docker ps",
            }
        ]
    )
    tried = LazyAttribute(lambda proof: len(proof.rows))
    failed = 0
    started_at = LazyFunction(lambda: timezone.now() - timedelta(minutes=2))


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


def user_with(role: str, **fields: Any) -> User:
    """Create an account with this role, or without a role if it is empty."""
    user: User = UserFactory(**fields)
    if role:
        user.groups.add(Group.objects.get_or_create(name=role)[0])
    return user


class IncidentFactory(ModelFactory):
    """An incident that a cycle has just found."""

    class Meta:
        model = Incident

    watch = SubFactory(WatchFactory)
    watch_name = LazyAttribute(lambda incident: incident.watch.name if incident.watch else "")
    kind = Incident.Kind.PROBLEM
    scope = LazyAttribute(
        lambda incident: f"watch:{incident.watch.pk}" if incident.watch else "installation"
    )
    cause = Sequence(lambda n: f"service-{n}")
    title = LazyAttribute(lambda incident: f"{incident.cause} is down")


class ApprovalFactory(ModelFactory):
    """An approval of a tier that waits for an answer."""

    class Meta:
        model = Approval

    class Params:
        of_a_command = Trait(
            kind=Approval.Kind.COMMAND,
            session=SubFactory(SessionFactory, running=True, tier=2),
            command="docker restart web",
            actions=["docker restart web"],
            grants=["docker"],
        )

    kind = Approval.Kind.TIER
    session = SubFactory(
        SessionFactory, running=True, tier=3, status=Session.Status.AWAITING_APPROVAL
    )
    why = "Tier 3 needs approval."
    expires_at = LazyFunction(lambda: timezone.now() + timedelta(hours=1))


class ChangeFactory(ModelFactory):
    """A restart that the command policy allowed to a Tier 2 session."""

    class Meta:
        model = Change

    session = SubFactory(SessionFactory, tier=2)
    watch = LazyAttribute(lambda change: change.session.cycle.watch)
    call = Sequence(lambda n: f"{n:08x}")
    kind = Change.Kind.RESTART
    service = "web"
    action = "docker restart web"
    command = "docker restart web"
    exit_code = 0


class ChannelFactory(ModelFactory):
    """A channel to a local webhook without a listener."""

    class Meta:
        model = Channel

    class Params:
        address = "json://127.0.0.1:9/"

    name = Sequence(lambda n: f"channel-{n}")
    encrypted_address = LazyAttribute(lambda channel: encrypt_address(channel.address))
    service = "JSON (127.0.0.1)"


class SourceFactory(ModelFactory):
    """A source whose address nobody knows, without a secret."""

    class Meta:
        model = Source

    name = Sequence(lambda n: f"source-{n}")
    kind = "alertmanager"
    token_hash = Sequence(lambda n: f"{n:064d}")
    watch = SubFactory(WatchFactory)


class NotificationFactory(ModelFactory):
    """A notification of a new incident that was not sent yet."""

    class Meta:
        model = Notification

    kind = Notification.Kind.INCIDENT_OPENED
    severity = Incident.Severity.WARNING
    incident = SubFactory(IncidentFactory)
    watch = LazyAttribute(
        lambda notification: notification.incident and notification.incident.watch
    )
    title = LazyAttribute(
        lambda notification: (
            notification.incident.title if notification.incident else "Something happened"
        )
    )
    text = "It answers 502."
    path = "/incidents/1/"


class MessageFactory(ModelFactory):
    """A message that is due now."""

    class Meta:
        model = Message

    channel = SubFactory(ChannelFactory)
    title = "shop: web is down"
    body = "It answers 502."
    severity = Incident.Severity.WARNING


class ServiceStateFactory(ModelFactory):
    """A service that was healthy in one cycle."""

    class Meta:
        model = ServiceState

    watch = SubFactory(WatchFactory)
    service = Sequence(lambda n: f"service-{n}")
    name = LazyAttribute(lambda state: state.service)
    status = ServiceState.Status.HEALTHY
    place = LazyAttribute(lambda state: ServiceState.place_of(state.status))
    since = LazyFunction(timezone.now)
    seen_at = LazyFunction(timezone.now)
    cycle = LazyAttribute(lambda state: CycleFactory(watch=state.watch))
    marks = LazyAttribute(
        lambda state: [[state.cycle.pk, state.status, int(state.seen_at.timestamp())]]
    )
