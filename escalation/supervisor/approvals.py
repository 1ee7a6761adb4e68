"""Approvals: requests, answers, and links that answer without a login."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.db.models import Q, QuerySet
from django.urls import reverse
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from escalation.errors import OperationRefused, RefusalCode
from escalation.notifications import services
from escalation.notifications.outbox import notify
from sessions_app.access.roles import Right, may, refusal
from sessions_app.history.claims import ReportItem, read_report
from sessions_app.models import (
    Approval,
    Channel,
    Cycle,
    Incident,
    MetricTotal,
    Notification,
    Session,
)
from sessions_app.models.installation import moment_text
from sessions_app.models.session import EventKind
from sessions_app.redaction.redact import redacted, redacted_data
from sessions_app.text import one_line

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from django.contrib.auth.models import User


State = Approval.State
CLOSED = {
    State.WAITING: (RefusalCode.APPROVAL_ANSWERED, "cannot be answered now"),
    State.APPROVED: (RefusalCode.APPROVAL_ANSWERED, "was approved already"),
    State.REJECTED: (RefusalCode.APPROVAL_ANSWERED, "was rejected already"),
    State.EXPIRED: (RefusalCode.APPROVAL_EXPIRED, "has expired: nobody answered in time"),
    State.WITHDRAWN: (RefusalCode.APPROVAL_WITHDRAWN, "was withdrawn: the session is over"),
}


def answer(approval: Approval, state: str, *, by: User, way: str = "", note: str = "") -> Approval:
    """Stores the answer once, if the account may answer now. Raises OperationRefused."""
    note = checked_note(note, state)
    with transaction.atomic():
        if refused := objection_to(approval, _locked(by)):
            raise refused
        answered = Approval.objects.filter(
            pk=approval.pk, state=State.WAITING, expires_at__gt=timezone.now()
        ).update(
            state=state, decided_at=timezone.now(), decided_by=by, way=way, note=redacted(note)
        )
        approval.refresh_from_db()
        if not answered:
            raise too_late(approval)
        _count(approval)
    return approval


def _locked(user: User) -> User | None:
    """Returns the account, locked until the end of the transaction."""
    return User.objects.select_for_update(no_key=True).filter(pk=user.pk).first()


def objection_to(approval: Approval, user: User | None) -> OperationRefused | None:
    """Returns the refusal if this account may not answer now."""
    if user is None:
        return OperationRefused(RefusalCode.ACCOUNT_MISSING, "The account does not exist any more.")
    if not may(user, Right.APPROVE):
        return OperationRefused(RefusalCode.NOT_PERMITTED, refusal(user, Right.APPROVE))
    cycle = approval.session.cycle
    if cycle.requested_by_id == user.pk and cycle.trigger not in Cycle.ATTENDED_TRIGGERS:
        return OperationRefused(
            RefusalCode.OWN_REQUEST,
            f"{user.get_username()} requested this unattended run, so another account has to "
            "answer.",
        )
    return None


def too_late(approval: Approval) -> OperationRefused:
    """Returns the refusal of an answer to an approval that is closed."""
    state = State.EXPIRED if approval.is_overdue else State(approval.state)
    code, closed = CLOSED[state]
    by = f" by {approval.decided_by.get_username()}" if approval.decided_by else ""
    return OperationRefused(
        code, f"Approval {approval.pk} {closed}{by}. Your answer changes nothing."
    )


def checked_note(note: str, state: str) -> str:
    """Returns the stripped note. A form sends a line end as two characters and counts one."""
    said = note.strip().replace("\r\n", "\n")
    if len(said) > Approval.LONGEST_NOTE:
        raise OperationRefused(
            RefusalCode.TEXT_TOO_LONG,
            f"A note has at most {Approval.LONGEST_NOTE} characters; this has {len(said)}. Nothing "
            "was answered.",
        )
    if state == State.REJECTED and not said:
        raise OperationRefused(
            RefusalCode.TEXT_MISSING, "Give a reason for the rejection: the session receives it."
        )
    return said


def withdraw(session: Session) -> int:
    """Withdraws the command approvals of a session that has ended."""
    asked = Approval.objects.filter(session=session, kind=Approval.Kind.COMMAND)
    return _closed(asked, State.WITHDRAWN)


def pass_on(session: Session, to: Session) -> int:
    """Lets command approvals wait on for the session that continues an interrupted one."""
    asked = Approval.objects.filter(session=session, kind=Approval.Kind.COMMAND)
    return asked.filter(state=State.WAITING).update(session=to)


def expire(numbers: Iterable[int], now: datetime) -> int:
    overdue = Approval.objects.filter(pk__in=numbers, expires_at__lte=now)
    return _closed(overdue, State.EXPIRED)


def close(approval: Approval, state: str) -> bool:
    """Closes an approval without an answer. Returns False if it was closed before."""
    return bool(_closed(Approval.objects.filter(pk=approval.pk), state))


def _closed(approvals: QuerySet[Approval], state: str) -> int:
    waiting = approvals.filter(state=State.WAITING).select_related("session__cycle")
    return sum(_close_one(approval, state) for approval in waiting)


@transaction.atomic
def _close_one(approval: Approval, state: str) -> bool:
    """Return False if it was closed meanwhile."""
    now = timezone.now()
    row = Approval.objects.filter(pk=approval.pk, state=State.WAITING)
    if not row.update(state=state, decided_at=now):
        return False
    approval.state, approval.decided_at = state, now
    _count(approval)
    return True


def _count(approval: Approval) -> None:
    """Add the wait to the totals for Prometheus."""
    if approval.session.is_drill or approval.decided_at is None:
        return
    waited = (approval.decided_at - approval.asked_at).total_seconds()
    MetricTotal.add(MetricTotal.Name.APPROVALS, approval.kind, approval.state, seconds=waited)


LONGEST_PLAN = 4_000
LONGEST_WHY = 300


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAsked:
    """A command that waits for approval, as the command policy read it."""

    command: str
    cwd: str
    why: str
    grants: Sequence[str] = ()
    actions: Sequence[str] = ()
    plan: str = ""

    @property
    def fingerprint(self) -> str:
        """Identifies the unredacted command. Keyed, because redacted values could be guessed."""
        facts = "\0".join((self.command, self.cwd, *sorted(self.grants), "", *self.actions))
        return salted_hmac("approval of a command", facts, algorithm="sha256").hexdigest()


def ask_for_tier(session: Session, why: str, plan: str, *, notify: bool = True) -> Approval:
    """Requests approval of a tier. `notify`: send the notification now, not with the plan."""
    return _asked(
        notify=notify,
        kind=Approval.Kind.TIER,
        session=session,
        why=why,
        plan=plan,
        expires_at=timezone.now() + timedelta(seconds=settings.CLAUDEOPS_APPROVAL_EXPIRES),
    )


def ask_for_command(session: Session, asked: CommandAsked) -> Approval:
    lasts = timedelta(seconds=settings.CLAUDEOPS_COMMAND_APPROVAL_EXPIRES)
    return _asked(
        kind=Approval.Kind.COMMAND,
        session=session,
        why=asked.why,
        plan=asked.plan,
        command=redacted(asked.command),
        cwd=asked.cwd,
        fingerprint=asked.fingerprint,
        grants=list(asked.grants),
        actions=redacted_data(list(asked.actions)),
        expires_at=timezone.now() + lasts,
    )


def approved_by_starting(session: Session, why: str, by: User) -> Approval:
    """Stores the approval that a confirmed start by an approver implies."""
    now = timezone.now()
    approval = Approval.objects.create(
        kind=Approval.Kind.TIER,
        session=session,
        why=why,
        state=Approval.State.APPROVED,
        expires_at=now,
        decided_at=now,
        decided_by=by,
        way=Approval.Way.START,
    )
    session.note(EventKind.APPROVAL, approval.answer_text)
    return approval


def allowed_once(session: Session, why: str, *, by: User, way: str, note: str) -> Approval:
    """Stores that a person allowed the tier of a session once. Raises OperationRefused."""
    now = timezone.now()
    approval = Approval(
        kind=Approval.Kind.TIER,
        session=session,
        why=one_line(redacted(why), LONGEST_WHY),
        budget_usd=session.max_budget_usd,
        state=Approval.State.APPROVED,
        expires_at=now,
        decided_at=now,
        decided_by=by,
        way=way,
        note=redacted(note),
    )
    if refused := objection_to(approval, _locked(by)):
        raise refused
    approval.save()
    session.note(EventKind.APPROVAL, approval.answer_text)
    return approval


def carried_over(session: Session, to: Session) -> None:
    """Copies the approval to a session that repeats one whose start failed."""
    granted = Approval.objects.filter(
        session=session, kind=Approval.Kind.TIER, state=Approval.State.APPROVED
    ).first()
    if granted is not None:
        granted.note = f"{granted.note} Carried over from approval {granted.pk}.".strip()
        granted.pk, granted.session, granted.used_at = None, to, None
        granted._state.adding = True
        granted.save()


def plan_in(session: Session) -> str:
    """Returns the report of a session as the plan for the next tier."""
    report = read_report(session.report)
    if report is None:
        return session.escalation_reason
    lines = [
        report.summary,
        f"It asks for more: {report.escalation}" if report.wants_escalation else "",
        *(f"Service {_item(item)}" for item in report.services),
        *(f"Done: {_item(item)}" for item in report.actions),
    ]
    return "\n".join(filter(None, lines))


def _item(item: ReportItem) -> str:
    return one_line(" · ".join(filter(None, (item.name, item.state, item.detail))), 300)


def _asked(*, why: str, plan: str, session: Session, notify: bool = True, **facts: Any) -> Approval:
    approval = Approval.objects.create(
        session=session, why=redacted(why), plan=redacted(plan)[:LONGEST_PLAN], **facts
    )
    if notify:
        tell_people(approval)
    return approval


def tell_people(approval: Approval) -> None:
    """Sends the notification once, and never for a drill."""
    cycle = approval.session.cycle
    if cycle.drill or Notification.objects.filter(approval=approval).exists():
        return
    incident = cycle.incidents.order_by("-severity", "-pk").first()
    notify(
        Notification.Kind.APPROVAL_WANTED,
        f"{cycle.subject}: {_wanted(approval)}",
        text="\n".join(filter(None, (approval.why, *_asked_for(approval), approval.plan))),
        severity=incident.severity if incident else Incident.Severity.WARNING,
        watch=cycle.watch,
        incident=incident,
        approval=approval,
        cycle=cycle,
        path=approval.get_absolute_url(),
    )


def _asked_for(approval: Approval) -> list[str]:
    """Returns what an answer is about, whole: a button may be pressed on the message alone."""
    lines = []
    if approval.kind == Approval.Kind.COMMAND:
        lines = [f"Command: {approval.command}", f"In: {approval.cwd}" if approval.cwd else ""]
        lines.append(f"Grants: {', '.join(approval.grants)}" if approval.grants else "")
    return [*lines, f"Without an answer until {moment_text(approval.expires_at)}: no."]


def _wanted(approval: Approval) -> str:
    if approval.kind == Approval.Kind.COMMAND:
        return f"may `{one_line(approval.command, 120)}` run?"
    return f"may Tier {approval.session.tier} start?"


def asked_again(session: Session, asked: CommandAsked) -> Approval | None:
    """Returns the valid approval of the same command in this chain: the CLI or the session may have
    ended before the answer came."""
    now = timezone.now()
    holds = Q(state=State.WAITING, session=session) | Q(state=State.REJECTED)
    unused = Q(state=State.APPROVED, used_at=None)
    return (
        Approval.objects.filter(
            kind=Approval.Kind.COMMAND,
            fingerprint=asked.fingerprint,
            session__cycle=session.cycle_id,
            session__tier=session.tier,
            expires_at__gt=now,
        )
        .filter(holds | unused)
        .select_related("decided_by")
        .order_by("-pk")
        .first()
    )


@transaction.atomic
def question_about(session: Session, asked: CommandAsked) -> Approval:
    """Returns the approval of a command, and requests it if there is none."""
    return asked_again(session, asked) or ask_for_command(session, asked)


def take(approval: Approval) -> bool:
    """Uses an approval. Returns False if another call has used it."""
    unused = Approval.objects.filter(pk=approval.pk, state=State.APPROVED, used_at=None)
    return bool(unused.update(used_at=timezone.now()))


def give_back(approval: Approval) -> None:
    """Makes an approval usable again whose command was not started."""
    Approval.objects.filter(pk=approval.pk, state=State.APPROVED).update(used_at=None)


SALT = "escalation.supervisor.approvals"
LONGEST_TOKEN = 300


class Link(NamedTuple):
    """Link in a message that answers without a login, for one account.

    Opening it only shows a page, because mail programs open links. The answer is checked when the
    form on that page is sent.
    """

    approval: Approval
    user: User


def link_for(approval: Approval, user: User) -> str:
    """Returns the path of the link, without the address of the installation."""
    token = signing.dumps({"approval": approval.pk, "user": user.pk}, salt=SALT)
    return reverse("web:approval_link", args=[token])


BUTTON_SALT = "escalation.supervisor.approvals.button"
ANSWERS = {services.APPROVE: State.APPROVED, services.REJECT: State.REJECTED}
WAYS = {services.NTFY: Approval.Way.NTFY, services.TELEGRAM: Approval.Way.TELEGRAM}
SIGNATURE_BYTES = 16
_BUTTON = re.compile(r"([ar])\.([1-9][0-9]{0,17})\.([1-9][0-9]{0,17})\.([\w-]{22})", re.ASCII)


class Press(NamedTuple):
    """Press of a button in a message: an answer by the only reader of a channel."""

    approval: Approval
    user: User
    state: str
    way: str
    channel: int


def buttons_for(approval: Approval, channel: Channel, service: str) -> dict[str, str]:
    """Returns what the buttons of a message carry: at Telegram the data, otherwise a path.

    Slack has no button that acts without an address that Slack can reach: its buttons open the
    page of the link.
    """
    if channel.owner is None:
        return {}
    if service not in WAYS:
        page = link_for(approval, channel.owner)
        return {answer: f"{page}?answer={answer}" for answer in ANSWERS}
    way = WAYS[service]
    tokens = {name: _button(approval, channel, state, way) for name, state in ANSWERS.items()}
    if service == services.TELEGRAM:
        return tokens
    return {name: reverse("web:approval_button", args=[token]) for name, token in tokens.items()}


def _button(approval: Approval, channel: Channel, state: str, way: str) -> str:
    """Returns a token of at most 64 characters, the most that a button of Telegram carries. It
    holds for one person, channel, command and time, and for one answer."""
    facts = "\0".join(
        (
            *(way, state, str(channel.pk), str(channel.owner_id), str(approval.pk)),
            *(approval.kind, approval.fingerprint, approval.command),
            str(approval.expires_at.timestamp()),
        )
    )
    digest = salted_hmac(BUTTON_SALT, facts, algorithm="sha256").digest()[:SIGNATURE_BYTES]
    signed = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return f"{state[0]}.{approval.pk}.{channel.pk}.{signed}"


def pressed(token: str, way: str) -> Press | None:
    """Reads the token of a button. Returns None if it is forged, meant for another service, or if
    the channel is off or has another reader now."""
    found = _BUTTON.fullmatch(token)
    if found is None:
        return None
    related = Approval.objects.select_related("session__cycle__watch", "decided_by")
    approval = related.filter(pk=int(found[2])).first()
    channels = Channel.objects.select_related("owner").filter(pk=int(found[3]), enabled=True)
    channel = channels.exclude(owner=None).first()
    if approval is None or channel is None or channel.owner is None:
        return None
    state = State.APPROVED if found[1] == "a" else State.REJECTED
    if not constant_time_compare(_button(approval, channel, state, way), token):
        return None
    return Press(approval, channel.owner, state, way, channel.pk)


def opened(token: str) -> Link | None:
    """Reads a token. Returns None if it is invalid or its approval or account was removed."""
    if len(token) > LONGEST_TOKEN:
        return None
    try:
        named: Mapping[str, int] = signing.loads(token, salt=SALT)
        approval = Approval.objects.select_related("session__cycle__watch", "decided_by")
        return Link(approval.get(pk=named["approval"]), User.objects.get(pk=named["user"]))
    except (signing.BadSignature, Approval.DoesNotExist, User.DoesNotExist, KeyError, TypeError):
        return None
