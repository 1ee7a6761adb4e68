"""Where the pages of this installation are, as a person would type it."""

from __future__ import annotations

from django.conf import settings

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # noqa: S104 (compared, not bound)


def address_of(path: str = "/") -> str:
    """Behind a proxy its own address, which CLAUDEOPS_TRUSTED_ORIGINS has."""
    if origins := settings.CSRF_TRUSTED_ORIGINS:
        return f"{origins[0]}{path}"
    return f"{local_address(settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT)}{path}"


def local_address(host: str, port: int) -> str:
    reachable = EVERYWHERE.get(host) or (f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"
