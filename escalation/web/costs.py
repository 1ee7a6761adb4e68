"""Page of costs, read from sums by day and month, so that its time does not depend on the number of
sessions.

A cost is what the CLI reported, or the measured tokens of a killed session. Estimated and unknown
costs are shown beside it and never added.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from io import StringIO
from typing import Any, TypeVar, cast

from django import forms
from django.contrib import messages
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from escalation.queue import installation_lock
from escalation.web.chart import Chart, Column, chart_of
from escalation.web.responses import HtmxRequest
from escalation.web.resume_comparison import Comparison, compare_ways
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, note_changed
from sessions_app.costs.spending import UnitCosts, load_budgets, unit_costs
from sessions_app.history.incidents import IncidentFigures, figures_since
from sessions_app.models import BudgetLimit, PeriodCost, Session, Watch
from sessions_app.models.costs import PeriodCostQuerySet
from sessions_app.models.cycle import removed_name
from sessions_app.text import money, one_line

PERIODS = {"7": "7 days", "30": "30 days", "90": "90 days", "all": "All time"}
DEFAULT_PERIOD = "30"
# Prices of tokens that the API reads from its cache and writes to it, as shares of its price for
# input without a cache; they are the same for every model.
CACHE_READ, CACHE_WRITE = Decimal("0.1"), Decimal("1.25")
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount:
    """Cost of several sessions."""

    runs: int = 0
    cost_usd: Decimal = Decimal(0)
    estimated: int = 0
    """Sessions without a reported cost, of which the stream proves a part."""
    estimated_usd: Decimal = Decimal(0)
    unknown: int = 0
    """Ended sessions without any known cost."""
    tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_creation_tokens: int = 0

    @property
    def read_tokens(self) -> int:
        """Returns the tokens that the model read, from the cache or not."""
        return self.tokens - self.output_tokens

    @property
    def saved_by_cache(self) -> Decimal | None:
        """Returns the share of the price of what was read that the cache saved.

        It can be negative, since writing to the cache costs more than reading without it. None
        if nothing was read.
        """
        if not self.read_tokens:
            return None
        saved = self.cache_read_tokens * (1 - CACHE_READ)
        more = self.cache_creation_tokens * (CACHE_WRITE - 1)
        return (saved - more) / self.read_tokens

    def __add__(self, other: Amount) -> Amount:
        return Amount(
            runs=self.runs + other.runs,
            cost_usd=self.cost_usd + other.cost_usd,
            estimated=self.estimated + other.estimated,
            estimated_usd=self.estimated_usd + other.estimated_usd,
            unknown=self.unknown + other.unknown,
            tokens=self.tokens + other.tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cache_read_tokens=self.cache_read_tokens + other.cache_read_tokens,
            cache_creation_tokens=self.cache_creation_tokens + other.cache_creation_tokens,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CostRow:
    label: str
    amount: Amount
    share: Decimal
    """Share of the total for a tier or a watch, or of the highest bar for a day; 0 to 1."""
    tier: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Sum:
    """Cost of the sessions of one tier and one model in one day or month."""

    day: date
    tier: int
    model: str
    amount: Amount


@dataclass(frozen=True, kw_only=True, slots=True)
class CostsPage:
    period: str
    drills: bool
    total: Amount
    tiers: tuple[CostRow, ...]
    models: tuple[CostRow, ...]
    watches: tuple[CostRow, ...]
    days: tuple[CostRow, ...]
    """Oldest first, with empty days; months for the period "all"."""
    chart: Chart
    units: UnitCosts
    incidents: IncidentFigures | None
    """Figures of incidents resolved in the period; None for drills."""
    before_usd: Decimal | None
    """Cost of as many days before the period; None for all time."""

    @property
    def change(self) -> Decimal | None:
        """Returns the change against the days before, as a share; None without a figure."""
        if not self.before_usd:
            return None
        return self.total.cost_usd / self.before_usd - 1

    @property
    def legend(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"tier-{row.tier}", row.label) for row in self.tiers)

    @property
    def period_label(self) -> str:
        return "all time" if self.period == "all" else f"the last {PERIODS[self.period]}"

    @property
    def by_month(self) -> bool:
        return self.period == "all"

    @property
    def days_with_runs(self) -> tuple[CostRow, ...]:
        return tuple(row for row in reversed(self.days) if row.amount.runs)


def load_costs(period: str, *, drills: bool, watches: Iterable[Watch] | None = None) -> CostsPage:
    """Loads the page; `watches` avoids a query where the caller has them."""
    period = known_period(period)
    first_day = first_day_of(period)
    sums = kept_costs(period, drills=drills)
    length = timezone.localdate() - first_day + timedelta(days=1) if first_day else None
    read = _sums(kept_since(first_day - length if first_day and length else None, drills=drills))
    found = [one for one in read if first_day is None or one.day >= first_day]
    earlier = (one.amount.cost_usd for one in read if first_day and one.day < first_day)
    before = sum(earlier, Decimal(0))
    total = sum((one.amount for one in found), Amount())
    return CostsPage(
        period=period,
        drills=drills,
        total=total,
        tiers=_tiers(found, total),
        models=_models(found, total),
        watches=_watches(sums, total, Watch.objects.all() if watches is None else watches),
        days=_days(found, first_day),
        chart=chart_of(_columns(found, first_day), money),
        units=unit_costs(first_day, drills=drills),
        incidents=None if drills else figures_since(_start_of(first_day)),
        before_usd=before if first_day else None,
    )


def load_comparison(period: str, *, drills: bool) -> Comparison:
    """Loads the comparison of resume and handoff, which reads the events of many sessions."""
    sessions = Session.objects.drills() if drills else Session.objects.real()
    return compare_ways(sessions, since=first_day_of(known_period(period)))


def known_period(period: str) -> str:
    return period if period in PERIODS else DEFAULT_PERIOD


def kept_costs(period: str, *, drills: bool) -> PeriodCostQuerySet:
    """Returns the sums of a period, by day, or by month for "all"."""
    return kept_since(first_day_of(period), drills=drills)


def kept_since(first_day: date | None, *, drills: bool) -> PeriodCostQuerySet:
    kept = PeriodCost.objects.drills() if drills else PeriodCost.objects.real()
    return kept.days_since(first_day) if first_day else kept.months()


def first_day_of(period: str) -> date | None:
    """Returns the first day of a period; the last one is today."""
    return None if period == "all" else timezone.localdate() - timedelta(days=int(period) - 1)


def _start_of(day: date | None) -> datetime:
    return timezone.make_aware(datetime.combine(day or date(1970, 1, 2), time.min))


def _sums(sums: PeriodCostQuerySet) -> list[Sum]:
    """Reads all sums of the period with one query."""
    keys = ("first_day", "tier", "model")
    return [
        Sum(day=day, tier=tier, model=model, amount=amount)
        for (day, tier, model), amount in _amounts(sums, *keys).items()
    ]


def _amounts(sums: PeriodCostQuerySet, *keys: str) -> dict[tuple[Any, ...], Amount]:
    return {tuple(row.pop(key) for key in keys): Amount(**row) for row in sums.amounts_by(*keys)}


def _added(found: list[Sum], key: Callable[[Sum], Key]) -> dict[Key, Amount]:
    added: dict[Key, Amount] = defaultdict(Amount)
    for one in found:
        added[key(one)] += one.amount
    return added


def _tiers(found: list[Sum], total: Amount) -> tuple[CostRow, ...]:
    return tuple(
        CostRow(
            label=f"Tier {tier}",
            amount=amount,
            share=_part(amount.cost_usd, total.cost_usd),
            tier=tier,
        )
        for tier, amount in sorted(_added(found, lambda one: one.tier).items())
    )


def _models(found: list[Sum], total: Amount) -> tuple[CostRow, ...]:
    return _dearest_first(_added(found, lambda one: one.model), total)


def _dearest_first(amounts: dict[str, Amount], total: Amount) -> tuple[CostRow, ...]:
    rows = [
        CostRow(label=name, amount=amount, share=_part(amount.cost_usd, total.cost_usd))
        for name, amount in amounts.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.amount.cost_usd, row.label)))


def _watches(
    sums: PeriodCostQuerySet, total: Amount, watches: Iterable[Watch]
) -> tuple[CostRow, ...]:
    names = {watch.pk: watch.name for watch in watches}
    amounts: dict[str, Amount] = defaultdict(Amount)
    keys = ("watch_number", "watch_name", "drill")
    for (watch, name, drill), amount in _amounts(sums, *keys).items():
        amounts[drill or names.get(watch) or removed_name(name)] += amount
    return _dearest_first(amounts, total)


def _days(found: list[Sum], first_day: date | None) -> tuple[CostRow, ...]:
    by_day = _added(found, lambda one: one.day)
    highest = max((amount.cost_usd for amount in by_day.values()), default=Decimal(0))
    return tuple(
        CostRow(
            label=_label(day, first_day),
            amount=(amount := by_day.get(day, Amount())),
            share=_part(amount.cost_usd, highest),
        )
        for day in _shown_days(found, first_day)
    )


def _columns(found: list[Sum], first_day: date | None) -> list[Column]:
    """Stacks the tiers of each day."""
    amounts = _added(found, lambda one: (one.day, one.tier))
    tiers = sorted({one.tier for one in found})
    return [
        Column(
            label=_label(day, first_day),
            short=f"{day:%b} {day.day}" if first_day else f"{day:%Y-%m}",
            parts=tuple(
                (f"tier-{tier}", amounts.get((day, tier), Amount()).cost_usd) for tier in tiers
            ),
        )
        for day in _shown_days(found, first_day)
    ]


def _label(day: date, first_day: date | None) -> str:
    return f"{day:%Y-%m-%d}" if first_day else f"{day:%Y-%m}"


def _shown_days(found: list[Sum], first_day: date | None) -> list[date]:
    if first_day:
        return list(_every_day(first_day))
    return list(_every_month(min((one.day for one in found), default=None)))


def _every_day(first: date) -> Iterator[date]:
    length = (timezone.localdate() - first).days + 1
    yield from (first + timedelta(days=number) for number in range(length))


def _every_month(first: date | None) -> Iterator[date]:
    month = first
    while month and month <= timezone.localdate():
        yield month
        month = (month + timedelta(days=32)).replace(day=1)


def _part(cost: Decimal, whole: Decimal) -> Decimal:
    return cost / whole if whole else Decimal(0)


# Costs of a period as CSV, by day, watch, tier and model.

HEADINGS = (
    *("day", "watch", "drill", "tier", "model", "runs", "cost_usd"),
    *("estimated_runs", "estimated_usd", "runs_without_figure", "tokens"),
    *("output_tokens", "cache_read_tokens", "cache_creation_tokens"),
)
# A spreadsheet runs a cell with one of these prefixes as a formula.
FORMULA_SIGNS = ("=", "+", "-", "@", "\t", "\r", "\n", "|", "%")
LONGEST_NAME = 200


def costs_as_csv(period: str, *, drills: bool) -> str:
    """Returns CSV with a row per month for "all" and per day otherwise, at full precision."""
    text = StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADINGS)
    writer.writerows(_rows(period, drills=drills))
    return text.getvalue()


def harmless(value: str) -> str:
    """Prefixes a value that a spreadsheet would run as a formula."""
    line = one_line(value, LONGEST_NAME)
    return f"'{line}" if value.startswith(FORMULA_SIGNS) or line.startswith(FORMULA_SIGNS) else line


def _rows(period: str, *, drills: bool) -> Iterator[tuple[str | int, ...]]:
    kept = kept_costs(period, drills=drills).filter(runs__gt=0)
    for row in kept.order_by("first_day", "watch_name", "drill", "tier", "model").iterator():
        yield _row(row, by_month=first_day_of(period) is None)


def _row(row: PeriodCost, *, by_month: bool) -> tuple[str | int, ...]:
    return (
        f"{row.first_day:%Y-%m}" if by_month else f"{row.first_day:%Y-%m-%d}",
        harmless(row.watch_name),
        harmless(row.drill),
        row.tier,
        harmless(row.model),
        row.runs,
        f"{row.cost_usd.normalize():f}",
        row.estimated,
        f"{row.estimated_usd.normalize():f}",
        row.unknown,
        row.tokens,
        row.output_tokens,
        row.cache_read_tokens,
        row.cache_creation_tokens,
    )


@needs(Right.SEE)
@require_safe
def costs(request: HtmxRequest) -> HttpResponse:
    period = known_period(request.GET.get("period", DEFAULT_PERIOD))
    drills = request.GET.get("drills") == "yes"
    if request.GET.get("format") == "csv":
        name = f"costs-{period}{'-drills' if drills else ''}"
        return _csv(name, costs_as_csv(period, drills=drills))
    context: dict[str, object] = {"period": period, "drills": drills, "periods": PERIODS.items()}
    if request.GET.get("view") == "continuity":
        context["comparison"] = load_comparison(period, drills=drills)
        return render(request, "web/costs_continuity.html", context)
    watches = list(Watch.objects.all())
    context["costs"] = load_costs(period, drills=drills, watches=watches)
    context["budgets"] = None if drills else load_budgets(watches)
    context["budget_watches"] = watches
    context["budget_names"] = BudgetLimit.Name.choices
    return render(request, "web/costs.html", context)


class BudgetForm(forms.Form):
    """Budget of a day or a month for all watches, or of a day for one, on the page of costs."""

    of = forms.ChoiceField()
    limit_usd = forms.DecimalField(
        label="Dollars", required=False, min_value=0, max_digits=10, decimal_places=2
    )
    confirm = forms.BooleanField()

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        watches = [(f"watch:{watch.pk}", watch.name) for watch in Watch.objects.all()]
        cast(forms.ChoiceField, self.fields["of"]).choices = [*BudgetLimit.Name.choices, *watches]

    def keep(self) -> tuple[Model, str]:
        """Stores the budget; returns what it belongs to, and the sentence about it."""
        of, limit = self.cleaned_data["of"], self.cleaned_data["limit_usd"]
        if of in BudgetLimit.Name.values:
            budget, _ = BudgetLimit.objects.update_or_create(
                name=of, defaults={"limit_usd": limit or 0}
            )
            if limit is None:
                BudgetLimit.objects.filter(pk=budget.pk).delete()
            amount = "the one of the settings" if limit is None else money(limit)
            return budget, f"The budget for {budget.get_name_display()} is {amount}."
        watch = Watch.objects.get(pk=of.removeprefix("watch:"))
        watch.budget_day_usd = limit
        watch.save(update_fields=["budget_day_usd"])
        amount = "the general one" if limit is None else money(limit)
        return watch, f"The daily budget of {watch.name} is {amount}."


@acting(Right.CHANGE_WATCHES)
def change_budget(request: HttpRequest) -> HttpResponse:
    with installation_lock():
        form = BudgetForm(request.POST)
        if is_valid := form.is_valid():
            owner, said = form.keep()
            note_changed(request.user, owner, said)
    if is_valid:
        messages.success(request, said)
    else:
        messages.warning(
            request,
            "No budget was changed: choose what it is for, enter dollars (empty for the general "
            "budget) and tick the box.",
        )
    return redirect(f"{reverse('web:costs')}#budgets-heading")


def _csv(name: str, text: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return HttpResponse(text, content_type="text/csv; charset=utf-8", headers=headers)
