"""How much wants a person's attention now: for the navigation of every page, in one query."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from django.db.models import CharField, QuerySet, Value
from django.utils import timezone

from sessions_app.models import Approval, Incident
from sessions_app.reading.unresolved_incidents import asks_for_person

INCIDENT, APPROVAL = "incident", "approval"


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Drills are not counted: nobody has to get up for them."""

    incidents: int = 0
    approvals: int = 0

    @property
    def total(self) -> int:
        return self.incidents + self.approvals

    @property
    def title(self) -> str:
        """Of the browser's tab."""
        return f"({self.total}) Claude Ops" if self.total else "Claude Ops"

    @property
    def sentence(self) -> str:
        if not self.total:
            return "Nothing needs you."
        return f"{self.total} {'thing needs' if self.total == 1 else 'things need'} you."


def load_attention() -> Attention:
    asking = Incident.objects.filter(asks_for_person(timezone.now()), drill="").order_by()
    rows = asking.annotate(what=_named(INCIDENT)).values_list("what", flat=True)
    approvals = answerable_approvals().order_by().annotate(what=_named(APPROVAL))
    counted = Counter(rows.union(approvals.values_list("what", flat=True), all=True))
    return Attention(incidents=counted[INCIDENT], approvals=counted[APPROVAL])


def answerable_approvals() -> QuerySet[Approval]:
    return Approval.objects.filter(
        state=Approval.State.WAITING, expires_at__gt=timezone.now(), session__cycle__drill=""
    )


def _named(what: str) -> Value:
    return Value(what, output_field=CharField())
