"""Every endpoint that acts: by POST, from our own forms, and only for those who may."""

from __future__ import annotations

import html
import re
import socket
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ

from escalation.sandbox.edited_files import digest_of
from escalation.web.urls import actions
from escalation.worker.schedules import pause
from sessions_app.models import (
    Approval,
    Change,
    Channel,
    Cycle,
    Incident,
    IncidentEvent,
    Maintenance,
    Manifest,
    PauseSwitch,
    Probe,
    RateLimit,
    Remedy,
    RemedyRun,
    SandboxProof,
    Session,
    Source,
    Watch,
)
from tests.factories import (
    ApiTokenFactory,
    ApprovalFactory,
    ChangeFactory,
    ChannelFactory,
    CycleFactory,
    IncidentFactory,
    ProbeFactory,
    RemedyFactory,
    RemedyRunFactory,
    SandboxProofFactory,
    SessionEventFactory,
    SessionFactory,
    SourceFactory,
    WatchFactory,
    user_with,
)

# Every page names the CLI, so there is one to name.
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("fake_cli")]

# The link asks for no login and has tests of its own.
ONLY_SHOWING = {"healthz", "readyz", "metrics", "approval_link"}
# Read from the addresses themselves: an endpoint that is added is tried here too.
ENDPOINTS = [str(route.name) for route in actions if route.name not in ONLY_SHOWING]
every_endpoint = pytest.mark.parametrize("name", ENDPOINTS)
FORM = {
    **{"request": "Why?", "confirm": "on", "scenario": "all-healthy", "reason": "fire"},
    **{"name": "hook", "address": "json://127.0.0.1/hook", "least_severity": "2"},
    "workdir": "/srv",
}
# A form of many fields may say that some are missing: whoever is told so may act.
DONE = {302, 422}
# Shows the new secret once, which a redirect would have to keep somewhere.
SHOWS_SECRET = {"renew_source", "link_account"}
# Whoever may log in has tokens, which may no more than the account.
FOR_EVERYBODY = {"add_token", "revoke_token"}
FOR_ADMINISTRATORS = ("_channel", "_source", "_account", "_account_role")
LIMITED = [name for name in ENDPOINTS if name not in FOR_EVERYBODY]


@pytest.fixture
def subject(workdir) -> dict[str, int]:
    """The numbers that addresses need: a watch that can run, a run that can be gone on from."""
    watch = WatchFactory(name="shop", workdir=str(workdir))
    failed = SessionFactory(failed=True, workdir=str(workdir), cycle=CycleFactory(watch=watch))
    before = SessionFactory(tier=2, escalated=True, cycle=CycleFactory(running=True))
    waiting = SessionFactory(tier=3, parent_session=before, status=Session.Status.AWAITING_APPROVAL)
    (workdir / "new.conf").write_text("x")
    edited = SessionFactory(
        tier=2,
        host=socket.gethostname(),
        cycle=CycleFactory(watch=watch, workdir=str(workdir)),
        sandbox={"writable": [str(workdir)]},
    )
    change = ChangeFactory(
        session=edited,
        kind=Change.Kind.EDIT,
        path=str(workdir / "new.conf"),
        before=Change.Before.ABSENT,
        left_digest=digest_of(b"x"),
    )
    return {
        "changes": change.pk,
        "watches": watch.pk,
        "sessions": failed.pk,
        "cycles": waiting.cycle_id,
        "sandbox": SandboxProofFactory(worse=True).pk,
        "incidents": IncidentFactory(watch=watch).pk,
        "approvals": ApprovalFactory(session=waiting).pk,
        "channels": ChannelFactory().pk,
        "sources": SourceFactory().pk,
        "tokens": ApiTokenFactory().pk,
        "accounts": user_with("viewer").pk,
        "probes": ProbeFactory(watch=watch).pk,
        "remedies": RemedyFactory(watch=watch, parameters="", command=["docker", "ps"]).pk,
    }


def address(name: str, subject: dict[str, int]) -> str:
    route = next(str(route.pattern) for route in actions if route.name == name)
    numbers = [number for kind, number in subject.items() if route.startswith(f"{kind}/<")]
    return reverse(f"web:{name}", args=numbers)


def everything() -> list[object]:
    """All that an endpoint could have changed."""
    return [
        list(Watch.objects.values()),
        list(Cycle.objects.values()),
        list(Session.objects.values()),
        list(PauseSwitch.objects.values()),
        list(SandboxProof.objects.values()),
        list(Incident.objects.values()),
        list(Approval.objects.values()),
        list(Channel.objects.values()),
        list(Source.objects.values()),
        list(Change.objects.values()),
        list(Remedy.objects.values()),
        list(RemedyRun.objects.values()),
        list(Probe.objects.values()),
        list(Maintenance.objects.values()),
        OrmQ.objects.count(),
    ]


