"""What the tests of the API share: a caller with a token, and something of every kind."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from sessions_app.access import tokens
from sessions_app.models import Maintenance
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    RemedyFactory,
    RemedyRunFactory,
    ServiceStateFactory,
    SessionEventFactory,
    SessionFactory,
    SourceFactory,
    WatchFactory,
    user_with,
)

EVERY_SCOPE = ("read", "run", "approve", "configure")
PREFIX = "/api/v1/"


@dataclass
class Caller:
    """Sends requests with a token."""

    token: str

    def __call__(self, method: str, path: str, data: Any = None, **headers: str) -> Any:
        return Client(raise_request_exception=False).generic(
            method,
            path if path.startswith("/") else f"{PREFIX}{path}",
            data if isinstance(data, str) else json.dumps(data or {}),
            content_type=JSON,
            headers={"Authorization": f"Bearer {self.token}", **headers},
        )

    def get(self, path: str, **headers: str) -> Any:
        return self("GET", path, **headers)

    def post(self, path: str, data: Any = None, **headers: str) -> Any:
        return self("POST", path, data, **headers)


JSON = "application/json"


@pytest.fixture(autouse=True)
def fresh_rates() -> Iterator[None]:
    tokens.forget_batches()
    yield
    tokens.forget_batches()


@pytest.fixture
def caller(db: None) -> Callable[..., Caller]:
    def make(role: str = "admin", scopes: Sequence[str] = EVERY_SCOPE) -> Caller:
        return Caller(token_of(role, scopes))

    return make


def token_of(role: str, scopes: Sequence[str]) -> str:
    """Make a token, also with scopes that its owner's role gives nothing for."""
    user = user_with("admin")
    made = tokens.create(user, f"{role}-{len(scopes)}", list(scopes), by=user)
    user.groups.set(user_with(role).groups.all())
    return made.token


@pytest.fixture
def subject(db: None, workdir: Any, fake_cli: Any) -> dict[str, str]:
    return make_subject(str(workdir))


def make_subject(workdir: str) -> dict[str, str]:
    """Make something of every kind; return the values for the parts of an address."""
    watch = WatchFactory(name="shop", workdir=workdir)
    failed = SessionFactory(failed=True, workdir=workdir, cycle=CycleFactory(watch=watch))
    SessionEventFactory(session=failed)
    incident = IncidentFactory(watch=watch)
    remedy = RemedyFactory(watch=watch, name="look", parameters="", command=["docker", "ps"])
    RemedyRunFactory(remedy=remedy)
    ProbeFactory(watch=watch, name="web-http")
    Maintenance.objects.create(watch=watch, starts_at=timezone.now())
    ServiceStateFactory(watch=watch)
    ChannelFactory()
    source = SourceFactory(name="grafana", watch=watch)
    source.deliveries.create(size=1)
    return {
        "watch": "shop",
        "probe": "web-http",
        "remedy": "look",
        "source": "grafana",
        "cycles": str(failed.cycle_id),
        "sessions": str(failed.pk),
        "incidents": str(incident.pk),
        "approvals": str(ApprovalFactory().pk),
        "changes": str(ChangeFactory(session=failed).pk),
    }


def address_of(path: str, subject: dict[str, str]) -> str:
    """Fill the parts of an address of the schema."""
    for part in ("watch", "probe", "remedy", "source"):
        path = path.replace(f"{{{part}}}", subject[part])
    return path.replace("{number}", subject.get(path.removeprefix(PREFIX).split("/")[0], "1"))
