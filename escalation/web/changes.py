"""Pages of changes: commands with an effect and written files, newest first; undo of an edit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe
from django.views.decorators.vary import vary_on_headers

from escalation.agent.stream import is_cut
from escalation.errors import OperationRefused
from escalation.run.undo import undo, undo_now
from escalation.web.lists import (
    DrillSwitch,
    KeysetPage,
    PagePosition,
    address_without_page,
    in_days,
    look_down,
    numbers_between,
    page_of,
    position_in,
)
from escalation.web.responses import HtmxRequest, wants_fragment
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right
from sessions_app.history.services import one_spelling
from sessions_app.models import Change, Watch
from sessions_app.models.session import LONG_FIELDS
from sessions_app.text import clean

# Reversal of a change, derived from the action that the command policy recorded
# ("docker stop web"), never from a report. Only actions in these tables are reversed.

NOT_KNOWN = "not known"
NOTHING_LEFT = "nothing to take back: it runs again as before"
BACKWARDS = "put back what the diff takes away, and take away what it adds (patch -R)"
NOTHING_UNDONE = "nothing to take back: it was undone"
COMPUTED = "…"

OPPOSITES = {
    "stop": "start",
    "start": "stop",
    "kill": "start",
    "pause": "unpause",
    "unpause": "pause",
    "enable": "disable",
    "disable": "enable",
    "mask": "unmask",
    "unmask": "mask",
    "connect": "disconnect",
    "disconnect": "connect",
    "cordon": "uncordon",
    "uncordon": "cordon",
    "install": "remove",
    "remove": "install",
}
CONTAINER_VERBS = frozenset({"stop", "start", "kill", "pause", "unpause"})
UNIT_VERBS = frozenset({"stop", "start", "enable", "disable", "mask", "unmask"})
LEAVES_NOTHING = frozenset({"restart", "reload", "try-restart", "reload-or-restart"})
ROLLED_OUT = frozenset({"rollout restart", "set image", "set env", "set resources"})
PACKAGES = frozenset({"apt", "apt-get", "dnf", "yum"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Reversal:
    text: str
    is_command: bool = False
    """True if it can be pasted into a shell."""
    is_known: bool = True


UNKNOWN = Reversal(text=NOT_KNOWN, is_known=False)


def reversal_of(action: str, *, has_failed: bool = False) -> Reversal:
    """Returns the reversal of a command's recorded action."""
    if has_failed:
        return Reversal(text="it failed: look first whether it changed anything", is_known=False)
    words = action.split()
    read = READERS.get(words[0] if words else "")
    if read is None or COMPUTED in action:
        return UNKNOWN
    return read(words)


def reversal_of_edit(diff: str, *, is_cut: bool) -> Reversal:
    if not diff:
        return UNKNOWN
    if is_cut:
        return Reversal(text="not known in full: the diff is cut", is_known=False)
    return Reversal(text=BACKWARDS)


def _command(*words: str) -> Reversal:
    return Reversal(text=" ".join(words), is_command=True)


def _opposite(words: list[str], place: int, verbs: frozenset[str]) -> Reversal:
    """Replaces the verb by its opposite and drops the options."""
    verb = words[place] if len(words) > place else ""
    operands = [word for word in words[place + 1 :] if not word.startswith("-")]
    has_options = len(operands) != len(words) - place - 1
    if verb in LEAVES_NOTHING:
        return Reversal(text=NOTHING_LEFT)
    if verb not in verbs or not operands or has_options:
        return UNKNOWN
    return _command(*words[:place], OPPOSITES[verb], *operands)


def _docker(words: list[str]) -> Reversal:
    match words[1:]:
        case ["compose", *_]:
            return _compose(words)
        case ["container", *_]:
            return _opposite(words, 2, CONTAINER_VERBS)
        case ["network", "connect" | "disconnect" as verb, network, container]:
            return _command(words[0], "network", OPPOSITES[verb], network, container)
        case ["rename", before, after]:
            return _command(words[0], "rename", after, before)
        case ["service", "update", *_]:
            named = [word for word in words[3:] if not word.startswith("-")]
            return _command(words[0], "service", "rollback", named[-1]) if named else UNKNOWN
    return _opposite(words, 1, CONTAINER_VERBS)


def _compose(words: list[str]) -> Reversal:
    """Reverses `docker compose`; without a service name it affects all services, as its opposite
    does.
    """
    verb, rest = (words[2] if len(words) > 2 else ""), words[3:]
    if verb in LEAVES_NOTHING:
        return Reversal(text=NOTHING_LEFT)
    if verb in CONTAINER_VERBS and not any(word.startswith("-") for word in rest):
        return _command(*words[:2], OPPOSITES[verb], *rest)
    return UNKNOWN


