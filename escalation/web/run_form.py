"""What a person may say about a run of a watch."""

from __future__ import annotations

from django import forms

from escalation.next_step.run_choice import RunChoice


class RunForm(forms.Form):
    prompt = forms.CharField(required=False, max_length=10_000)
    fresh = forms.BooleanField(required=False)
    ephemeral = forms.BooleanField(required=False)
    max_turns = forms.IntegerField(required=False, label="Turns")
    budget = forms.DecimalField(required=False, label="Dollars")

    @property
    def choice(self) -> RunChoice:
        return RunChoice(
            max_turns=self.cleaned_data["max_turns"], max_budget_usd=self.cleaned_data["budget"]
        )

    @property
    def problem(self) -> str:
        """What is wrong with it, in one line."""
        return " ".join(
            f"{self.fields[name].label or name}: {message}"
            for name, messages in self.errors.items()
            for message in messages
        )
