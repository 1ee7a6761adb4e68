"""Pages of watches: the list, one watch, its form, its removal, and the actions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import Count, DecimalField, Exists, F, OuterRef, Q, QuerySet, Subquery, Sum
from django.forms import BoundField
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils import timezone
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.command_policy import grants as known_grants
from escalation.command_policy.understanding import EVERYTHING
from escalation.configuration import state
from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import installation_lock
from escalation.run.limits_file import lowered_now
from escalation.run.manifest import (
    MANIFEST_LENGTH,
    CurrentManifest,
    ManifestState,
    accept_first,
    accept_seen,
    manifest_of_watch,
    write_first,
)
from escalation.supervisor import cycles
from escalation.supervisor.cooldowns import (
    DONE,
    Done,
    Limits,
    counting,
    left,
    limits_of,
    used,
)
from escalation.supervisor.successors import RunChoice
from escalation.tiers import get_tier
from escalation.web.autonomy import load_autonomy
from escalation.web.changes import DiffLine, diff_lines
from escalation.web.overview import InboxRow, row_of
from escalation.web.responses import HtmxRequest, back_or_to, wants_fragment
from escalation.web.services import HistoryBar, history_bar_beside, history_bar_of_cycles
from escalation.worker import schedules
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, note_added, note_changed, note_removed
from sessions_app.costs.spending import WatchCosts, costs_of_watch
from sessions_app.history.header_status import HeaderStatus, load_header_status
from sessions_app.models import (
    AppliedDeclaration,
    Approval,
    Change,
    Cycle,
    Incident,
    ServiceState,
    Session,
    Watch,
)
from sessions_app.models.autonomy import BY_HAND, AutonomyLevel
from sessions_app.models.incident import KEPT
from sessions_app.models.watch import MANIFEST_NAME, read_ask_rules
from sessions_app.redaction.redact import redacted
from sessions_app.tiers import tier_numbers

# Version token of the page of a watch, from a few short reads.

LAST_CYCLES = 3
"""Cycles in the token; earlier ones have ended and no longer change."""
NEWS = ("newest_change", "newest_session", "newest_status")


def watches_with_news() -> QuerySet[Watch, Any]:
    """Adds the newest change and session of each watch."""
    changes = Change.objects.filter(watch=OuterRef("pk")).order_by("-id")
    sessions = Session.objects.filter(watch=OuterRef("pk")).order_by("-id")
    return Watch.objects.select_related("schedule").annotate(
        newest_change=Subquery(changes.values("pk")[:1]),
        newest_session=Subquery(sessions.values("pk")[:1]),
        newest_status=Subquery(sessions.values("status")[:1]),
        is_from_git=Exists(AppliedDeclaration.objects.filter(kind="watch", name=OuterRef("name"))),
    )


def waiting_approvals_of(watch: Watch) -> QuerySet[Approval]:
    return Approval.objects.filter(state=Approval.State.WAITING, session__watch=watch)


def current_token(watch: Watch, header_status: HeaderStatus) -> str:
    """Returns the token without loading the page, with two queries."""
    latest = watch.cycles.order_by("-id").only("watch", "state", "outcome")[:LAST_CYCLES]
    approvals = waiting_approvals_of(watch).values_list("pk", flat=True)
    return token_of(watch, header_status, list(latest)[::-1], approvals)


def token_of(
    watch: Watch,
    header_status: HeaderStatus,
    last_cycles: Sequence[Cycle],
    approvals: Iterable[int],
) -> str:
    """Includes the minute, because the page shows relative times."""
    facts = (
        timezone.localtime().strftime("%Y-%m-%d %H:%M"),
        [getattr(watch, field.attname) for field in Watch._meta.fields],
        [getattr(watch, name) for name in NEWS],
        watch.schedule and watch.schedule.next_run,
        (header_status.attention, header_status.last_step),
        [(cycle.pk, cycle.state, cycle.outcome) for cycle in last_cycles[-LAST_CYCLES:]],
        sorted(approvals),
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:16]


SERVICES_SHOWN = 60
OPEN_SHOWN, LATEST_SHOWN, CHANGES_SHOWN = 20, 5, 10


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceRow:
    state: ServiceState
    history_bar: HistoryBar


@dataclass(frozen=True, kw_only=True, slots=True)
class CycleHistory:
    history_bar: HistoryBar
    active: Cycle | None
    last: Cycle | None
    """The last finished cycle."""
    cost: Decimal | None
    """Average cost of the cycles shown that have one."""
    counted: int


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchPage:
    version: str
    watch: Watch
    next_times: tuple[datetime, ...]
    cycles: CycleHistory
    services: tuple[ServiceRow, ...]
    has_more_services: bool
    unresolved: tuple[InboxRow, ...]
    latest: tuple[Incident, ...]
    """Resolved incidents."""
    changes: tuple[Change, ...]
    costs: WatchCosts
    approvals: tuple[Approval, ...]
    ask_rules: tuple[str, ...]

    @property
    def is_at_rest(self) -> bool:
        return self.cycles.active is None

    @property
    def sentence(self) -> str:
        """Returns the text announced to screen readers when it changes."""
        if self.cycles.active:
            return f"{self.watch.name}: a cycle is running."
        last = self.cycles.last
        return f"{self.watch.name}: {last.get_outcome_display()}." if last else ""


def load_watch(watch: Watch, header_status: HeaderStatus) -> WatchPage:
    """Makes six queries."""
    last_cycles = _last_cycles(watch)
    states = list(watch.services.order_by("place", "service")[: SERVICES_SHOWN + 1])
    incidents, approvals = _incidents(watch), _waiting(watch)
    return WatchPage(
        version=token_of(
            watch, header_status, last_cycles, (approval.pk for approval in approvals)
        ),
        watch=watch,
        next_times=watch.next_times(timezone.now()),
        cycles=_cycle_history(last_cycles),
        services=tuple(
            ServiceRow(state=state, history_bar=history_bar_beside(state, last_cycles))
            for state in states[:SERVICES_SHOWN]
        ),
        has_more_services=len(states) > SERVICES_SHOWN,
        unresolved=tuple(row_of(one) for one in incidents if one.is_unresolved),
        latest=tuple(one for one in incidents if not one.is_unresolved),
        changes=tuple(watch.changes.select_related("session").order_by("-id")[:CHANGES_SHOWN]),
        costs=costs_of_watch(watch),
        approvals=approvals,
        ask_rules=read_ask_rules(watch.ask),
    )


def _last_cycles(watch: Watch) -> Sequence[Cycle]:
    """Returns the last cycles, oldest first, each with its cost."""
    runs = Session.objects.filter(cycle=OuterRef("pk")).order_by().values("cycle")
    cost = Subquery(
        runs.annotate(cost=Sum("cost_usd")).values("cost"),
        output_field=DecimalField(max_digits=20, decimal_places=10),
    )
    latest = watch.cycles.order_by("-id").defer("prompt", "instructions").annotate(cost=cost)
    return list(latest[:KEPT])[::-1]


def _cycle_history(last_cycles: Sequence[Cycle]) -> CycleHistory:
    ended = [cycle for cycle in last_cycles if not cycle.is_active]
    costs = [cycle.cost for cycle in ended if cycle.cost is not None]  # type: ignore[attr-defined]
    return CycleHistory(
        history_bar=history_bar_of_cycles(last_cycles),
        active=next((cycle for cycle in last_cycles if cycle.is_active), None),
        last=ended[-1] if ended else None,
        cost=sum(costs, Decimal(0)) / len(costs) if costs else None,
        counted=len(costs),
    )


def _incidents(watch: Watch) -> list[Incident]:
    """Returns unresolved incidents, worst first, and the latest resolved ones, with one query."""
    own = Incident.objects.filter(watch=watch)
    is_open = Q(state__in=Incident.UNRESOLVED_STATES)
    numbers = own.values("pk")
    shown = Q(pk__in=numbers.filter(is_open).order_by("-severity", "-pk")[:OPEN_SHOWN]) | Q(
        pk__in=numbers.exclude(is_open).order_by("-pk")[:LATEST_SHOWN]
    )
    found = Incident.objects.filter(shown).select_related("watch", "owner")
    return sorted(found, key=lambda one: (not one.is_unresolved, -one.severity, -one.pk))


def _waiting(watch: Watch) -> tuple[Approval, ...]:
    asked = waiting_approvals_of(watch).select_related("session__cycle__watch")
    return tuple(asked.order_by("expires_at", "id"))


@dataclass(frozen=True, kw_only=True, slots=True)
class WatchRow:
    watch: Watch
    last: Cycle | None
    """The last finished cycle."""
    active: Cycle | None
    unresolved: int


def load_watches() -> tuple[WatchRow, ...]:
    own = Cycle.objects.filter(watch=OuterRef("pk")).order_by("-id").values("pk")
    ended = own.filter(state=Cycle.State.FINISHED)[:1]
    watches = list(
        Watch.objects.select_related("schedule")
        .annotate(last_cycle=Subquery(ended))
        .order_by(F("enabled").desc(), "name")
    )
    last = Cycle.objects.in_bulk([watch.last_cycle for watch in watches if watch.last_cycle])
    active = {
        cycle.watch_id: cycle for cycle in Cycle.objects.filter(state__in=Cycle.ACTIVE_STATES)
    }
    unresolved = _unresolved()
    return tuple(
        WatchRow(
            watch=watch,
            last=last.get(watch.last_cycle),
            active=active.get(watch.pk),
            unresolved=unresolved.get(watch.pk, 0),
        )
        for watch in watches
    )


def _unresolved() -> dict[int | None, int]:
    open_ones = Incident.objects.filter(state__in=Incident.UNRESOLVED_STATES, watch__isnull=False)
    counted = open_ones.order_by().values_list("watch").annotate(count=Count("pk"))
    return dict(counted)


GROUPS: dict[str, tuple[str, ...]] = {
    "What it looks after": ("name", "workdir", "instructions"),
    "When it runs": ("interval_minutes", "cron"),
    "What it may spend": ("budget_day_usd",),
}
ADVANCED = (
    *("max_tier", "dry_run", "approval", "ask", "grants", "restarts_allowed", "restart_hours"),
    *("redeployments_allowed", "redeployment_hours"),
)
"""Fields behind "Advanced"; the first three are what an autonomy level sets."""
NOT_A_LEVEL = "by-hand"


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelChoice:
    """An autonomy level in the form, with what it would have done lately."""

    value: str
    label: str
    meaning: str
    would: str = ""


NOT_SPELLED = {"spellcheck": "false", "autocapitalize": "none", "autocomplete": "off"}


class WatchForm(forms.ModelForm):  # type: ignore[type-arg]
    """Settings of a watch. A changed autonomy level sets the fields that it is a name for."""

    autonomy = forms.ChoiceField(
        required=False,
        choices=[(level, level.label) for level in AutonomyLevel] + [(NOT_A_LEVEL, NOT_A_LEVEL)],
    )

    class Meta:
        model = Watch
        fields = [*(name for names in GROUPS.values() for name in names), *ADVANCED]
        labels = {
            "interval_minutes": "Minutes between two cycles",
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
            "max_tier": "The highest tier that a cycle may reach.",
            "approval": "Tiers that start after a person has approved them. Examples: 3 for Tier 3 "
            "alone, 2,3 for both, none for none.",
            "ask": "They run after a person has approved them, in addition to those of the tier. "
            "Example: Bash(docker restart:*) Bash(git push:*)",
            "grants": "In addition to those of the tier; a minus takes one away. Example: "
            "write:/srv/app read:/home/me/app -ssh",
            "restarts_allowed": "",
            "redeployments_allowed": "",
        }
        widgets = {
            "workdir": forms.TextInput(attrs=NOT_SPELLED),
            "cron": forms.TextInput(attrs=NOT_SPELLED),
            "grants": forms.TextInput(attrs=NOT_SPELLED),
            "ask": forms.TextInput(attrs=NOT_SPELLED),
            "instructions": forms.Textarea(attrs={"rows": 5}),
        }

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **options})
        self.fields["autonomy"].initial = self.instance.autonomy_level or NOT_A_LEVEL

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        if level := self.new_level:
            self.instance.set_autonomy_level(level)
            cleaned |= {name: getattr(self.instance, name) for name in Watch.AUTONOMY_FIELDS}
        return cleaned

    @property
    def new_level(self) -> AutonomyLevel | None:
        """Returns the level that was chosen, if it is another one than before."""
        chosen = self.cleaned_data.get("autonomy", "")
        is_new = "autonomy" in self.changed_data and chosen in list(AutonomyLevel)
        return AutonomyLevel(chosen) if is_new else None

    @property
    def changed_fields(self) -> list[str]:
        """Returns the fields of the watch to be saved."""
        own = {name for name in self.changed_data if name != "autonomy"}
        return sorted(own | set(Watch.AUTONOMY_FIELDS if self.new_level else ()))

    @property
    def level(self) -> str:
        return str(self["autonomy"].value() or "")

    def advanced(self) -> list[BoundField]:
        return [self[name] for name in ADVANCED]

    @property
    def advanced_is_open(self) -> bool:
        return self.level == NOT_A_LEVEL or any(name in self.errors for name in ADVANCED)

    def groups(self) -> Iterator[tuple[str, list[BoundField]]]:
        for title, names in GROUPS.items():
            yield title, [self[name] for name in names]

    @property
    def what_changed(self) -> str:
        """Returns the labels of the changed fields, for the log."""
        changed = [name for name in self.changed_data if name != "autonomy" or self.new_level]
        labels = (str(self.fields[name].label or name) for name in changed)
        return f"Changed: {', '.join(labels)}." if changed else "Nothing was changed."


NOT_TAKEN = 422
NO_CHANGE = 204


@needs(Right.SEE)
@require_safe
def watches(request: HttpRequest) -> HttpResponse:
    return render(request, "web/watches.html", {"rows": load_watches()})


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def watch(request: HtmxRequest, pk: int) -> HttpResponse:
    header_status, fragment = load_header_status(), wants_fragment(request)
    watches = watches_with_news() if fragment else watches_with_news().select_related("manifest")
    found = get_object_or_404(watches, pk=pk)
    if fragment and request.GET.get("version") == current_token(found, header_status):
        return HttpResponse(status=NO_CHANGE)
    page = load_watch(found, header_status)
    context = {"watch": found, "page": page, "header_status": header_status}
    if fragment:
        return render(request, "web/_watch_update.html", context)
    context |= {
        "drift": state.drift_of(found) if found.is_from_git else None,
        "lowered": lowered_now(found),
        "cooldowns": cooldowns_now(found),
        "grants": grants_table(found.grants),
        "house_rules": house_rules(found, [row.state.name for row in page.services]),
    }
    return render(request, "web/watch.html", context)


@needs(Right.CHANGE_WATCHES)
@require_safe
def new_watch(request: HttpRequest) -> HttpResponse:
    return show_form(request, WatchForm())


@needs(Right.CHANGE_WATCHES)
@require_safe
def watch_settings(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Watch, pk=pk)
    return show_form(request, WatchForm(instance=found), found)


@needs(Right.CHANGE_WATCHES)
@require_safe
def watch_removal(request: HttpRequest, pk: int) -> HttpResponse:
    found = get_object_or_404(Watch, pk=pk)
    unresolved = Incident.objects.filter(watch=found, state__in=Incident.UNRESOLVED_STATES)
    context = {
        "watch": found,
        "active": Cycle.active_of(found),
        "unresolved": unresolved.count(),
    }
    return render(request, "web/watch_removal.html", context)


def show_form(request: HttpRequest, form: WatchForm, watch: Watch | None = None) -> HttpResponse:
    """Renders the form of a new or existing watch, with the errors of a refused one."""
    status = NOT_TAKEN if form.is_bound and form.errors else 200
    levels = _level_choices(watch)
    context = {"form": form, "watch": watch, "zone": zone(), "levels": levels}
    return render(request, "web/watch_form.html", context, status=status)


def _level_choices(watch: Watch | None) -> tuple[LevelChoice, ...]:
    would = {row.step: row.would.sentence for row in load_autonomy(watch).steps} if watch else {}
    levels = (
        LevelChoice(
            value=level, label=level.label, meaning=level.meaning, would=would.get(level, "")
        )
        for level in AutonomyLevel
    )
    by_hand = LevelChoice(
        value=NOT_A_LEVEL, label=BY_HAND, meaning="The settings under Advanced hold as they are."
    )
    return (*levels, by_hand)


def zone() -> str:
    return timezone.get_current_timezone_name()


# Changes of watches. A new watch is off until it is switched on.


@acting(Right.CHANGE_WATCHES)
def add_watch(request: HttpRequest) -> HttpResponse:
    form = WatchForm(request.POST)
    with installation_lock():
        if is_valid := form.is_valid():
            form.instance.enabled = False
            note_added(request.user, form.save())
            accept_first(form.instance, by=request.user.get_username())
    if not is_valid:
        return show_form(request, form)
    watch = form.instance
    messages.success(
        request,
        f"The watch {watch.name} is made. Run it once, then switch it on.",
    )
    return redirect(watch)


@acting(Right.CHANGE_WATCHES)
def edit_watch(request: HttpRequest, pk: int) -> HttpResponse:
    with installation_lock():
        watch = get_object_or_404(Watch, pk=pk)
        form = WatchForm(request.POST, instance=watch)
        if is_valid := form.is_valid():
            watch.save(update_fields=form.changed_fields)
            note_changed(request.user, watch, form.what_changed)
            moved = form.initial["workdir"] != watch.workdir
            accept_first(watch, by=request.user.get_username(), moved=moved)
    if not is_valid:
        return show_form(request, form, Watch.objects.get(pk=pk))
    messages.success(request, f"{watch.name}: {form.what_changed}")
    return redirect(watch)


@acting(Right.CHANGE_WATCHES)
def accept_manifest(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was accepted: tick that you have read the difference.")
        return redirect(watch)
    try:
        with installation_lock():
            watch = get_object_or_404(Watch, pk=pk)
            seen, name = request.POST.get("seen", ""), request.user.get_username()
            accept_seen(watch, seen=seen, by=name)
            note_changed(request.user, watch, f"Accepted {MANIFEST_NAME}.")
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(
            request,
            f"{MANIFEST_NAME} of {watch.name} is accepted. It holds for every conversation that "
            "begins from now on.",
        )
    return redirect(watch)


@acting(Right.CHANGE_WATCHES)
def save_manifest(request: HttpRequest, pk: int) -> HttpResponse:
    """Writes the drafted CLAUDE-OPS.md into the working directory, and accepts it."""
    try:
        with installation_lock():
            watch = get_object_or_404(Watch, pk=pk)
            write_first(watch, request.POST.get("text", ""), by=request.user.get_username())
            note_changed(request.user, watch, f"Wrote and accepted {MANIFEST_NAME}.")
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(
            request,
            f"{MANIFEST_NAME} of {watch.name} is saved and accepted. Every conversation that "
            "begins from now on starts with it.",
        )
    return redirect(f"{watch.get_absolute_url()}#manifest")


@acting(Right.CHANGE_WATCHES)
def remove_watch(request: HttpRequest, pk: int) -> HttpResponse:
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was removed: tick that you mean it.")
        return redirect("web:watch_removal", pk)
    try:
        with installation_lock():
            watch = get_object_or_404(Watch, pk=pk)
            note_removed(request.user, watch)
            schedules.remove(watch)
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        return redirect("web:watch_removal", pk)
    messages.success(
        request, f"The watch {watch.name} is removed. What it did stays on record, under its name."
    )
    return redirect("web:watches")


# Cooldowns: remedies that count against a limit now.


@dataclass(frozen=True, kw_only=True, slots=True)
class CooldownRow:
    service: str
    done: str
    """Past participle: restarted or redeployed."""
    times: int
    allowed: int
    hours: int
    is_reached: bool
    until: datetime
    """Time at which the oldest one stops counting."""


def cooldowns_now(watch: Watch) -> tuple[CooldownRow, ...]:
    """Returns every remedy that counts, exhausted ones first, with one query."""
    now, limits = timezone.now(), limits_of(watch)
    return rows_of(counting(Cycle(watch=watch), limits, now), limits, now)


def rows_of(record: list[Done], limits: Limits, now: datetime) -> tuple[CooldownRow, ...]:
    remedies = {(done.kind, done.service) for done in record if _counts(done, limits, now)}
    rows = (_row(kind, service, record, limits, now) for kind, service in remedies)
    return tuple(sorted(rows, key=lambda row: (not row.is_reached, row.service, row.done)))


def _counts(done: Done, limits: Limits, now: datetime) -> bool:
    return done.kind in limits and done.at > now - timedelta(hours=limits[done.kind].hours)


def _row(kind: str, service: str, record: list[Done], limits: Limits, now: datetime) -> CooldownRow:
    limit = limits[kind]
    oldest = min(
        done.at
        for done in record
        if done.kind == kind
        and done.service in {service, EVERYTHING}
        and _counts(done, limits, now)
    )
    return CooldownRow(
        service="everything" if service == EVERYTHING else service,
        done=DONE[kind],
        times=used(kind, service, record, limits, now),
        allowed=limit.allowed,
        hours=limit.hours,
        is_reached=not left(kind, service, record, limits, now),
        until=oldest + timedelta(hours=limit.hours),
    )


# Grants of a watch as a table by tier.


@dataclass(frozen=True, kw_only=True, slots=True)
class GrantRow:
    grant: str
    meaning: str
    tiers: tuple[bool, ...]
    """Whether it is granted, tier by tier."""

    @property
    def cells(self) -> tuple[tuple[bool, str], ...]:
        """Returns for each tier whether it is granted, and the change against the tier below."""
        below = (self.tiers[0], *self.tiers)
        return tuple(
            (now, "" if now == before else "opened" if now else "closed")
            for now, before in zip(self.tiers, below, strict=False)
        )


def grants_table(watch_words: str) -> tuple[GrantRow, ...]:
    return table_of([open_at(tier, watch_words) for tier in tier_numbers()])


def table_of(open_by_tier: Sequence[Sequence[str]]) -> tuple[GrantRow, ...]:
    """Returns a row for every known grant and every granted path."""
    paths = [word for words in open_by_tier for word in words if word not in known_grants.NAMES]
    return tuple(
        GrantRow(
            grant=word,
            meaning=known_grants.MEANING.get(word) or _meaning_of_path(word),
            tiers=tuple(word in words for words in open_by_tier),
        )
        for word in (*known_grants.NAMES, *dict.fromkeys(paths))
    )


def open_at(tier: int, watch_words: str) -> tuple[str, ...]:
    """Returns the grants of a session of this tier."""
    return known_grants.grants_for(get_tier(tier).grants, watch_words).words()


def _meaning_of_path(word: str) -> str:
    kind, _colon, path = word.partition(":")
    return f"{'writing' if kind == 'write' else 'reading'} in {path}"


# CLAUDE-OPS.md of a watch as a session would read it, or a draft of one.

DRAFT = """# {name}

