"""What a person says about a watch. Whether it runs by itself is a switch of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.forms import BoundField

from sessions_app.models import Watch

GROUPS: dict[str, tuple[str, ...]] = {
    "What it looks after": ("name", "workdir", "instructions"),
    "When it runs": ("interval_minutes", "cron"),
    "How far it goes": ("max_tier", "dry_run", "approval", "ask", "doors"),
    "What it may use": (
        *("budget_day_usd", "restarts_allowed", "restart_hours"),
        *("redeployments_allowed", "redeployment_hours"),
    ),
}
NOT_SPELLED = {"spellcheck": "false", "autocapitalize": "none", "autocomplete": "off"}


class WatchForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = Watch
        fields = [name for names in GROUPS.values() for name in names]
        labels = {
            "interval_minutes": "Minutes between two rounds",
            "cron": "Or a cron expression",
            "max_tier": "Up to",
            "dry_run": "Dry run",
            "budget_day_usd": "Dollars a day",
            "restarts_allowed": "Restarts of one service",
            "restart_hours": "within hours",
            "redeployments_allowed": "Redeployments of one service",
            "redeployment_hours": "within hours",
        }
        help_texts = {
            "workdir": "Where its runs work, like /srv/shop.",
            "cron": "For example 0 3 * * * for every night at three. If given, it wins.",
            "max_tier": "The page of its trust goes step by step, and says what each would have "
            "done.",
            "restarts_allowed": "",
            "redeployments_allowed": "",
        }
        widgets = {
            "workdir": forms.TextInput(attrs=NOT_SPELLED),
            "cron": forms.TextInput(attrs=NOT_SPELLED),
            "doors": forms.TextInput(attrs=NOT_SPELLED),
            "ask": forms.TextInput(attrs=NOT_SPELLED),
            "instructions": forms.Textarea(attrs={"rows": 5}),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})

    def groups(self) -> Iterator[tuple[str, list[BoundField]]]:
        for title, names in GROUPS.items():
            yield title, [self[name] for name in names]

    @property
    def what_changed(self) -> str:
        """For the log: the labels of what is not as it was."""
        labels = (str(self.fields[name].label or name) for name in self.changed_data)
        return f"Changed: {', '.join(labels)}." if self.changed_data else "Nothing was changed."
