"""Every page that shows something, found in the URL configuration, with data for each."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse

from escalation.web import urls
from sessions_app.models import ProbeProposal, Session, WorkerHeartbeat
from tests.devtools.benchmarks.pages import pages
from tests.factories import (
    ApprovalFactory,
    ChangeFactory,
    ChannelFactory,
    IncidentFactory,
    MessageFactory,
    NotificationFactory,
    RemedyFactory,
    RemedyRunFactory,
    SourceFactory,
    UserFactory,
)

ASKED_BESIDES = ("/costs/?period=all&view=continuity", "/costs/?drills=yes", "/login/")


def fill_every_page(session: Session, words: str = "web") -> None:
    """Beside a busy installation: what waits, what was changed, what was told."""
    ApprovalFactory(state="rejected", decided_by=UserFactory(), note=words, why=words[:300])
    ApprovalFactory(of_a_command=True, command=words, why=words[:300], plan=words)
    ChangeFactory(session=session, action=words[:300], command=words, service=words[:200])
    incident = IncidentFactory(
        **{"title": words[:200], "detail": words, "remedy": words[:300], "severity": 3},
        **{"times_reopened": 2, "owner": UserFactory()},
    )
    incident.cycles.add(session.cycle)
    incident.events.create(kind="did_not_hold", text=words, session=session)
    NotificationFactory(title=words[:200], text=words, incident=incident)
    MessageFactory(channel=ChannelFactory(), title=words[:200], body=words, error=words[:300])
    watch = session.cycle.watch
    row = {"service": words[:200], "kind": "command", "target": words[:500], "why": words[:300]}
    ProbeProposal.objects.create(watch=watch, session=session, key="a", **row)
    RemedyRunFactory(remedy=RemedyFactory(watch=watch, undo="back"), by_name=words[:200])
    source = SourceFactory(kind="generic", sample={"summary": words, "id": words})
    alert = {"service": words[:200], "summary": words[:300]}
    source.deliveries.create(size=1, became=words[:300], content=[{**alert, "state": "firing"}])
    source.problems.create(fingerprint="a", severity=3, incident=incident, **alert)
    WorkerHeartbeat.objects.update_or_create(host=words[:200], defaults={"pid": 1})


def every_page() -> list[str]:
    """Addresses of all pages for people, the admin's index, and some further views of them."""
    shows = {f"web:{page.name}" for page in urls.pages}
    shown = [page.url for page in pages() if page.name in shows and not page.way]
    return [*dict.fromkeys(shown), *ASKED_BESIDES, reverse("admin:index")]


def every_admin_list() -> list[str]:
    models = (model._meta for model in admin.site._registry)
    return [reverse(f"admin:{meta.app_label}_{meta.model_name}_changelist") for meta in models]
