"""Pairs of acting endpoints at once on PostgreSQL, and each with the work of a worker.

Each pair acts on rows of its own: a finished cycle, one that waits for an approval and one that
runs. A trigger lets changed rows stay locked for a moment, so that two transactions which take
the same rows in different orders meet nearly always. One process pair races a part of the list.
`make prove` races every pair, other runs each action with itself and with those that lock most.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations_with_replacement, product
from typing import Any

import pytest

from escalation.web.urls import actions as urlpatterns
from tests.escalation.contenders import Contest

pytestmark = pytest.mark.timeout(600)

# Nothing to lock in these, or one row of its own alone.
LEFT_OUT = {
    *("healthz", "readyz", "metrics", "add_watch", "first_watch"),
    *("add_token", "revoke_token"),  # a row of their own
    *("add_source", "test_source", "renew_source", "enable_source", "disable_source"),
    *("add_probe", "run_probe", "mute_probe", "start_maintenance"),
}
# They change sources, remedies, probes and maintenance alone: raced with their own kind, with the
# removal of their watch, and with the work of a worker.
OF_ONE_KIND = ("_source", "_remedy", "_probe", "_maintenance")
WITH_ALL = {"run_remedy", "adopt_remedy"}
RACED = [str(route.name) for route in urlpatterns if route.name not in LEFT_OUT]
BESIDE = [name for name in RACED if name.endswith(OF_ONE_KIND) and name not in WITH_ALL]
ENDPOINTS = [name for name in RACED if name not in BESIDE]
OF_A_RUN = ["stop_session", "conclude", "put back"]
OF_A_FINISHED_CYCLE = [
    *("follow_up", "fork_session", "retry_session", "escalate_session", "allow_session"),
]
OF_THE_LINE = ["begin", "expire"]
OF_A_WORKER = ["conclude", "put back", *OF_THE_LINE, "start waiting"]
# They change channels, messages and notifications alone, so nothing else is raced with them.
OF_THE_OUTBOX = ["route notifications", "send message"]
OF_CHANNELS = [name for name in ENDPOINTS if name.endswith("_channel")]
EVERY_PAIR = [
    *combinations_with_replacement([*ENDPOINTS, *OF_A_WORKER], 2),
    *combinations_with_replacement(BESIDE, 2),
    *product(BESIDE, ["remove_watch", "edit_watch", *OF_A_WORKER]),
    *product([*OF_CHANNELS, "remove_watch"], OF_THE_OUTBOX),
    *combinations_with_replacement(OF_THE_OUTBOX, 2),
]

# They lock rows of several tables: session, cycle, approval, incident, watch, queue. What passes
# beside each of them takes its locks in the common order.
CENTRAL = {"conclude", "remove_watch"}
OF_SEVERAL_TABLES = {
    *CENTRAL,
    *("approve", "stop_cycle", "retry_session", "pause_all", "resolve_incident", "run_watch"),
    *("edit_watch", *OF_A_WORKER),
}
CHOSEN_PAIRS = [
    (one, other)
    for one, other in EVERY_PAIR
    if one == other or {one, other} & CENTRAL or {one, other} <= OF_SEVERAL_TABLES
]

SETUP = f"""
from datetime import timedelta
from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import setup_test_environment
from django.urls import reverse
from django.utils import timezone
from escalation.supervisor.approvals import link_for
from escalation.supervisor.conclude import conclude
from escalation.supervisor.decision import Escalate
from escalation.supervisor.decision import Ending
from escalation.supervisor.manual import expire_queued
from escalation.queue import installation_lock
from escalation.queue import start_waiting
from escalation.run import runner
from escalation.run.runner import admit
from escalation.run.recorder import Recorder
from escalation.notifications import outbox, sending
from escalation.web.urls import actions as urlpatterns
from sessions_app.models.session import IllegalTransition
from sessions_app.models import Probe, ProbeProposal, Remedy
from sessions_app.redaction.encryption import (encrypt_address)
setup_test_environment()
# No process of Apprise is started and nothing is sent.
sending.look_at = lambda address: sending.DeliveryResult(True, "", "JSON")
sending.deliver = lambda address, **message: sending.DeliveryResult(True, "")
user = User.objects.create(username="operator", is_staff=True, is_superuser=True)
now = timezone.now()

def made(model, rows):
    return model.objects.bulk_create([model(**row) for row in rows])

def cycles_of(kind, state, places, **more):
    watches = made(Watch, [
        dict(name=f"{{kind}}-{{n}}", workdir="/tmp", max_tier=3, dry_run=False) for n in places
    ])
    return dict(zip(places, made(Cycle, [
        dict(watch=watch, watch_name=watch.name, trigger="manual", workdir="/tmp", state=state,
             **more)
        for watch in watches
    ])))

def sessions_of(cycles, tier, status, parents=None, **more):
    return dict(zip(cycles, made(Session, [
        dict(cycle=cycle, watch_id=cycle.watch_id, tier=tier, status=status, model="haiku",
             workdir="/tmp", parent_session=parents and parents[place], **more)
        for place, cycle in cycles.items()
    ])))

