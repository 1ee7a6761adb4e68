"""Cooldowns and budgets hold between concurrent processes."""

from __future__ import annotations

from tests.escalation.contenders import CONTENDERS

RUNS_OF_ONE_WATCH = f"""
from datetime import UTC, datetime
from sessions_app.models.session import Verdict
from escalation.sandbox.command_runner import DecisionRecord
from escalation.command_policy.understanding import CommandEffect
from escalation.run.command_checks import RunChanges

def restart(service):
    command = f"docker restart {{service}}"
    return DecisionRecord(
        command=command, verdict=Verdict.ALLOW, rule="understood", reason="",
        actions=(command,), changes=(command,),
        effects=(CommandEffect(kind="restart", service=service, action=command),),
        cwd="/", at=datetime.now(UTC),
    )

def asked(session, records):
    # In threads, as the command policy asks; the thread of the session answers.
    import threading
    changes, refusals = RunChanges(session), []
    ask = lambda record: refusals.append(changes.objection(record))
    threads = [threading.Thread(target=ask, args=(record,)) for record in records]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        changes.answer()
        time.sleep(0.001)
    return refusals

first = queued(f"cooldown-{{time.time_ns()}}", tier=2)
sessions = [first] + [
    Session.objects.create(cycle=first.cycle, tier=2, model="sonnet", workdir="/tmp")
    for _ in range({CONTENDERS - 1})
]
"""


def test_of_many_concurrent_restarts_two_are_allowed(contest):
    answers, (written, opened, told) = contest.race(
        setup=RUNS_OF_ONE_WATCH,
        before="mine = Session.objects.select_related('cycle__watch').get(pk=sessions[number].pk)",
        attempt="""
refusals = asked(mine, [restart("web") for _ in range(5)])
answer = [refusal.reason for refusal in refusals if refusal], refusals.count(None)
""",
        look="""
changes = Change.objects.filter(watch=first.cycle.watch, service="web")
opened = Incident.objects.filter(watch=first.cycle.watch).count()
told = Notification.objects.filter(watch=first.cycle.watch, kind="incident_opened").count()
seen = [changes.count(), opened, told]
""",
    )

    assert sum(passed for _refused, passed in answers) == 2
    refused = [reason for reasons, _passed in answers for reason in reasons]
    assert len(refused) == 5 * CONTENDERS - 2
    assert all("was restarted twice in the last 4 h" in reason for reason in refused)
    assert (written, opened, told) == (2, 1, 1)


def test_one_redeployment_of_all_services_passes(contest):
    """A redeployment of everything is counted for the next one of everything."""
    answers, written = contest.race(
        setup=RUNS_OF_ONE_WATCH
        + """
from dataclasses import replace
def redeploy(words):
    command = f"docker compose up {words}".strip()
    effect = CommandEffect(kind="redeploy", service=words or "*", action=command)
    return replace(restart("web"), command=command, actions=(command,), effects=(effect,))
""",
        before="mine = Session.objects.select_related('cycle__watch').get(pk=sessions[number].pk)",
        attempt="""
(refusal,) = asked(mine, [redeploy("")])
answer = refusal is None
""",
        look="seen = Change.objects.filter(watch=first.cycle.watch).count()",
    )

    assert sorted(answers) == [False] * (CONTENDERS - 1) + [True]
    assert written == 1


ALMOST_SPENT = f"""
from decimal import Decimal
from django.conf import settings
from django.utils import timezone
from escalation.run.runner import admit
from sessions_app.models import PeriodCost
Session.objects.exclude(status="failed").update(status="failed", started_at=None)
PeriodCost.objects.all().delete()
def ended(cost):
    session = queued(f"ended-{{time.time_ns()}}")
    session.claim()
    session.finish("completed", "done", cost_usd=Decimal(cost))
for _ in range(9):
    ended("0.10")
settings.CLAUDEOPS_MAX_SESSIONS = 10
sessions = [queued(f"waits-{{time.time_ns()}}-{{n}}") for n in range({CONTENDERS})]
"""


def test_a_budget_for_one_session_admits_one(contest):
    answers, running = contest.race(
        setup=ALMOST_SPENT + "settings.CLAUDEOPS_BUDGET_DAY = Decimal('1.00')",
        attempt="answer = admit(sessions[number])",
        look="seen = Session.objects.filter(status='running').count()",
    )

    assert answers.count("") == running == 1
    waits = [answer for answer in answers if answer]
    assert all("$0.90 of the $1.00 for today is spent" in answer for answer in waits)


def test_a_budget_for_two_sessions_admits_two(contest):
    answers, running = contest.race(
        setup=ALMOST_SPENT + "settings.CLAUDEOPS_BUDGET_MONTH = Decimal('1.05')",
        attempt="answer = admit(sessions[number])",
        look="seen = Session.objects.filter(status='running').count()",
    )

    assert answers.count("") == running == 2
