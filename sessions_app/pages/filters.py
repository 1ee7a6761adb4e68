"""The filters of the session list. A filter that makes no sense is left out, not an error."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import QueryDict

from sessions_app.models import Session, Watch
from sessions_app.models.querysets import SessionQuerySet
from sessions_app.models.watch import TIER_CHOICES
from sessions_app.pages.keyset import PARAMETERS

LOOKUPS = {
    "tier": "tier",
    "status": "status",
    "watch": "watch",
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
            found = found.real() if chosen["drill"] == "no" else found.drills()
        return found

    @property
    def combined(self) -> int:
        """How many filters work together."""
        return sum(name in LOOKUPS for name in self.chosen)

    @property
    def words(self) -> str:
        """What is searched for. Not part of `apply`: words are found in an index of their own."""
        return str(self.chosen.get("q", "")).strip()


def address_without_page(parameters: QueryDict) -> str:
    """The filters as a query string, for the links to other pages of the list."""
    kept = parameters.copy()
    for name in ("page", *PARAMETERS):
        kept.pop(name, None)
    for name in [name for name, value in kept.items() if not value]:
        kept.pop(name)
    return kept.urlencode()
