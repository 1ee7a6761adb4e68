"""What was changed, from the record: commands with an effect and edits, newest first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import QuerySet
from django.http import QueryDict

from sessions_app.models import Change, Incident, Watch
from sessions_app.models.querysets import LONG_FIELDS
from sessions_app.pages.filters import address_without_page
from sessions_app.pages.keyset import KeysetPage, Position, page_of, position_in
from sessions_app.pages.looking_down import in_days, look_down, numbers_between
from sessions_app.reading.edits import is_cut
from sessions_app.reading.plain_text import clean
from sessions_app.reading.reversal import Reversal, reversal_of, reversal_of_edit
from sessions_app.reading.service_names import one_spelling

PER_PAGE = 30
SHOWN_ELSEWHERE = 20
"""On the page of a chain, a watch or an incident."""
LOOKED_AT = 30_000
WRITTEN_LATER = timedelta(days=1)
"""An edit is written down at the end of its run, which is as far as any run goes."""
INDEXED = ("watch", "service", "kind")
NOT_SHOWN = (
    *(f"session__{name}" for name in LONG_FIELDS),
    *("session__cycle__prompt", "session__cycle__instructions"),
)


class ChangeFilter(forms.Form):
    """A filter that makes no sense is left out, not an error."""

    watch = forms.ModelChoiceField(Watch.objects.all(), required=False, empty_label="All watches")
    service = forms.CharField(
        required=False, max_length=200, widget=forms.TextInput(attrs={"size": 14})
    )
    kind = forms.ChoiceField(required=False, choices=[("", "Any kind"), *Change.Kind.choices])
    since = forms.DateField(
        label="From", required=False, widget=forms.DateInput(attrs={"type": "date"})
    )
    until = forms.DateField(
        label="To", required=False, widget=forms.DateInput(attrs={"type": "date"})
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

    def apply(self, changes: QuerySet[Change]) -> QuerySet[Change]:
        chosen = self.chosen
        found = changes.filter(**{name: chosen[name] for name in INDEXED[::2] if name in chosen})
        if "service" in chosen:
            found = found.filter(service=one_spelling(chosen["service"]))
        if "drill" in chosen:
            drills = {"session__cycle__drill": ""}
            found = found.filter(**drills) if chosen["drill"] == "no" else found.exclude(**drills)
        return found.filter(**in_days("at", chosen.get("since"), chosen.get("until")))

    @property
    def is_one_index(self) -> bool:
        """One index answers all of it."""
        return len(self.chosen) <= 1 and not set(self.chosen) - set(INDEXED)


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffLine:
    text: str
    sign: str
    """added, removed, place or same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeRow:
    change: Change
    reversal: Reversal

    @property
    def result(self) -> str:
        if self.change.is_edit:
            return "done"
        if self.change.exit_code is None:
            return "running" if self.change.session.is_open else "end not known"
        word = "failed, exit code" if self.change.has_failed else "exit code"
        return f"{word} {self.change.exit_code}"

    @property
    def tone(self) -> str:
        if self.change.has_failed:
            return "bad"
        is_known = self.change.is_edit or self.change.exit_code is not None
        return "good" if is_known else "quiet"

    @property
    def sign(self) -> str:
        return {"bad": "✕", "good": "✓"}.get(self.tone, "?")

    @property
    def command(self) -> str:
        """Where the gate's words are not all that was written."""
        return "" if self.change.command.strip() == self.change.action else self.change.command

    @property
    def diff_lines(self) -> tuple[DiffLine, ...]:
        return tuple(
            DiffLine(text=line, sign=SIGNS.get(line[:1], "same"))
            for line in clean(self.change.diff).split("\n")
        )


SIGNS = {"+": "added", "-": "removed", "@": "place"}


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeList:
    form: ChangeFilter
    page: KeysetPage[Change]
    rows: tuple[ChangeRow, ...]
    is_filtered: bool
    address: str
    has_no_way_back: bool = False
    remark: str = ""


def load_changes(parameters: QueryDict) -> ChangeList:
    """One query for the rows; two more for a stretch of days."""
    form = ChangeFilter(parameters, label_suffix="")
    page, remark = _page(form, position_in(parameters))
    return ChangeList(
        form=form,
        page=page,
        rows=rows_of(page.rows),
        is_filtered=bool(form.chosen),
        address=address_without_page(parameters),
        has_no_way_back=not form.is_one_index,
        remark=remark,
    )


def changes_of_cycle(cycle: int) -> tuple[ChangeRow, ...]:
    """For the page of a chain, in the order in which they were done. One query."""
    return rows_of(_shown().filter(session__cycle=cycle).order_by("at", "pk")[:SHOWN_ELSEWHERE])


def changes_of_incident(incident: Incident) -> tuple[ChangeRow, ...]:
    """Of all chains that worked on it. One query."""
    found = _shown().filter(session__cycle__incidents=incident)
    return rows_of(found.order_by("at", "pk")[:SHOWN_ELSEWHERE])


def changes_of_watch(watch: int) -> tuple[ChangeRow, ...]:
    """The latest. One query."""
    return rows_of(_shown().filter(watch=watch).order_by("-pk")[:SHOWN_ELSEWHERE])


def rows_of(changes: Iterable[Change]) -> tuple[ChangeRow, ...]:
    return tuple(ChangeRow(change=change, reversal=_reversal(change)) for change in changes)


def _shown() -> QuerySet[Change]:
    return Change.objects.select_related("session__cycle__watch").defer(*NOT_SHOWN)


def _page(form: ChangeFilter, position: Position) -> tuple[KeysetPage[Change], str]:
    rows = form.apply(_shown())
    if form.is_one_index:
        return page_of(rows, position, PER_PAGE), ""
    days = (form.chosen.get("since"), form.chosen.get("until"))
    first, end = numbers_between(Change, "at", *days, slack=WRITTEN_LATER)
    before = min(position.before or end, end)
    begin = Position(before=before) if any(days) else Position(before=position.before)
    return look_down(rows, begin, PER_PAGE, most=LOOKED_AT, first=first)


def _reversal(change: Change) -> Reversal:
    if change.is_edit:
        return reversal_of_edit(change.diff, is_cut=is_cut(change.diff))
    return reversal_of(change.action, has_failed=change.has_failed)