def numbers_of(rows):
    return {{place: row.pk for place, row in rows.items()}}

everywhere = range(len(pairs))
with_a_run, with_a_line = (
    [place for place in everywhere if set(pairs[place]) & set(names)]
    for names in ({OF_A_RUN!r}, {OF_THE_LINE!r})
)
over = dict(started_at=now, finished_at=now)
finished = cycles_of("finished", "finished", everywhere, outcome="needs_person", finished_at=now)
waiting = cycles_of("waiting", "running", everywhere)
cut_off = sessions_of(finished, 1, "interrupted", **over)
escalated = sessions_of(waiting, 1, "escalated", **over)
asked = sessions_of(waiting, 2, "awaiting_approval", escalated)
live = sessions_of(cycles_of("running", "running", with_a_run), 1, "running", started_at=now)
in_line = sessions_of(cycles_of("queued", "queued", with_a_line), 1, "queued", waiting_since=now)
approvals = dict(zip(asked, made(Approval, [
    dict(kind="tier", session=session, why="more", expires_at=now + timedelta(hours=1))
    for session in asked.values()
])))
incidents = dict(zip(finished, made(Incident, [
    dict(kind="problem", scope=f"watch:{{cycle.watch_id}}", cause="shop", title="shop is down",
         severity=2, watch=cycle.watch, first_seen_at=now, last_seen_at=now, last_cycle=cycle)
    for cycle in finished.values()
])))
proof = SandboxProof.objects.create(
    kind="cli", rows=[], tried=1, failed=1, is_worse=True, started_at=now, finished_at=now
)
ADDRESS = "json://127.0.0.1:9/"
with_channel = [
    place for place in everywhere
    if set(pairs[place]) & set({[*OF_CHANNELS, *OF_THE_OUTBOX]!r})
]
channels = dict(zip(with_channel, made(Channel, [
    # The outbox reads the rules of all enabled channels, so only those are enabled that need it.
    dict(name=f"channel-{{place}}", encrypted_address=encrypt_address(ADDRESS), service="JSON",
         enabled=bool(set(pairs[place]) & set({OF_THE_OUTBOX!r})))
    for place in with_channel
])))
made(Channel.watches.through, [
    dict(channel=channel, watch=finished[place].watch) for place, channel in channels.items()
])
made(Message, [
    dict(channel=channel, title="shop is down", severity=2, due_at=now)
    for channel in channels.values()
])
sources = dict(zip(everywhere, made(Source, [
    dict(name=f"source-{{place}}", kind="generic", token_hash=str(place), watch=cycle.watch)
    for place, cycle in finished.items()
])))
remedies = dict(zip(finished, made(Remedy, [
    dict(watch=cycle.watch, name="look", description="Looks.", command=["docker", "ps"],
         kind="look") for cycle in finished.values()
])))
probes = dict(zip(finished, made(Probe, [
    dict(watch=cycle.watch, name="web", service="web", kind="tcp", target="127.0.0.1:9",
         token=f"probe-{{place}}")
    for place, cycle in finished.items()
])))
proposed = ("web", "tcp", "127.0.0.1:19")
key = ProbeProposal.key_of(*proposed)
made(ProbeProposal, [
    dict(zip(("service", "kind", "target"), proposed), watch=cycle.watch, key=key)
    for cycle in finished.values()
])
accounts = dict(zip(everywhere, made(User, [
    dict(username=f"account-{{place}}", is_staff=True) for place in everywhere
])))
numbers = {{
    "accounts": numbers_of(accounts),
    "probes": numbers_of(probes),
    "remedies": numbers_of(remedies),
    "sources": numbers_of(sources),
    "channels": numbers_of(channels),
    "watches": {{place: cycle.watch_id for place, cycle in finished.items()}},
    "sessions": numbers_of(cut_off),
    "sandbox": {{place: proof.pk for place in everywhere}},
    "incidents": numbers_of(incidents),
    "approvals": numbers_of(approvals),
    "changes": {{place: 1 for place in everywhere}},
}}
routes = {{str(route.name): str(route.pattern) for route in urlpatterns}}
form = {{
    **{{"request": "Why?", "confirm": "on", "reason": "fire", "stop_running": "on", "for": "1h"}},
    "key": key,
    **{{"note": "seen", "to": "operator", "answer": "approve", "step": "safe"}},
    **{{"workdir": "/tmp", "interval_minutes": "90", "max_tier": "2", "restarts_allowed": "2"}},
    **{{"address": ADDRESS, "least_severity": "2"}},
    **{{"restart_hours": "1", "redeployments_allowed": "2", "redeployment_hours": "1"}},
}}

def stopped_with(names, place):
    # The cycle in which the other of the pair acts.
    if set(names) & set({OF_A_RUN!r}):
        return live[place].cycle_id
    if set(names) & set({OF_THE_LINE!r}):
        return in_line[place].cycle_id
    if set(names) & set({OF_A_FINISHED_CYCLE!r}):
        return finished[place].pk
    return waiting[place].pk

