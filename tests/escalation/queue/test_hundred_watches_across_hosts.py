"""A hundred watches due in the same minute, and real workers of three hosts that take their tasks.

What a worker does with a task is done here without a CLI: ask for a place, run for a moment, and
come to an end as every run does. Every watch escalates once, so that its second round would like to
come early.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from tests.escalation.contenders import CONTENDERS, Contest

pytestmark = [pytest.mark.prove, pytest.mark.timeout(300)]
TIMEOUT_SECONDS = 200
WATCHES, LIMIT = 100, 3
IN_FLIGHT = 3 * CONTENDERS
"""Places in line that a start may be early or late by: what the workers hold in their hands."""

DUE = f"""
os.environ["ANTHROPIC_API_KEY"] = "not-used"
from django.conf import settings
from django_q.models import OrmQ
from escalation import queue, tasks
from escalation.supervisor.conclude import conclude
from escalation.supervisor.decision import Escalate, Stop
from escalation.supervisor.decision import Ending
from escalation.queue.broker import WakingBroker
from escalation.queue import is_turn_of, start_waiting, wait_for_slot
from escalation.run import runner
from escalation.run.runner import admit
settings.CLAUDEOPS_MAX_SESSIONS = {LIMIT}
for number in range({WATCHES}):
    watch = Watch.objects.create(name=f"watch-{{number}}", workdir="/tmp", enabled=True, max_tier=3)
    said = tasks.start_scheduled_cycle(watch.pk)
    assert "was started" in said, said
due = list(Session.objects.order_by("pk").values_list("pk", flat=True))
open_sessions = Session.objects.filter(status__in=["queued", "running"])
"""

HOST = """
runner.socket.gethostname = lambda: f"host-{number % 3 + 1}"
broker = WakingBroker("claudeops")
"""

WORK = """
began, at_once = [], []

def end(session):
    ending = Ending(tier=session.tier, status="completed")
    higher, over = Escalate(to_tier=2, reason="more is needed"), Stop("healthy", "all is well")
    conclude(session, ending, higher if session.tier == 1 else over)

def take(key):
    (number,) = OrmQ.objects.get(pk=key).task["args"]
    session = Session.objects.select_related("cycle__watch").get(pk=number)
    if not is_turn_of(session):
        wait_for_slot(session)
        start_waiting()
    elif not admit(session):
        began.append((time.monotonic(), session.pk))
        at_once.append(Session.objects.filter(status="running").count())
        time.sleep(0.02)
        end(session)
    broker.acknowledge(key)

while open_sessions.exists():
    for key, _payload in broker.dequeue():
        take(key)
answer = [began, at_once]
"""

LOOK = """
tiers = dict(Session.objects.values_list("pk", "tier"))
seen = [due, tiers, sorted(set(Session.objects.values_list("host", flat=True)))]
"""


@pytest.fixture(scope="module")
def rush(tmp_path_factory, new_postgres_database) -> dict[str, Any]:
    with closing(Contest(tmp_path_factory.mktemp("rush"), new_postgres_database())) as own:
        answers, (due, tiers, hosts) = own.race(
            setup=DUE, before=HOST, attempt=WORK, look=LOOK, timeout=TIMEOUT_SECONDS
        )
    began = [entry for answer in answers for entry in answer[0]]
    return {
        "started": [key for _moment, key in sorted(began)],
        "most": max(count for answer in answers for count in answer[1]),
        "due": due,
        "tiers": {int(key): tier for key, tier in tiers.items()},
        "hosts": hosts,
    }


def test_every_session_is_started_once(rush):
    assert sorted(rush["started"]) == sorted(rush["tiers"])
    assert len(rush["started"]) == 2 * WATCHES
    assert rush["hosts"] == ["host-1", "host-2", "host-3"]


def test_sessions_of_all_hosts_stay_within_the_limit(rush):
    assert rush["most"] == LIMIT


def test_sessions_start_in_the_order_in_which_they_were_due(rush):
    firsts = [key for key in rush["started"] if rush["tiers"][key] == 1]
    moved = [abs(firsts.index(key) - place) for place, key in enumerate(rush["due"])]
    print(f"at most {max(moved)} places out of order")

    assert max(moved) <= IN_FLIGHT


def test_second_cycles_wait_until_every_watch_had_its_first(rush):
    tiers = [rush["tiers"][key] for key in rush["started"]]
    late = tiers[tiers.index(2) :].count(1)
    print(f"{late} first rounds began after a second one")

    assert late <= IN_FLIGHT