What this is: one or two sentences for somebody who has never seen it.

## Services
{services}

## Where things are
- Inventory: compose file, hosts, repositories
- Logs:
- Dashboards:

## What healthy means
- Which addresses must answer, and how fast
- Which jobs run when (backups, certificates)

## Rules of the house
- What may be restarted without asking
- What must never be touched
- Who to ask, and when
"""
NO_SERVICES = "- name: what it does, how to see that it is well, how it is restarted"


@dataclass(frozen=True, kw_only=True, slots=True)
class HouseRules:
    current: CurrentManifest
    problem: str = ""
    """Reason why the file is not shown."""
    draft: str = ""
    """Draft for a watch without a manifest."""

    @property
    def text(self) -> str:
        """Returns the text that serves as instructions, redacted."""
        return redacted(self.current.accepted)

    @property
    def is_cut(self) -> bool:
        return len(self.current.found) > MANIFEST_LENGTH

    @property
    def waits(self) -> bool:
        """Returns whether the difference is shown, to be accepted."""
        return self.current.waits and not self.problem

    @property
    def is_gone(self) -> bool:
        return self.current.state == ManifestState.MISSING

    @property
    def difference(self) -> tuple[DiffLine, ...]:
        return diff_lines(self.current.difference)


def house_rules(watch: Watch, services: Sequence[str] = ()) -> HouseRules:
    """Reads the file on the host that serves the page; writes nothing."""
    current, problem = manifest_of_watch(watch), _problem(Path(watch.workdir))
    is_none = not problem and not current.found.strip() and not current.accepted.strip()
    draft = draft_for(watch.name, services) if is_none else ""
    return HouseRules(current=current, problem=problem, draft=draft)


def draft_for(name: str, services: Sequence[str]) -> str:
    known = "\n".join(
        f"- {service}: what it does, how to see that it is well" for service in services
    )
    return DRAFT.format(name=name, services=known or NO_SERVICES)


def _problem(workdir: Path) -> str:
    """Returns why the file cannot be shown.

    A link may lead to a file that must not be shown, and reading a pipe would never end.
    """
    if not workdir.is_dir():
        return f"The directory {workdir} cannot be read on this machine."
    manifest = workdir / MANIFEST_NAME
    try:
        if not manifest.resolve().is_relative_to(workdir.resolve()):
            return f"{MANIFEST_NAME} is a link that leads out of the directory: it is not shown."
        if manifest.exists() and not manifest.is_file():
            return f"{MANIFEST_NAME} is no ordinary file: it is not read."
    except (OSError, RuntimeError) as error:
        return f"{MANIFEST_NAME} cannot be read: {error}."
    return ""


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
        """Returns all errors in one line."""
        return " ".join(
            f"{self.fields[name].label or name}: {message}"
            for name, messages in self.errors.items()
            for message in messages
        )


@acting(Right.RUN)
def run_watch(request: HttpRequest, pk: int) -> HttpResponse:
    watch = get_object_or_404(Watch, pk=pk)
    form = RunForm(request.POST)
    try:
        if not form.is_valid():
            raise OperationRefused(RefusalCode.INVALID_CHOICE, form.problem)
        cycle = cycles.start(
            watch,
            trigger=Cycle.Trigger.MANUAL,
            requested_by=cast(User, request.user),
            prompt=form.cleaned_data["prompt"],
            force_fresh=form.cleaned_data["fresh"],
            ephemeral=form.cleaned_data["ephemeral"],
            choice=form.choice,
        )
    except OperationRefused as refused:
        messages.warning(request, str(refused))
        return _back(request, watch)
    messages.success(request, f"Cycle {cycle.pk} of {watch.name} is queued.")
    return back_or_to(request, cycle)


@acting(Right.STOP)
def pause_watch(request: HttpRequest, pk: int) -> HttpResponse:
    return _set_enabled(request, pk, enabled=False)


@acting(Right.CHANGE_WATCHES)
def unpause_watch(request: HttpRequest, pk: int) -> HttpResponse:
    return _set_enabled(request, pk, enabled=True)


def _set_enabled(request: HttpRequest, pk: int, *, enabled: bool) -> HttpResponse:
    with installation_lock():
        watch = get_object_or_404(Watch, pk=pk)
        watch.enabled = enabled
        watch.save(update_fields=["enabled"])
        note_changed(request.user, watch, "Switched on." if enabled else "Paused.")
    how = f"runs again, {watch.rhythm}" if enabled else "is paused: it runs only when asked"
    messages.success(request, f"The watch {watch.name} {how}.")
    return _back(request, watch)


def _back(request: HttpRequest, watch: Watch) -> HttpResponse:
    """Redirects to the page that the form was on."""
    if request.POST.get("from") == "watch":
        return redirect(watch)
    return back_or_to(request, "web:overview")
