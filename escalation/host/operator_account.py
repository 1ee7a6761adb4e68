"""The first operator account, made once."""

from __future__ import annotations

import secrets

from django.conf import settings
from django.contrib.auth.models import User


def ensure_operator() -> str:
    """Create the account where there is none; give back what to tell the person who starts.

    A password from the environment is applied at every start, so a forgotten one can be set anew;
    a generated one is printed this once and stored only as a hash.
    """
    name, chosen = settings.CLAUDEOPS_ADMIN_USER, settings.CLAUDEOPS_ADMIN_PASSWORD
    user = User.objects.filter(username=name).first()
    if user is None and not chosen and User.objects.filter(is_superuser=True).exists():
        return ""
    if user is None:
        password = chosen or secrets.token_urlsafe(12)
        User.objects.create_superuser(username=name, password=password)
        shown = "from CLAUDEOPS_ADMIN_PASSWORD" if chosen else f"{password} (shown only this once)"
        return f"{name}, password {shown}"
    if chosen and not user.check_password(chosen):
        user.set_password(chosen)
        user.save(update_fields=["password"])
        return f"{name}, password set anew from CLAUDEOPS_ADMIN_PASSWORD"
    return name
