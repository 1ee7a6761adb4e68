"""Login with a limit of attempts, and the change of the own password."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.contrib import messages
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, PasswordChangeView, PasswordResetConfirmView
from django.core.exceptions import ValidationError
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from django.urls import reverse_lazy
from django.utils import timezone

from sessions_app.models import LoginFailure

# Attempts are counted in the database, for all web processes, and before the password is checked,
# so that parallel attempts gain nothing. There are three limits: a name from one address, an
# address, and a name from all addresses. The last is high, or anybody could lock an administrator
# out.

WINDOW = timedelta(minutes=15)
KEPT = timedelta(days=1)
PER_NAME_AND_ADDRESS = 5
PER_ADDRESS = 20
PER_NAME = 50

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    username: str
    address: str

    @classmethod
    def of(cls, username: str, address: str) -> Attempt:
        """Cut name and address to the length of their columns."""
        return cls(username.replace("\x00", "")[:150], address[:45])


def begin(attempt: Attempt) -> bool:
    """Count an attempt, and return True if the password may be checked.

    The row is stored first and rows are counted up to it, so that of many parallel attempts the
    same few pass. Refused attempts are not stored, so that the lock ends.
    """
    now = timezone.now()
    # Rows in the future come from a wrong clock and would lock for too long.
    LoginFailure.objects.filter(Q(at__lt=now - KEPT) | Q(at__gt=now + WINDOW)).delete()
    row = LoginFailure.objects.create(username=attempt.username, address=attempt.address, at=now)
    if not _too_many(LoginFailure.objects.filter(at__gt=now - WINDOW, pk__lte=row.pk), attempt):
        return True
    row.delete()
    logger.warning("Login refused after too many attempts: %r from %s", *_named(attempt))
    return False


def succeeded(attempt: Attempt) -> None:
    """Forget the failures of this name and address after a successful login."""
    LoginFailure.objects.filter(username=attempt.username, address=attempt.address).delete()
    logger.info("Login: %r from %s", *_named(attempt))


def failed(attempt: Attempt) -> None:
    logger.warning("Login failed: %r from %s", *_named(attempt))


def unlock(name_or_address: str = "") -> int:
    """Delete failed attempts of a name, of an address, or all. Return their number."""
    failures = LoginFailure.objects.all()
    if name_or_address:
        failures = failures.filter(Q(username=name_or_address) | Q(address=name_or_address))
    return failures.delete()[0]


def _too_many(recent: QuerySet[LoginFailure], attempt: Attempt) -> bool:
    by_name = recent.filter(username=attempt.username)
    by_address = recent.filter(address=attempt.address)
    return (
        by_name.filter(address=attempt.address).count() > PER_NAME_AND_ADDRESS
        or by_address.count() > PER_ADDRESS
        or by_name.count() > PER_NAME
    )


def _named(attempt: Attempt) -> tuple[str, str]:
    return attempt.username, attempt.address


TOO_MANY = (
    "Too many login attempts. Wait {minutes} minutes, or ask an administrator to unlock the "
    "account in the admin or with claudeops unlock."
)
TOO_MANY_STATUS = 429


class CountingForm(AuthenticationForm):
    """Login form that checks the limit of attempts before the password."""

    was_refused = False

    def clean(self) -> dict[str, Any]:
        address = self.request.META.get("REMOTE_ADDR", "") if self.request else ""
        attempt = Attempt.of(self.cleaned_data.get("username", ""), address)
        if not begin(attempt):
            self.was_refused = True
            raise ValidationError(TOO_MANY.format(minutes=int(WINDOW.total_seconds() // 60)))
        try:
            cleaned: dict[str, Any] = super().clean()
        except ValidationError:
            failed(attempt)
            raise
        if self.get_user() is not None:
            succeeded(attempt)
        return cleaned


class CountingLoginView(LoginView):
    authentication_form = CountingForm

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        response = super().form_invalid(form)
        if isinstance(form, CountingForm) and form.was_refused:
            response.status_code = TOO_MANY_STATUS
        return response


class InvitedView(PasswordResetConfirmView):
    """View for an invited person to choose the password. Its link works once."""

    template_name = "registration/invited.html"
    success_url = reverse_lazy("web:overview")
    post_reset_login = True
    post_reset_login_backend = "django.contrib.auth.backends.ModelBackend"

    def get_user(self, uidb64: str) -> User | None:
        user = super().get_user(uidb64)
        return user if user is not None and user.is_active else None


class OwnPasswordView(PasswordChangeView):
    """View to change the own password, which ends all other sessions of the account."""

    template_name = "registration/own_password.html"
    success_url = reverse_lazy("web:overview")

    def form_valid(self, form: Any) -> HttpResponse:
        messages.success(
            self.request, "The password is changed. Other sessions of this account are logged out."
        )
        return super().form_valid(form)
