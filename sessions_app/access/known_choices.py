"""Several rows chosen in a form, by numbers from outside."""

from __future__ import annotations

from typing import Any

from django import forms

LONGEST_NUMBER = 18


def may_be_number(sent: str) -> bool:
    """Databases refuse what is longer than any of their numbers, and that is no fault of ours."""
    return sent.isascii() and sent.isdecimal() and len(sent) <= LONGEST_NUMBER


class KnownChoices(forms.ModelMultipleChoiceField):  # type: ignore[type-arg]
    """A number that no database has room for is no choice, and no fault either."""

    def clean(self, value: Any) -> Any:
        for sent in map(str, value or ()):
            if len(sent) > LONGEST_NUMBER:
                words = self.error_messages["invalid_pk_value"] % {"pk": f"{sent[:20]}…"}
                raise forms.ValidationError(words)
        return super().clean(value)
