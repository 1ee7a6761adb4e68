"""What a person says about the first watch: the rest begins safe, and is changed later."""

from __future__ import annotations

from typing import Any

from django import forms

from sessions_app.models import Watch
from sessions_app.models.trust import Step


class FirstWatchForm(forms.ModelForm):  # type: ignore[type-arg]
    """Held to what the model itself allows. The watch is off, dry, and stops at Tier 1."""

    class Meta:
        model = Watch
        fields = ("name", "workdir", "instructions")
        labels = {"workdir": "Directory", "instructions": "What to look at"}
        help_texts = {
            "name": "What you call the system, like shop or homelab.",
            "workdir": "Where the system's files are on this machine, like /srv/shop. A "
            "CLAUDE-OPS.md in it that describes the system is read first.",
            "instructions": "In your own words: what must be up, where its logs are, what is "
            "normal. May be empty.",
        }
        widgets = {
            "workdir": forms.TextInput(attrs={"spellcheck": "false", "autocapitalize": "none"}),
            "instructions": forms.Textarea(attrs={"rows": 3, "maxlength": 10_000}),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        self.instance.enabled = False
        self.instance.trust(Step.LOOK)