def a_client(role: str, **user: object) -> Client:
    client = Client()
    client.force_login(user_with(role, **user))
    return client


def test_the_test_finds_the_acting_endpoints():
    assert {"run_watch", "pause_watch", "pause_all", "start_drill", "stop_session"} <= set(
        ENDPOINTS
    )
    assert {"follow_up", "fork_session", "retry_session", "escalate_session"} <= set(ENDPOINTS)


def test_an_anonymous_visitor_is_sent_to_the_login(client, subject):
    before = everything()

    answers = {name: client.post(address(name, subject), FORM) for name in ENDPOINTS}

    places = {name: answer.headers.get("Location", "") for name, answer in answers.items()}
    login = reverse("login")
    assert {name: place for name, place in places.items() if not place.startswith(login)} == {}
    assert everything() == before


def test_it_acts_only_on_post(operator_client, subject):
    before = everything()

    answers = {name: operator_client.get(address(name, subject), FORM) for name in ENDPOINTS}

    assert other_than(405, answers) == {}
    assert everything() == before


def test_a_form_from_another_site_is_refused(operator, subject):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(operator)
    before = everything()

    answers = {name: strict.post(address(name, subject), FORM) for name in ENDPOINTS}

    assert other_than(403, answers) == {}
    assert everything() == before


@pytest.mark.parametrize("staff", [False, True])
def test_a_viewer_is_told_which_role_is_needed(subject, staff):
    client, before = a_client("viewer", is_staff=staff), everything()

    answers = {name: client.post(address(name, subject), FORM) for name in LIMITED}

    assert other_than(403, answers) == {}
    texts = {name: html.unescape(answer.content.decode()) for name, answer in answers.items()}
    assert [name for name, text in texts.items() if "that takes the role" not in text] == []
    assert everything() == before


def test_permissions_of_django_decide_nothing(subject):
    user = user_with("viewer", is_staff=True)
    user.user_permissions.set(Permission.objects.all())
    client = Client()
    client.force_login(user)

    answers = {name: client.post(address(name, subject), FORM) for name in LIMITED}

    assert other_than(403, answers) == {}


def other_than(code: int, answers: Mapping[str, Any]) -> dict[str, int]:
    """The endpoints that gave another answer, with its code."""
    return {
        name: answer.status_code for name, answer in answers.items() if answer.status_code != code
    }


@every_endpoint
def test_an_admin_may_do_everything_here(subject, name):
    expected = {200} if name in SHOWS_SECRET else DONE

    assert a_client("admin").post(address(name, subject), FORM).status_code in expected


@every_endpoint
def test_an_approver_may_do_all_but_manage_keys(subject, name):
    expected = {403} if name.endswith(FOR_ADMINISTRATORS) else DONE
    if name == "revoke_token":
        expected = {404}  # it is not their own

    assert a_client("approver").post(address(name, subject), FORM).status_code in expected


def test_a_revoked_right_is_gone_with_the_next_request(subject):
    user = user_with("operator")
    client = Client()
    client.force_login(user)
    user.groups.clear()

    assert client.post(address("pause_all", subject), FORM).status_code == 403


def pages(client: Client, subject: dict[str, int]) -> str:
    running = SessionFactory(running=True, argv=["claude", "--input-format", "stream-json"])
    withheld = SessionFactory(cycle=CycleFactory(max_tier=1))
    addresses = [
        reverse("web:overview"),
        f"{reverse('web:start')}?new=1",
        reverse("web:new_watch"),
        reverse("web:watch", args=[subject["watches"]]),
        reverse("web:watch_settings", args=[subject["watches"]]),
        reverse("web:watch_removal", args=[subject["watches"]]),
        reverse("web:cycle", args=[subject["cycles"]]),
        reverse("web:sandbox"),
        reverse("web:costs"),
        reverse("web:approval", args=[subject["approvals"]]),
        reverse("web:session", args=[subject["sessions"]]),
        reverse("web:session", args=[running.pk]),
        reverse("web:session", args=[withheld.pk]),
        reverse("web:cycle", args=[running.cycle_id]),
        reverse("web:incident", args=[subject["incidents"]]),
        reverse("web:change", args=[subject["changes"]]),
        reverse("web:autonomy", args=[subject["watches"]]),
        reverse("web:probes", args=[subject["watches"]]),
        reverse("web:watch_remedies", args=[subject["watches"]]),
        *(reverse("web:remedy", args=[one.pk]) for one in Remedy.objects.all()),
        reverse("web:channels"),
        *(reverse("web:channel", args=[target.pk]) for target in Channel.objects.all()),
        reverse("web:sources"),
        *(reverse("web:source", args=[one.pk]) for one in Source.objects.all()),
        IncidentFactory(state=Incident.State.RESOLVED).get_absolute_url(),
    ]
    return "".join(client.get(url).content.decode() for url in addresses)


