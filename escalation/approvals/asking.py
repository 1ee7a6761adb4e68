"""Asking a person: the question is stored and told in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import salted_hmac

from escalation.word.happenings import tell
from sessions_app.models import Approval, Happening, Incident, Session
from sessions_app.reading.masking import masked, masked_data
from sessions_app.reading.plain_text import one_line
from sessions_app.reading.report_text import ReportItem, read_report

if TYPE_CHECKING:
    from django.contrib.auth.models import User

LONGEST_WHY = 300
LONGEST_PLAN = 4_000
LONGEST_PATH = 1_000
BY_STARTING = "Started by somebody who may approve it, and who confirmed it."


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAsked:
    """One command that waits, as the gate judged it."""

    command: str
    cwd: str
    why: str
    doors: Sequence[str] = ()
    actions: Sequence[str] = ()
    plan: str = ""

    @property
    def fingerprint(self) -> str:
        """Of all that makes it this command: what is shown of it is masked, and so could be
        another's. Keyed, because what is masked might be guessed."""
        facts = "\0".join((self.command, self.cwd, *sorted(self.doors), "", *self.actions))
        return salted_hmac("approval of a command", facts, algorithm="sha256").hexdigest()


def ask_for_tier(session: Session, why: str, plan: str, *, told: bool = True) -> Approval:
    """`told`: people hear of it now, and not only when its plan is there."""
    return _asked(
        told=told,
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
        command=masked(asked.command),
        cwd=asked.cwd[:LONGEST_PATH],
        fingerprint=asked.fingerprint,
        doors=list(asked.doors),
        actions=masked_data(list(asked.actions)),
        expires_at=timezone.now() + lasts,
    )


def approved_by_starting(session: Session, why: str, by: User) -> Approval:
    """Who may approve a tier, starts it and confirms that, has approved it thereby."""
    now = timezone.now()
    return Approval.objects.create(
        kind=Approval.Kind.TIER,
        session=session,
        why=why[:LONGEST_WHY],
        state=Approval.State.APPROVED,
        expires_at=now,
        decided_at=now,
        decided_by=by,
        note=BY_STARTING,
    )


def carried_over(session: Session, to: Session) -> None:
    """The same run once more, because its start came to nothing: what was approved still is."""
    granted = Approval.objects.filter(
        session=session, kind=Approval.Kind.TIER, state=Approval.State.APPROVED
    ).first()
    if granted is not None:
        granted.note = f"{granted.note} Carried over from approval {granted.pk}.".strip()
        granted.pk, granted.session, granted.used_at = None, to, None
        granted._state.adding = True
        granted.save()


def plan_in(session: Session) -> str:
    """What a run reported and asked for, as the plan that the next tier would follow."""
    report = read_report(session.report)
    if report is None:
        return session.escalation_reason
    told = [
        report.summary,
        f"It asks for more: {report.escalation}" if report.wants_escalation else "",
        *(f"Service {_item(item)}" for item in report.services),
        *(f"Done: {_item(item)}" for item in report.actions),
    ]
    return "\n".join(filter(None, told))


def _item(item: ReportItem) -> str:
    return one_line(" · ".join(filter(None, (item.name, item.state, item.detail))), 300)


def _asked(*, why: str, plan: str, session: Session, told: bool = True, **facts: Any) -> Approval:
    approval = Approval.objects.create(
        session=session, why=masked(why)[:LONGEST_WHY], plan=masked(plan)[:LONGEST_PLAN], **facts
    )
    if told:
        tell_people(approval)
    return approval


def tell_people(approval: Approval) -> None:
    """Once, and never about a drill."""
    cycle = approval.session.cycle
    if cycle.drill or Happening.objects.filter(approval=approval).exists():
        return
    incident = cycle.incidents.order_by("-severity", "-pk").first()
    tell(
        Happening.Kind.APPROVAL_WANTED,
        f"{cycle.subject}: {_wanted(approval)}",
        text="\n".join(filter(None, (approval.why, approval.plan))),
        severity=incident.severity if incident else Incident.Severity.WARNING,
        watch=cycle.watch,
        incident=incident,
        approval=approval,
        path=approval.get_absolute_url(),
    )


def _wanted(approval: Approval) -> str:
    if approval.kind == Approval.Kind.COMMAND:
        return f"may `{one_line(approval.command, 120)}` run?"
    return f"may Tier {approval.session.tier} start?"
