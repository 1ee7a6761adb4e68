"""What a person says about a target. Its address is written, never read back."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.models import User

from sessions_app.access.known_choices import KnownChoices
from sessions_app.models import Target

BOTH_OR_NONE = "Quiet hours have a beginning and an end: give both, or none."


class AddressInput(forms.PasswordInput):
    """Seen while it is typed, and never put into a page again."""

    input_type = "text"


class TimeInput(forms.TimeInput):
    input_type = "time"

    def __init__(self) -> None:
        super().__init__(format="%H:%M")


class TargetForm(forms.ModelForm):  # type: ignore[type-arg]
    address = forms.CharField(
        max_length=2_000,
        widget=AddressInput(
            attrs={"autocomplete": "off", "spellcheck": "false", "autocapitalize": "none"}
        ),
        help_text="mailto://user:password@example.org?to=you@example.org, ntfy://topic, "
        "slack://…, json://host/path, and a hundred others of Apprise.",
    )

    class Meta:
        model = Target
        fields = [
            *("name", "address", "least_severity", "watches", "quiet_from", "quiet_until"),
            *("digest_at", "digest_when_quiet", "owner"),
        ]
        labels = {
            "least_severity": "Tell from",
            "quiet_from": "Quiet from",
            "quiet_until": "Quiet until",
            "digest_at": "Daily digest at",
            "digest_when_quiet": "Send the digest also when there is nothing to tell",
            "owner": "Read by one person alone",
        }
        help_texts = {
            "quiet_from": "",
            "watches": "None ticked: all of them.",
            "quiet_until": "Local time. What is critical comes through; the rest waits until then.",
            "digest_at": "Local time. Empty: none.",
            "owner": "Then an approval is asked for with a link for this account. Leave it empty "
            "for a channel that several people read.",
            "digest_when_quiet": "",
        }
        field_classes = {"watches": KnownChoices}
        widgets = {
            "watches": forms.CheckboxSelectMultiple,
            "quiet_from": TimeInput,
            "quiet_until": TimeInput,
            "digest_at": TimeInput,
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        owner = self.fields["owner"]
        assert isinstance(owner, forms.ModelChoiceField)
        owner.queryset = User.objects.filter(is_active=True).order_by("username")
        owner.empty_label = "several people"
        if self.instance.pk:
            address = self.fields["address"]
            address.required = False
            address.help_text = f"Kept: {self.instance.service}. Write one only to replace it."

    def clean(self) -> dict[str, Any] | None:
        cleaned = super().clean() or self.cleaned_data
        if (cleaned.get("quiet_from") is None) != (cleaned.get("quiet_until") is None):
            self.add_error("quiet_until", BOTH_OR_NONE)
        return cleaned
