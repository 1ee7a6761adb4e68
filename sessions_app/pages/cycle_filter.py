"""The filters of the list of cycles. A filter that makes no sense is left out, not an error."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from django import forms
from django.db.models import CharField, Exists, OuterRef, Q, QuerySet, Subquery, Sum
from django.db.models.functions import Cast
from django.db.models.lookups import Exact

from sessions_app.models import Change, Cycle, Incident, Session, Watch
from sessions_app.models.watch import TIER_CHOICES
from sessions_app.reading.service_names import one_spelling

ACTIVE = "active"
INDEXED = ("watch", "outcome", "trigger")
OF_A_RUN = ("tier", "model", "continued_by")
DAYS = ("since", "until")
LATELY = 2_000
"""Sessions whose models are offered."""


class CycleFilter(forms.Form):
    q = forms.CharField(
        label="Search",
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"type": "search", "placeholder": "#18, reason, error …"}),
    )
    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    service = forms.CharField(
        required=False,
        max_length=200,
        widget=forms.TextInput(attrs={"size": 12, "title": "Found unwell, or changed"}),
    )
    outcome = forms.ChoiceField(
        required=False,
        choices=[("", "Any outcome"), *Cycle.Outcome.choices, (ACTIVE, "under way")],
    )
    tier = forms.TypedChoiceField(
        required=False, coerce=int, choices=[("", "All tiers"), *TIER_CHOICES]
    )
    model = forms.CharField(required=False, max_length=100, widget=forms.Select)
    trigger = forms.ChoiceField(
        required=False, choices=[("", "Any trigger"), *Cycle.Trigger.choices]
    )
    continued_by = forms.ChoiceField(
        label="Continued by",
        required=False,
        choices=[("", "In any way"), *Session.ContinuedBy.choices],
    )
    since = forms.DateField(
        label="From", required=False, widget=forms.DateInput(attrs={"type": "date"})
    )
    until = forms.DateField(
        label="To", required=False, widget=forms.DateInput(attrs={"type": "date"})
    )
    cost = forms.DecimalField(
        label="Cost from $",
        required=False,
        min_value=Decimal(0),
        max_digits=12,
        decimal_places=4,
        widget=forms.NumberInput(attrs={"step": "any", "min": "0", "inputmode": "decimal"}),
    )

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        chosen = str(self.data.get("model", ""))[:100]
        names = sorted({*_models_lately(), chosen} - {""})
        choices = [("", "All models"), *((name, name) for name in names)]
        self.fields["model"].widget = forms.Select(choices=choices)

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    @property
    def words(self) -> str:
        """What is searched for. Not part of `apply`: words are found in an index of their own."""
        return str(self.chosen.get("q", "")).strip()

    @property
    def is_one_index(self) -> bool:
        """One index answers all of it; days are a stretch of numbers beside it."""
        asked = set(self.chosen) - set(DAYS)
        return len(asked) <= 1 and not asked - set(INDEXED) and self.chosen.get("outcome") != ACTIVE

    def apply(self, cycles: QuerySet[Cycle]) -> QuerySet[Cycle]:
        chosen = self.chosen
        found = cycles.filter(
            **{name: chosen[name] for name in ("watch", "trigger") if name in chosen}
        )
        if outcome := chosen.get("outcome"):
            under_way = Q(state__in=Cycle.ACTIVE_STATES)
            found = found.filter(under_way if outcome == ACTIVE else Q(outcome=outcome))
        if runs := {name: chosen[name] for name in OF_A_RUN if name in chosen}:
            found = found.filter(Exists(_own_runs().filter(_all_are(runs))))
        if service := chosen.get("service"):
            found = found.filter(_concerns(one_spelling(service)))
        if cost := chosen.get("cost"):
            total = _own_runs().order_by().values("cycle").annotate(total=Sum("cost_usd"))
            found = found.alias(spent=Subquery(total.values("total"))).filter(spent__gte=cost)
        return found


def _own_runs() -> QuerySet[Session]:
    return Session.objects.filter(cycle=OuterRef("pk"))


def _concerns(service: str) -> Q:
    """It was not well, or something was done to it."""
    incidents = Incident.cycles.through.objects.filter(cycle=OuterRef("pk"))
    changes = Change.objects.filter(session__cycle=OuterRef("pk"))
    return Q(Exists(incidents.filter(_all_are({"incident__cause": service})))) | Q(
        Exists(changes.filter(_all_are({"service": service})))
    )


def _all_are(wanted: dict[str, Any]) -> Q:
    """Of the few rows of one cycle. Compared as texts, for which there is no index: SQLite would
    take it, and go through all runs of a tier for each cycle."""
    equal = [Exact(Cast(name, CharField()), str(value)) for name, value in wanted.items()]
    return Q(*equal)


def _models_lately() -> set[str]:
    newest = Session.objects.order_by("-pk").values_list("model", flat=True)
    return set(newest[:LATELY])
