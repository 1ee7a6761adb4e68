"""List of cycles: filtered along indexes, or searched by words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from django import forms
from django.db.models import (
    CharField,
    Exists,
    OuterRef,
    Prefetch,
    Q,
    QuerySet,
    Subquery,
    Sum,
)
from django.db.models.functions import Cast
from django.db.models.lookups import Exact
from django.http import HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.web.lists import (
    DOWN_TO,
    DrillSwitch,
    KeysetPage,
    PagePosition,
    address_without_page,
    look_down,
    numbers_between,
    of_rows,
    page_of,
    position_in,
)
from escalation.web.responses import HtmxRequest, wants_fragment
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right
from sessions_app.history.chain import Chain
from sessions_app.history.services import one_spelling
from sessions_app.models import Change, Cycle, Incident, Session, Watch
from sessions_app.models.search import (
    LARGEST_NUMBER,
    SHORTEST_WORDS,
    is_too_short,
    matches,
    number_in,
)
from sessions_app.models.search import LOOKED_AT as MATCHES_AT_ONCE
from sessions_app.models.session import LONG_FIELDS
from sessions_app.text import FoundWords, found_words
from sessions_app.tiers import tier_choices

# Filters of the list; invalid values are ignored.

ACTIVE = "active"
INDEXED = ("watch", "outcome", "trigger")
OF_A_RUN = ("tier", "model", "continued_by")
DAYS = ("since", "until")
LATELY = 2_000
"""Newest sessions whose models are offered."""


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
        required=False, coerce=int, choices=lambda: [("", "All tiers"), *tier_choices()]
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

    drill = DrillSwitch()

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
        """Returns the search words, which `apply` leaves to the search index."""
        return str(self.chosen.get("q", "")).strip()

    @property
    def is_one_index(self) -> bool:
        """Returns whether one index answers all filters; days are a range of primary keys."""
        asked = set(self.chosen) - set(DAYS)
        return len(asked) <= 1 and not asked - set(INDEXED) and self.chosen.get("outcome") != ACTIVE

    def apply(self, cycles: QuerySet[Cycle]) -> QuerySet[Cycle]:
        chosen = self.chosen
        found = cycles.filter(
            **{name: chosen[name] for name in ("watch", "trigger") if name in chosen}
        )
        found = found.exclude(drill="") if "drill" in chosen else found.filter(drill="")
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
    """Matches cycles in which a service was unhealthy or was changed."""
    incidents = Incident.cycles.through.objects.filter(cycle=OuterRef("pk"))
    changes = Change.objects.filter(session__cycle=OuterRef("pk"))
    return Q(Exists(incidents.filter(_all_are({"incident__cause": service})))) | Q(
        Exists(changes.filter(_all_are({"service": service})))
    )


def _all_are(wanted: dict[str, Any]) -> Q:
    """Matches cycles whose sessions all have these values.

    Compares as text, which has no index: otherwise SQLite would choose that index and scan all
    sessions of a tier for each cycle.
    """
    equal = [Exact(Cast(name, CharField()), str(value)) for name, value in wanted.items()]
    return Q(*equal)


def _models_lately() -> set[str]:
    newest = Session.objects.order_by("-pk").values_list("model", flat=True)
    return set(newest[:LATELY])


PER_PAGE = 40
LOOKED_AT = 3_000
"""Cycles examined for one page; the next page continues after them."""
TOO_SHORT = f"To search takes {SHORTEST_WORDS} letters or more, or the number of a session."


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleListRow:
    cycle: Cycle
    chain: Chain
    found: FoundWords | None = None
    """Search words with the text around them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleList:
    form: CycleFilter
    page: KeysetPage[Cycle]
    rows: tuple[CycleListRow, ...]
    is_filtered: bool
    address: str
    has_no_way_back: bool = False
    remark: str = ""


def load_cycles(
    parameters: QueryDict, size: int = PER_PAGE, *, whole_sessions: bool = False
) -> CycleList:
    """Loads a page of cycles with their sessions, by default without long texts."""
    form = CycleFilter(parameters, label_suffix="")
    position = position_in(parameters)
    if form.words:
        page, remark = _searched(form, position)
    else:
        page, remark = _filtered(form, position, size, whole_sessions)
    return CycleList(
        form=form,
        page=page,
        rows=tuple(_row(cycle, form.words) for cycle in page.rows),
        is_filtered=bool(form.chosen),
        address=address_without_page(parameters),
        has_no_way_back=bool(form.words) or not form.is_one_index,
        remark=remark,
    )


