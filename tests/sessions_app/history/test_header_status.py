from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.utils import timezone

from escalation.notifications.digest import load_digest
from escalation.web.overview import load_inbox
from sessions_app.history.header_status import Attention, Pause, load_header_status
from sessions_app.models import Incident, PauseSwitch, WorkerHeartbeat
from tests.factories import (
    ApprovalFactory,
    ChannelFactory,
    IncidentFactory,
    SandboxProofFactory,
    SessionFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db


def test_an_empty_installation_has_an_empty_status():
    found = load_header_status()

    said = found.attention
    assert (said.total, said.title, said.sentence) == (0, "Claude Ops", "Nothing needs you.")
    assert (found.pause, found.sandbox_holds, found.failing_channels) == (Pause(), False, ())
    assert found.last_step == 0


def test_the_title_of_the_tab_shows_the_count():
    assert Attention(problems=2, approvals=1).title == "(3) Claude Ops"
    assert Attention(could_not_run=1).sentence == "1 thing needs you."


def test_counts_equal_those_of_the_inbox(django_assert_num_queries):
    IncidentFactory()
    IncidentFactory(kind="could_not_run")
    IncidentFactory(state="acknowledged", owner=UserFactory())
    IncidentFactory(state="acknowledged", owner=UserFactory(is_active=False))
    IncidentFactory(state="acknowledged", snoozed_until=timezone.now() - timedelta(minutes=1))
    IncidentFactory(state="acknowledged", snoozed_until=timezone.now() + timedelta(minutes=1))
    IncidentFactory(state="working", snoozed_until=timezone.now() - timedelta(minutes=1))
    IncidentFactory(snoozed_until=timezone.now() + timedelta(hours=1))
    IncidentFactory(healthy_cycles=1)
    IncidentFactory(drill="x", watch=None, scope="drill:x")
    ApprovalFactory()
    ApprovalFactory(state="approved")
    ApprovalFactory(expires_at=timezone.now() - timedelta(minutes=1))
    ApprovalFactory(session=SessionFactory(drill=True))

    with django_assert_num_queries(1):
        found = load_header_status().attention

    assert found == Attention(problems=3, could_not_run=1, approvals=1)
    asking = [one for one in Incident.objects.filter(drill="") if one.asks_for_person]
    assert len(asking) == 4
    inbox = load_inbox()
    assert (inbox.needs_person, inbox.could_not_run, inbox.unresolved) == (3, 1, 9)


def test_page_tab_status_and_digest_count_the_same(operator_client, capsys):
    """Also what is unverified, what its owner left, and faults of the installation, which are told
    beside it."""
    now = timezone.now()
    unverified = timezone.now() - timedelta(hours=30)
    IncidentFactory(), IncidentFactory(kind="could_not_run")
    IncidentFactory(state="verifying", verify_at=unverified)
    IncidentFactory(state="acknowledged", owner=None)
    IncidentFactory(state="acknowledged", owner=UserFactory())
    IncidentFactory(state="acknowledged", owner=UserFactory(is_active=False))
    IncidentFactory(drill="x", watch=None, scope="drill:x")
    ApprovalFactory(), ApprovalFactory(of_a_command=True)
    ApprovalFactory(expires_at=now - timedelta(minutes=1))
    ApprovalFactory(session=SessionFactory(drill=True))

    page = operator_client.get("/").content.decode()
    total = load_header_status().attention.total
    with suppress(SystemExit):
        call_command("status", "--json")
    status = json.loads(capsys.readouterr().out)
    with suppress(SystemExit):
        call_command("status")
    sentence = next(line for line in capsys.readouterr().out.splitlines() if "need" in line)
    digest = load_digest(now - timedelta(days=1), timezone.now())

    assert total == 7
    assert f"<title>({total}) Claude Ops</title>" in page
    assert f"{total} things need you</strong>" in page
    assert status["waiting_for_person"] == len(status["needs"]) == total
    assert status["installation"], "no worker runs here"
    assert f"{total} things need you" in sentence
    assert digest.title == f"Daily digest: {total} things need you"


def test_the_whole_status_needs_one_query(django_assert_num_queries):
    PauseSwitch.objects.create(
        pk=PauseSwitch.THE_ONE,
        paused=True,
        reason="new disks",
        changed_by=UserFactory(username="ada"),
    )
    SandboxProofFactory(is_worse=True)
    ChannelFactory(name="phone", failures_in_a_row=2)
    ChannelFactory(name="asleep", failures_in_a_row=2, enabled=False)
    IncidentFactory().events.create(kind="opened")
    newest = IncidentFactory().events.create(kind="opened")

    with django_assert_num_queries(1):
        found = load_header_status()

    assert found.pause == Pause(paused=True, reason="new disks", by="ada")
    assert found.sandbox_holds
    assert found.failing_channels == ("phone",)
    assert found.last_step == newest.pk


@pytest.mark.parametrize(("minutes", "silent"), [(1, False), (3, True)])
def test_a_worker_without_heartbeat_for_two_minutes_is_silent(minutes, silent):
    WorkerHeartbeat.objects.create(
        host="a", pid=1, seen_at=timezone.now() - timedelta(minutes=minutes)
    )

    assert load_header_status().worker_is_silent is silent


def test_a_pause_without_a_person_names_nobody():
    PauseSwitch.objects.create(pk=PauseSwitch.THE_ONE, paused=True, reason="by hand")

    assert load_header_status().pause == Pause(paused=True, reason="by hand")