def forms_in(text: str) -> int:
    return text.count('method="post"') - text.count(f'action="{reverse("logout")}"')


def let_manifest_wait(subject: dict[str, int]) -> None:
    Manifest.objects.create(
        watch_id=subject["watches"], text="of a file that is gone", accepted_at=timezone.now()
    )


def let_remedies_wait(subject: dict[str, int], script: Path) -> None:
    """A script that nobody has accepted, and a command that the record proposes."""
    script.write_text("#!/bin/sh\n")
    watch = Watch.objects.get(pk=subject["watches"])
    RemedyFactory(watch=watch, parameters="", command=[str(script)])
    incident, cycle = IncidentFactory(watch=watch, cause="db"), CycleFactory(watch=watch)
    incident.cycles.add(cycle)
    incident.events.create(kind=IncidentEvent.Kind.VERIFIED)
    for _time in range(3):
        session = SessionFactory(cycle=cycle, tier=2)
        ChangeFactory(session=session, command="docker restart db", service="db", exit_code=0)
        ApprovalFactory(
            of_a_command=True,
            session=session,
            command="docker restart db",
            grants=["docker"],
            state=Approval.State.APPROVED,
            used_at=timezone.now(),
        )


def new_watch(directory: Path) -> Watch:
    """A watch without a manifest, with a proposed probe and a run that can be undone."""
    directory.mkdir()
    (directory / "compose.yaml").write_text("services: {web: {ports: ['8080:80']}}\n")
    watch = WatchFactory(workdir=str(directory))
    RemedyRunFactory(remedy=RemedyFactory(watch=watch, undo="stop"))
    return watch


def test_a_role_that_may_not_act_sees_no_form(subject):
    WatchFactory(enabled=False)
    let_manifest_wait(subject)

    assert forms_in(pages(a_client("viewer"), subject)) == 0


def test_a_role_that_may_not_act_cannot_unpause(subject):
    pause("new disks")

    shown = pages(a_client("viewer"), subject)

    assert "Paused: no new tier starts." in shown
    assert forms_in(shown) == 0


def test_a_role_that_may_act_sees_every_form(subject, tmp_path):
    WatchFactory(enabled=False)
    in_an_hour = timezone.now() + timedelta(hours=1)
    RateLimit.objects.create(pk=RateLimit.THE_ONE, until=in_an_hour)
    ChannelFactory(enabled=False)
    SourceFactory(enabled=False)
    SourceFactory(kind="generic")
    new = new_watch(tmp_path / "new")
    let_manifest_wait(subject)
    let_remedies_wait(subject, tmp_path / "fix.sh")
    Maintenance.objects.create(watch_id=subject["watches"])
    shown = pages(a_client("admin"), subject)
    pause("x")

    shown += pages(a_client("admin"), subject)
    user_with("viewer", is_active=False)
    admin = a_client("admin")
    for page in ("web:tokens", "web:accounts"):
        shown += admin.get(reverse(page)).content.decode()
    for page in ("web:watch", "web:probes", "web:watch_remedies"):
        shown += admin.get(reverse(page, args=[new.pk])).content.decode()

    offered = {re.sub(r"\d+", "N", action) for action in re.findall(r'action="([^"#]+)', shown)}
    assert {re.sub(r"\d+", "N", address(name, subject)) for name in ENDPOINTS} <= offered


OUTPUT = "said by a program"


@pytest.mark.parametrize(("role", "is_shown"), [("viewer", False), ("operator", True)])
def test_output_is_shown_only_to_roles_that_may_see_it(role, is_shown):
    session = SessionFactory(
        failed=True, prompt=f"{OUTPUT} 1", result=f"{OUTPUT} 2", handoff=f"{OUTPUT} 3"
    )
    SessionEventFactory(session=session, payload={"text": f"{OUTPUT} 4"})
    page = reverse("web:session", args=[session.pk])

    client = a_client(role)
    shown = client.get(page).content.decode()
    fragment = client.get(page, headers={"HX-Request": "true"}).content.decode()

    assert [OUTPUT in shown, OUTPUT in fragment] == [is_shown] * 2