def address(name, place):
    if name == "approval_link":
        return link_for(approvals[place], user)
    if name == "stop_session":
        return reverse("web:stop_session", args=[live[place].pk])
    if name == "stop_cycle":
        return reverse("web:stop_cycle", args=[stopped_with(pairs[place], place)])
    kinds = [kind for kind in numbers if routes[name].startswith(kind + "/<")]
    return reverse("web:" + name, args=[numbers[kind][place] for kind in kinds])

def work(name, place):
    if name == "start waiting":
        start_waiting()
        return
    if name == "send message":
        sending.send_due(channels[place].pk)
        return
    if name == "route notifications":
        with installation_lock():
            watch = Watch.objects.filter(pk=finished[place].watch_id).first()
            Notification.objects.create(kind="budget", severity=3, title="Spent", watch=watch)
        outbox.pass_on()
        return
    rows = in_line if name in {OF_THE_LINE!r} else live
    session = Session.objects.select_related("cycle__watch").get(pk=rows[place].pk)
    if name == "begin":
        admit(session)
    elif name == "conclude":
        ending = Ending(tier=1, status="completed")
        conclude(session, ending, Escalate(to_tier=2, reason="more"))
    elif name == "put back":
        runner._put_back(session, Recorder(session), "not now", session.started_at)
    else:
        expire_queued(session, "too old")

def act(client, name, place):
    try:
        if name not in routes:
            work(name, place)
            return ""
        watch = finished[place].watch_id
        posted = {{**form, "name": f"edited-{{place}}", "watches": [watch]}}
        response = client.post(address(name, place), posted)
        return "" if response.status_code in (200, 302, 404, 422) else str(response.status_code)
    except IllegalTransition:
        return ""
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"

with connection.cursor() as cursor:
    database = connection.settings_dict["NAME"]
    cursor.execute(f"ALTER DATABASE {{database}} SET deadlock_timeout = '50ms'")
    cursor.execute('''
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.004); RETURN NULL; END $$''')
    for model in (Session, Cycle, Approval, Incident, Watch, PauseSwitch, Channel, Message):
        cursor.execute(
            f"CREATE TRIGGER dawdle AFTER UPDATE ON {{model._meta.db_table}} "
            "FOR EACH STATEMENT EXECUTE FUNCTION dawdle()"
        )
starts = [get_context("fork").Barrier(2) for _ in range(2)]
"""

BEFORE = """
client = Client()
client.force_login(user)
team, side = divmod(number, 2)
"""

ATTEMPT = """
answer = []
for place in everywhere[team::2]:
    starts[team].wait(60)
    answer.append([place, act(client, pairs[place][side], place)])
"""

LOOK = """
seen = {
    "approvals": list(Approval.objects.values_list("state", flat=True)),
    "sessions": list(Session.objects.values_list("status", flat=True)),
    "messages": list(Message.objects.values_list("state", flat=True)),
    "channels": list(Channel.objects.values_list("name", flat=True)),
    "proposals": list(ProbeProposal.objects.values_list("state", flat=True)),
}
"""


@dataclass(frozen=True)
class Races:
    pairs: list[tuple[str, str]]
    failed: list[list[Any]]
    """Pair and error."""
    seen: dict[str, list[str]]
    """States of all rows afterwards."""


@pytest.fixture(
    scope="module",
    params=["chosen", pytest.param("every", marks=pytest.mark.prove)],
)
def races(request, tmp_path_factory, new_postgres_database) -> Races:
    pairs = CHOSEN_PAIRS if request.param == "chosen" else EVERY_PAIR
    with closing(Contest(tmp_path_factory.mktemp("races"), new_postgres_database())) as own:
        answers, seen = own.race(
            setup=f"pairs = {pairs!r}\n{SETUP}",
            before=BEFORE,
            attempt=ATTEMPT,
            look=LOOK,
            timeout=200,
        )
    failed = [[pairs[place], said] for answer in answers for place, said in answer if said]
    return Races(pairs, failed, seen)


def test_no_pair_of_actions_deadlocks_or_fails(races):
    assert races.failed == []


def test_the_endpoints_changed_rows_during_the_races(races):
    """Else the races would prove nothing."""
    answered, ended = Counter(races.seen["approvals"]), Counter(races.seen["sessions"])
    enough = len(races.pairs) // 150

    assert min(answered[state] for state in ("approved", "rejected", "withdrawn")) >= enough
    assert (
        min(ended[status] for status in ("running", "escalated", "cancelled", "expired")) > enough
    )
    assert min(Counter(races.seen["messages"])[state] for state in ("sent", "failed")) >= enough
    assert sum(name.startswith("edited-") for name in races.seen["channels"]) > enough


def test_the_chosen_pairs_race_each_action_with_itself_and_with_the_central_ones():
    beside = {
        name: {one for pair in CHOSEN_PAIRS if name in pair for one in pair} for name in RACED
    }

    assert {name for name, others in beside.items() if not {name, *CENTRAL} <= others} == set()
