"""The way in, with counted attempts, and one's own password."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.views import LoginView, PasswordChangeView
from django.core.exceptions import ValidationError
from django.http import HttpResponse
from django.urls import reverse_lazy

from sessions_app.access import login_limit
from sessions_app.access.login_limit import WINDOW, Attempt

TOO_MANY = (
    "Too many attempts to log in. Wait {minutes} minutes, or ask an administrator, who can unlock "
    "it in admin or with claudeops unlock."
)
TOO_MANY_STATUS = 429


class CountingForm(AuthenticationForm):
    """Django's own, which asks whether there were too many before it looks at the password."""

    was_refused = False

    def clean(self) -> dict[str, Any]:
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        attempt = Attempt.of(self.cleaned_data.get("username", ""), address)
        if not login_limit.begin(attempt):
            self.was_refused = True
            raise ValidationError(TOO_MANY.format(minutes=int(WINDOW.total_seconds() // 60)))
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            login_limit.failed(attempt)
            raise
        if self.get_user() is not None:
            login_limit.succeeded(attempt)
        return cleaned


class CountingLoginView(LoginView):
    authentication_form = CountingForm

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if isinstance(form, CountingForm) and form.was_refused:
            response.status_code = TOO_MANY_STATUS
        return response


class OwnPasswordView(PasswordChangeView):
    """Every other session of the account ends: its cookie no longer fits the password."""

    template_name = "registration/own_password.html"
    success_url = reverse_lazy("sessions_app:dashboard")

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(
            self.request, "The password is changed. Other sessions of this account are logged out."
        )
        return super().form_valid(form)