def _systemctl(words: list[str]) -> Reversal:
    return _opposite(words, 1, UNIT_VERBS)


def _service(words: list[str]) -> Reversal:
    match words:
        case [_, _, verb] if verb in LEAVES_NOTHING:
            return Reversal(text=NOTHING_LEFT)
        case [_, name, "start" | "stop" as verb]:
            return _command("service", name, OPPOSITES[verb])
    return UNKNOWN


def _kubectl(words: list[str]) -> Reversal:
    match words[1:]:
        case ["cordon" | "uncordon" as verb, node]:
            return _command("kubectl", OPPOSITES[verb], node)
        case ["scale", *_]:
            text = "kubectl scale, with the number of replicas that it had before"
            return Reversal(text=text, is_known=False)
        case [first, second, target, *_] if f"{first} {second}" in ROLLED_OUT and "/" in target:
            return _command("kubectl", "rollout", "undo", target)
    return UNKNOWN


def _helm(words: list[str]) -> Reversal:
    named = [word for word in words[2:] if not word.startswith("-")]
    match words[1:2]:
        case ["upgrade"] if named and "--install" not in words:
            return _command("helm", "rollback", named[0])
        case ["install"] if named:
            return _command("helm", "uninstall", named[0])
    return UNKNOWN


def _git(words: list[str]) -> Reversal:
    match words[1:2]:
        case ["commit" | "merge" | "push" | "cherry-pick" | "revert"]:
            return Reversal(text="git revert of the commits that it made")
    return UNKNOWN


def _packages(words: list[str]) -> Reversal:
    verb, names = (words[1] if len(words) > 1 else ""), words[2:]
    plain = [name for name in names if not name.startswith("-")]
    return _command(words[0], OPPOSITES[verb], *plain) if verb in _BOTH_WAYS and plain else UNKNOWN


def _move(words: list[str]) -> Reversal:
    match words:
        case [_, before, after] if not before.startswith("-") and not after.endswith("/"):
            return _command("mv", after, before)
    return UNKNOWN


def _make_directory(words: list[str]) -> Reversal:
    match words:
        case [_, path] if not path.startswith("-"):
            return _command("rmdir", path)
    return UNKNOWN


_BOTH_WAYS = frozenset({"install", "remove"})
READERS: dict[str, Callable[[list[str]], Reversal]] = {
    "docker": _docker,
    "podman": _docker,
    "systemctl": _systemctl,
    "service": _service,
    "kubectl": _kubectl,
    "helm": _helm,
    "git": _git,
    **dict.fromkeys(PACKAGES, _packages),
    "mv": _move,
    "mkdir": _make_directory,
}


PER_PAGE = 30
SHOWN_ELSEWHERE = 20
"""Rows on the page of a cycle, a watch or an incident."""
LOOKED_AT = 30_000
WRITTEN_LATER = timedelta(days=1)
"""Slack of the date filter: an edit is recorded at the end of its session."""
INDEXED = ("watch", "service", "kind")
NOT_SHOWN = (
    *(f"session__{name}" for name in LONG_FIELDS),
    *("session__cycle__prompt", "session__cycle__instructions"),
)


class ChangeFilter(forms.Form):
    """Filters of the list; invalid values are ignored."""

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
    drill = DrillSwitch()

    @property
    def chosen(self) -> dict[str, Any]:
        self.is_valid()
        return {name: value for name, value in self.cleaned_data.items() if value}

    def apply(self, changes: QuerySet[Change]) -> QuerySet[Change]:
        chosen = self.chosen
        found = changes.filter(**{name: chosen[name] for name in INDEXED[::2] if name in chosen})
        if "service" in chosen:
            found = found.filter(service=one_spelling(chosen["service"]))
        earnest = {"session__cycle__drill": ""}
        found = found.exclude(**earnest) if "drill" in chosen else found.filter(**earnest)
        return found.filter(**in_days("at", chosen.get("since"), chosen.get("until")))

    @property
    def is_one_index(self) -> bool:
        """Returns whether one index answers all filters."""
        return len(self.chosen) <= 1 and not set(self.chosen) - set(INDEXED)


