"""What the pages of approvals show, as plain values."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.paginator import Page, Paginator
from django.db.models import QuerySet

from sessions_app.models import Approval, Incident
from sessions_app.reading.chain import Chain, chain_of

PAST_PER_PAGE = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalsPage:
    waiting: tuple[Approval, ...]
    past: Page[Approval]


@dataclass(frozen=True, kw_only=True, slots=True)
class ApprovalShown:
    approval: Approval
    chain: Chain
    incident: Incident | None

    @property
    def can_be_answered(self) -> bool:
        return self.approval.is_waiting and not self.approval.is_overdue

    @property
    def can_be_planned(self) -> bool:
        """A tier that continues a conversation, and was not asked for its plan yet."""
        approval = self.approval
        return (
            approval.kind == Approval.Kind.TIER
            and approval.plan_run is None
            and approval.session.parent_session_id is not None
        )


def load_approvals(page: str | None) -> ApprovalsPage:
    """What waits longest first, then what is over, newest first."""
    found = with_subject()
    past = found.exclude(state=Approval.State.WAITING).order_by("-id")
    return ApprovalsPage(
        waiting=waiting_approvals(), past=Paginator(past, PAST_PER_PAGE).get_page(page)
    )


def waiting_approvals() -> tuple[Approval, ...]:
    return tuple(with_subject().filter(state=Approval.State.WAITING).order_by("expires_at", "id"))


def load_approval(approval: Approval) -> ApprovalShown:
    """Two queries beside the approval itself."""
    cycle = approval.session.cycle
    return ApprovalShown(
        approval=approval,
        chain=chain_of(approval.session),
        incident=cycle.incidents.order_by("-severity", "-pk").first(),
    )


def with_subject() -> QuerySet[Approval]:
    return Approval.objects.select_related("session__cycle__watch", "decided_by", "plan_run")
