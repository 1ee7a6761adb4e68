"""Page of the tokens of the API: list, make, revoke."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

from django import forms
from django.contrib import messages
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_safe

from sessions_app.access import tokens as engine
from sessions_app.access.permissions import acting, needs
from sessions_app.access.roles import Right, rights_of
from sessions_app.access.tokens import ALERTS, RIGHT_TO_DELIVER, RIGHTS_OF_SCOPES, NewToken, Scope
from sessions_app.models import Source

NOT_TAKEN = 422
MEANINGS = {
    Scope.READ: "read everything that its owner may see",
    Scope.RUN: "run, stop and continue sessions; handle incidents; pause",
    Scope.APPROVE: "approve, reject, run remedies",
    Scope.CONFIGURE: "change watches; see channels and sources",
}
LIFETIMES = {"30": "30 days", "90": "90 days", "365": "a year", "": "never"}


class TokenForm(forms.Form):
    name = forms.CharField(max_length=engine.LONGEST_NAME)
    expires = forms.ChoiceField(label="Expires", choices=list(LIFETIMES.items()), required=False)
    scopes = forms.MultipleChoiceField(
        widget=forms.CheckboxSelectMultiple, label="It may", required=True
    )

    def __init__(self, *args: Any, user: User, **options: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", "initial": {"expires": "90"}, **options})
        scopes = self.fields["scopes"]
        assert isinstance(scopes, forms.MultipleChoiceField)
        scopes.choices = _offered(user)


def _offered(user: User) -> list[tuple[str, str]]:
    """Return the scopes that an account may give, with their meaning."""
    held = rights_of(user)
    offered = [
        (scope.value, f"{scope.value}: {meaning}")
        for scope, meaning in MEANINGS.items()
        if RIGHTS_OF_SCOPES[scope] & held
    ]
    if RIGHT_TO_DELIVER in held:
        names = [name for name in Source.objects.values_list("name", flat=True) if " " not in name]
        offered += [(f"{ALERTS}{name}", f"{ALERTS}{name}: deliver its alerts") for name in names]
    return offered


@needs(Right.SEE)
@require_safe
def tokens(request: HttpRequest) -> HttpResponse:
    return _show(request, TokenForm(user=cast(User, request.user)))


def _show(request: HttpRequest, form: TokenForm, made: NewToken | None = None) -> HttpResponse:
    """Render the page. `made`: a new token, displayed once."""
    rows = engine.tokens_for(cast(User, request.user))
    context = {
        "tokens": rows.filter(revoked_at=None),
        "revoked": rows.exclude(revoked_at=None)[:20],
        "form": form,
        "made": made,
    }
    status = NOT_TAKEN if form.is_bound and form.errors else 200
    answer = render(request, "web/tokens.html", context, status=status)
    if made is not None:
        answer["Cache-Control"] = "no-store"
    return answer


@acting(Right.SEE)
def add_token(request: HttpRequest) -> HttpResponse:
    user = cast(User, request.user)
    form = TokenForm(request.POST, user=user)
    if not form.is_valid():
        return _show(request, form)
    days = form.cleaned_data["expires"]
    try:
        made = engine.create(
            user,
            form.cleaned_data["name"],
            form.cleaned_data["scopes"],
            expires_in=timedelta(days=int(days)) if days else None,
            by=user,
        )
    except engine.TokenRefused as refused:
        form.add_error(None, str(refused))
        return _show(request, form)
    return _show(request, TokenForm(user=user), made)


@acting(Right.SEE)
def revoke_token(request: HttpRequest, pk: int) -> HttpResponse:
    user = cast(User, request.user)
    row = get_object_or_404(engine.tokens_for(user), pk=pk)
    if request.POST.get("confirm") != "on":
        messages.warning(request, "Nothing was revoked: tick the box to confirm.")
    elif engine.revoke(row, by=user):
        messages.success(request, f"{row.name} was revoked: it is refused from now on.")
    else:
        messages.warning(request, f"{row.name} had been revoked before.")
    return redirect("web:tokens")