def _filtered(
    form: CycleFilter, position: PagePosition, size: int, whole_sessions: bool
) -> tuple[KeysetPage[Cycle], str]:
    """Filters by index.

    Uses only the narrower bound on each side of the keys: SQLite takes the first of two and scans
    everything between them.
    """
    first, end = _numbers(form)
    rows = form.apply(_shown(whole_sessions=whole_sessions))
    before = min(position.before or end, end)
    begin = PagePosition(before=None if before == LARGEST_NUMBER else before)
    if not form.is_one_index:
        return look_down(rows, begin, size, most=LOOKED_AT, first=first)
    rows = rows.filter(pk__gte=first) if first > 1 else rows
    if position.before is not None:
        return page_of(rows, begin, size), ""
    rows = rows.filter(pk__lt=end) if end < LARGEST_NUMBER else rows
    return page_of(rows, position, size), ""


def _searched(form: CycleFilter, position: PagePosition) -> tuple[KeysetPage[Cycle], str]:
    """Searches by words; `before` is the key of a session, the newest match of a cycle."""
    if is_too_short(form.words):
        return of_rows([], PagePosition(), PER_PAGE), TOO_SHORT
    below = LARGEST_NUMBER if position.before is None else position.before
    numbers = next(matches(form.words, below=below), [])
    newest = _newest_match(form, numbers)
    for seen in _shown_before(newest, form.words, position.before):
        del newest[seen]
    wanted = sorted(newest, key=lambda cycle: -newest[cycle])[:PER_PAGE]
    rows = _shown(with_text=True).in_bulk(wanted)
    is_more = len(newest) > PER_PAGE
    older = newest[wanted[-1]] if is_more else _rest(numbers)
    page = KeysetPage(
        rows=tuple(rows[cycle] for cycle in wanted),
        older=older,
        newer=None,
        is_first=position.before is None,
    )
    return page, "" if is_more or older is None else DOWN_TO.format(older)


def _newest_match(form: CycleFilter, numbers: list[int]) -> dict[int, int]:
    """Maps cycles to their newest matching session."""
    first, end = _numbers(form)
    found = form.apply(Cycle.objects.filter(pk__gte=first, pk__lt=end, sessions__in=numbers))
    pairs = found.order_by("sessions__pk").values_list("pk", "sessions__pk")
    return dict(pairs)


def _shown_before(cycles: Iterable[int], words: str, before: int | None) -> set[int]:
    """Returns cycles that an earlier page shows by a newer session."""
    if before is None:
        return set()
    has_words = Q(search_text__text__icontains=words) | Q(run_text__said__icontains=words)
    newer = Session.objects.filter(has_words, cycle__in=list(cycles), pk__gte=before)
    return set(newer.values_list("cycle", flat=True))


def _rest(numbers: list[int]) -> int | None:
    """Returns the key to continue from, or None at the end."""
    return numbers[-1] if len(numbers) == MATCHES_AT_ONCE else None


def _numbers(form: CycleFilter) -> tuple[int, int]:
    since, until = (form.chosen.get(name) for name in DAYS)
    return numbers_between(Cycle, "created_at", since, until)


def _shown(*, with_text: bool = False, whole_sessions: bool = False) -> QuerySet[Cycle]:
    long = () if whole_sessions else LONG_FIELDS
    sessions = Session.objects.defer(*long, *(["run_text__output"] if with_text else []))
    sessions = (sessions.select_related("run_text") if with_text else sessions).order_by("id")
    return Cycle.objects.select_related("watch", "requested_by").prefetch_related(
        Prefetch("sessions", queryset=sessions)
    )


def _row(cycle: Cycle, words: str) -> CycleListRow:
    chain = Chain(sessions=tuple(cycle.sessions.all()))
    return CycleListRow(
        cycle=cycle, chain=chain, found=_found(cycle, chain, words) if words else None
    )


def _found(cycle: Cycle, chain: Chain, words: str) -> FoundWords | None:
    texts = {
        "reason": cycle.outcome_reason,
        "watch": cycle.subject,
        "request": cycle.prompt,
    }
    for session in chain.sessions:
        name = f"session #{session.pk}"
        said = getattr(session, "run_text", None) if words else None
        texts |= {
            f"{name}, report": said.said if said else "",
            f"{name}, decision": session.escalation_reason,
            f"{name}, error": session.error,
            f"{name}, request": session.request,
            f"{name}, conversation": session.session_id,
            f"{name}, directory": session.workdir,
        }
        if number_in(words) == session.pk:
            return FoundWords(where="session", before="", match=f"#{session.pk}", after="")
    return found_words(words, texts)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def cycles(request: HtmxRequest) -> HttpResponse:
    template = "_cycle_list.html" if wants_fragment(request) else "cycles.html"
    return render(request, f"web/{template}", {"list": load_cycles(request.GET)})
