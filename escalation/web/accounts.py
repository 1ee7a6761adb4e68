"""Page of accounts: list, invite by link, roles, disable and enable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from sessions_app.access import accounts as engine
from sessions_app.access.accounts import AccountRefused, role_of
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, Role

NOT_TAKEN = 422
ROLES = [(role.value, f"{role.value}: {role.meaning}") for role in Role]


class InvitationForm(forms.Form):
    name = forms.CharField(
        max_length=150,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )
    role = forms.ChoiceField(choices=ROLES, initial=Role.VIEWER.value)


@needs(Right.MANAGE_KEYS)
@require_safe
def accounts(request: HttpRequest) -> HttpResponse:
    return _show(request, InvitationForm(label_suffix=""))


def _show(
    request: HttpRequest, form: InvitationForm, invited: User | None = None, path: str = ""
) -> HttpResponse:
    """Render the page. `path`: that of a new link, which is displayed once."""
    rows = []
    for account in engine.all_accounts():
        role = role_of(account)
        rows.append((account, role, Role(role).meaning if role else ""))
    context: dict[str, Any] = {
        "rows": rows,
        "roles": ROLES,
        "form": form,
        "invited": invited,
        "link": request.build_absolute_uri(path) if path else "",
        "lasts": engine.INVITATION_LASTS,
    }
    status = NOT_TAKEN if form.is_bound and form.errors else 200
    answer = render(request, "web/accounts.html", context, status=status)
    if path:
        answer["Cache-Control"] = "no-store"
    return answer


def _by(request: HttpRequest) -> User:
    return cast(User, request.user)


@acting(Right.MANAGE_KEYS)
def invite_account(request: HttpRequest) -> HttpResponse:
    form = InvitationForm(request.POST, label_suffix="")
    if not form.is_valid():
        return _show(request, form)
    name, role = form.cleaned_data["name"], Role(form.cleaned_data["role"])
    try:
        account = engine.add_account(name, role, by=_by(request))
    except AccountRefused as refused:
        form.add_error("name", str(refused))
        return _show(request, form)
    path = engine.invitation(account)
    return _show(request, InvitationForm(label_suffix=""), account, path)


@acting(Right.MANAGE_KEYS)
def link_account(request: HttpRequest, pk: int) -> HttpResponse:
    account = get_object_or_404(User, pk=pk)
    try:
        path = engine.invitation(account, by=_by(request))
    except AccountRefused as refused:
        messages.warning(request, str(refused))
        return redirect("web:accounts")
    return _show(request, InvitationForm(label_suffix=""), account, path)


@acting(Right.MANAGE_KEYS)
def change_account_role(request: HttpRequest, pk: int) -> HttpResponse:
    sent = request.POST.get("role", "")
    if sent not in set(Role):
        messages.warning(request, "Nothing was changed: choose one of the roles.")
        return redirect("web:accounts")
    role = Role(sent)

    def change(account: User, by: User) -> str:
        engine.change_role(account, role, by=by)
        return f"{account.username} has the role {role.value} now."

    return _act(request, pk, change)


@acting(Right.MANAGE_KEYS)
def disable_account(request: HttpRequest, pk: int) -> HttpResponse:
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was changed: tick the box to confirm.")
        return redirect("web:accounts")

    def change(account: User, by: User) -> str:
        engine.disable(account, by=by)
        return f"{account.username} can no longer log in."

    return _act(request, pk, change)


@acting(Right.MANAGE_KEYS)
def enable_account(request: HttpRequest, pk: int) -> HttpResponse:
    def change(account: User, by: User) -> str:
        engine.enable(account, by=by)
        return f"{account.username} can log in again."

    return _act(request, pk, change)


def _act(request: HttpRequest, pk: int, change: Callable[[User, User], str]) -> HttpResponse:
    account = get_object_or_404(User, pk=pk)
    try:
        messages.success(request, change(account, _by(request)))
    except AccountRefused as refused:
        messages.warning(request, str(refused))
    return redirect("web:accounts")
