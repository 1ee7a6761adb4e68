"""The filters of the session list. A filter that makes no sense is left out, not an error."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from sessions_app.models import Session, Watch
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.models.watch import TIER_CHOICES

LOOKUPS = {
    "tier": "tier",
    "status": "status",
    "watch": "cycle__watch",
    "continued_by": "continued_by",
    "purpose": "purpose",
}


class SessionFilter(forms.Form):
    q = forms.CharField(
        label="Search",
        required=False,
        max_length=200,
        widget=forms.TextInput(
            attrs={"type": "search", "placeholder": "#18, id, reason, error …", "size": 22}
        ),
    )
    tier = forms.TypedChoiceField(
        required=False, coerce=int, choices=[("", "All tiers"), *TIER_CHOICES]
    )
    status = forms.ChoiceField(
        required=False, choices=[("", "Any status"), *Session.Status.choices]
    )
    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    continued_by = forms.ChoiceField(
        label="Continued by",
        required=False,
        choices=[("", "In any way"), *Session.ContinuedBy.choices],
    )
    purpose = forms.ChoiceField(
        required=False, choices=[("", "Any purpose"), *Session.Purpose.choices]
    )
    drill = forms.ChoiceField(
        label="Drills",
        required=False,
        choices=[("", "With drills"), ("no", "Without drills"), ("yes", "Only drills")],
    )

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def apply(self, sessions: SessionQuerySet) -> SessionQuerySet:
        chosen = self.chosen
        found = sessions.filter(
            **{lookup: chosen[name] for name, lookup in LOOKUPS.items() if name in chosen}
        )
        if "drill" in chosen:
            drills = {"cycle__drill": ""}
            found = found.filter(**drills) if chosen["drill"] == "no" else found.exclude(**drills)
        return found.matching(chosen["q"]) if "q" in chosen else found


def address_without_page(parameters: QueryDict) -> str:
    """The filters as a query string, for the links to other pages of the list."""
    kept = parameters.copy()
    kept.pop("page", None)
    for name in [name for name, value in kept.items() if not value]:
        kept.pop(name)
    return kept.urlencode()
