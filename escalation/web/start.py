"""Guide of the first start: make a watch, run it, read its report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.probes.proposals import Proposed, offered
from escalation.run.manifest import accept_first
from escalation.web.drills import scenarios_for
from escalation.web.overview import RunningRow, running_rows, with_steps
from escalation.web.responses import HtmxRequest, wants_fragment
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right
from sessions_app.history.autonomy import RequestedPermission, wishes_of
from sessions_app.history.chain import Chain
from sessions_app.history.claims import ShownReport, read_report
from sessions_app.history.cycles import stop_of
from sessions_app.models import Cycle, Session, Watch
from sessions_app.models.autonomy import AutonomyLevel

WISHES_SHOWN = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class StartPage:
    watch: Watch | None
    """The newest watch; None before the first one, or if another one is to be made."""
    cycle: Cycle | None = None
    """Its latest cycle."""
    running: RunningRow | None = None
    stop: str = ""
    report: ShownReport | None = None
    """Report of the last session that gave one."""
    wishes: tuple[RequestedPermission, ...] = ()
    """Permissions that the cycle requested and did not get."""
    proposals: tuple[Proposed, ...] = ()
    """Probes for what it found."""

    @property
    def is_over(self) -> bool:
        return self.cycle is not None and not self.cycle.is_active


def load_start(asked: QueryDict) -> StartPage:
    """Makes at most twelve short queries."""
    newest = Watch.objects.select_related("schedule").order_by("-pk")
    watch = None if asked.get("new") else newest.first()
    cycle = watch.cycles.order_by("-id").first() if watch else None
    if watch is None or cycle is None:
        return StartPage(watch=watch)
    if cycle.is_active:
        chain = Chain(sessions=tuple(with_steps(cycle.sessions.order_by("id"))))
        [row] = running_rows([cycle], {cycle.pk: chain})
        return StartPage(watch=watch, cycle=cycle, running=row)
    sessions = list(cycle.sessions.order_by("id"))
    return StartPage(
        watch=watch,
        cycle=cycle,
        stop=stop_of(sessions),
        report=_last_report(sessions),
        wishes=_not_given(sessions),
        proposals=offered(watch),
    )


def _last_report(sessions: list[Session]) -> ShownReport | None:
    facts = (session for session in reversed(sessions) if session.counts_as_evidence)
    reports = (read_report(session.report) for session in facts)
    return next((report for report in reports if report), None)


def _not_given(sessions: list[Session]) -> tuple[RequestedPermission, ...]:
    wished = [one for one in wishes_of(sessions) if not one.given]
    different = {(one.kind, one.what): one for one in wished}
    return tuple(sorted(different.values(), key=lambda one: one.at)[:WISHES_SHOWN])


class FirstWatchForm(forms.ModelForm):  # type: ignore[type-arg]
    """Form of the first watch, which is off, in dry-run mode and limited to Tier 1."""

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
        self.instance.set_autonomy_level(AutonomyLevel.LOOK)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def start(request: HtmxRequest) -> HttpResponse:
    template = "_start.html" if wants_fragment(request) else "start.html"
    return show_start(request, load_start(request.GET), FirstWatchForm(), template)


def show_start(
    request: HttpRequest, page: StartPage, form: FirstWatchForm, template: str = "start.html"
) -> HttpResponse:
    context = {"start": page, "form": form, "scenarios": scenarios_for(request.user)}
    return render(request, f"web/{template}", context)


@acting(Right.CHANGE_WATCHES)
def first_watch(request: HttpRequest) -> HttpResponse:
    form = FirstWatchForm(request.POST)
    if not form.is_valid():
        return show_start(request, StartPage(watch=None), form)
    watch = form.save()
    accept_first(watch, by=request.user.get_username())
    messages.success(
        request, f"The watch {watch.name} is made. It is off, and it will change nothing."
    )
    return redirect("web:start")