@dataclass(frozen=True, kw_only=True, slots=True)
class DiffLine:
    text: str
    sign: str
    """One of added, removed, place and same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeRow:
    change: Change
    reversal: Reversal

    @property
    def result(self) -> str:
        if self.change.undone_at is not None:
            return "undone"
        if self.change.is_file:
            return "done"
        if self.change.exit_code is None:
            return "running" if self.change.session.is_open else "end not known"
        word = "failed, exit code" if self.change.has_failed else "exit code"
        return f"{word} {self.change.exit_code}"

    @property
    def tone(self) -> str:
        if self.change.has_failed:
            return "bad"
        if self.change.undone_at is not None:
            return "quiet"
        is_known = self.change.is_file or self.change.exit_code is not None
        return "good" if is_known else "quiet"

    @property
    def sign(self) -> str:
        if self.change.undone_at is not None:
            return "↶"
        return {"bad": "✕", "good": "✓"}.get(self.tone, "?")

    @property
    def command(self) -> str:
        """Returns the command where it differs from the recorded action."""
        return "" if self.change.command.strip() == self.change.action else self.change.command

    @property
    def diff_lines(self) -> tuple[DiffLine, ...]:
        return diff_lines(clean(self.change.diff).split("\n"))


SIGNS = {"+": "added", "-": "removed", "@": "place"}


def diff_lines(lines: Iterable[str]) -> tuple[DiffLine, ...]:
    return tuple(DiffLine(text=line, sign=SIGNS.get(line[:1], "same")) for line in lines)


@dataclass(frozen=True, kw_only=True, slots=True)
class ChangeList:
    form: ChangeFilter
    page: KeysetPage[Change]
    rows: tuple[ChangeRow, ...]
    is_filtered: bool
    address: str
    has_no_way_back: bool = False
    remark: str = ""


def load_changes(parameters: QueryDict, size: int = PER_PAGE) -> ChangeList:
    """Makes one query for the rows, and two more for a range of days."""
    form = ChangeFilter(parameters, label_suffix="")
    page, remark = _page(form, position_in(parameters), size)
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
    """Returns the changes of a cycle in order of time, with one query."""
    return rows_of(_shown().filter(session__cycle=cycle).order_by("at", "pk")[:SHOWN_ELSEWHERE])


def rows_of(changes: Iterable[Change]) -> tuple[ChangeRow, ...]:
    return tuple(ChangeRow(change=change, reversal=_reversal(change)) for change in changes)


def _shown() -> QuerySet[Change]:
    return Change.objects.select_related("session__cycle__watch").defer(*NOT_SHOWN)


def _page(form: ChangeFilter, position: PagePosition, size: int) -> tuple[KeysetPage[Change], str]:
    rows = form.apply(_shown())
    if form.is_one_index:
        return page_of(rows, position, size), ""
    days = (form.chosen.get("since"), form.chosen.get("until"))
    first, end = numbers_between(Change, "at", *days, slack=WRITTEN_LATER)
    before = min(position.before or end, end)
    begin = PagePosition(before=before) if any(days) else PagePosition(before=position.before)
    return look_down(rows, begin, size, most=LOOKED_AT, first=first)


def _reversal(change: Change) -> Reversal:
    if change.undone_at is not None:
        return Reversal(text=NOTHING_UNDONE)
    if change.kind == Change.Kind.FILE:
        return UNKNOWN
    if change.is_edit:
        return reversal_of_edit(change.diff, is_cut=is_cut(change.diff))
    return reversal_of(change.action, has_failed=change.has_failed)


@needs(Right.SEE)
@require_safe
@vary_on_headers("HX-Request")
def changes(request: HtmxRequest) -> HttpResponse:
    template = "_change_list.html" if wants_fragment(request) else "changes.html"
    return render(request, f"web/{template}", {"list": load_changes(request.GET)})


def _change(pk: int) -> Change:
    related = ("session__cycle__watch", "before_content", "undone_by")
    return get_object_or_404(Change.objects.select_related(*related), pk=pk)


@needs(Right.SEE_OUTPUT)
@require_safe
def change(request: HttpRequest, pk: int) -> HttpResponse:
    """Shows one change, and for an edit what undoing it would do now."""
    shown = _change(pk)
    now = undo_now(shown) if shown.is_edit else None
    context = {
        "row": rows_of([shown])[0],
        "undo": now,
        "difference": diff_lines(now.difference) if now else (),
    }
    return render(request, "web/change.html", context)


@acting(Right.APPROVE)
def undo_change(request: HttpRequest, pk: int) -> HttpResponse:
    wanted = _change(pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was undone: tick the box to confirm it.")
        return redirect("web:change", pk=pk)
    try:
        undo(wanted, by=cast(User, request.user), way="page")
    except OperationRefused as refused:
        messages.warning(request, str(refused))
    else:
        messages.success(request, f"{wanted.path} is as it was before the edit.")
    return redirect("web:change", pk=pk)
