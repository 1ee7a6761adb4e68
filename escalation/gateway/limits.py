"""What the last answer said about the account's limits: worth knowing before the next run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime

PREFIX = "anthropic-ratelimit-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    status: int = 0
    at: datetime | None = None
    retry_after: str = ""
    """As it was sent: seconds, or a date."""
    headers: dict[str, str] = field(default_factory=dict)
    """All that begin with `anthropic-ratelimit-`, in lower case."""


def limits_in(status: int, headers: Iterable[tuple[str, str]]) -> Limits | None:
    """None for an answer that says nothing about them."""
    named = {name.lower(): value for name, value in headers}
    stated = {name: value for name, value in named.items() if name.startswith(PREFIX)}
    retry_after = named.get("retry-after", "")
    if not stated and not retry_after:
        return None
    return Limits(status=status, at=datetime.now(UTC), retry_after=retry_after, headers=stated)
