"""One cycle per watch, one start per session, one run per conversation: with real processes."""

from __future__ import annotations

from tests.escalation.contenders import CONTENDERS

ONE_OF_ALL = [False] * (CONTENDERS - 1) + [True]


def test_concurrent_starts_create_one_cycle_per_watch(contest):
    answers, seen = contest.race(
        setup="""
from escalation.supervisor import cycles
from escalation.errors import CycleActive
watch = Watch.objects.create(name="cycles", workdir="/tmp", max_tier=3, dry_run=False)
""",
        attempt="""
try:
    cycles.start(watch, trigger="manual")
    answer = "started"
except CycleActive as active:
    answer = active.code
""",
        look="seen = [watch.cycles.count(), Session.objects.filter(cycle__watch=watch).count()]",
    )

    assert answers.count("started") == 1
    assert answers.count("cycle_active") == CONTENDERS - 1
    assert seen == [1, 1]


def test_concurrent_workers_start_a_session_once(contest):
    answers, notes = contest.race(
        setup="session = queued('claims')",
        attempt="answer = session.claim(runner_pid=os.getpid())",
        look="seen = session.events.filter(kind='status').count()",
    )

    assert sorted(answers) == ONE_OF_ALL
    assert notes == 1


def test_concurrent_sessions_take_a_conversation_once(contest):
    answers, conversations = contest.race(
        setup=f"sessions = [queued(f'talk-{{n}}') for n in range({CONTENDERS})]",
        attempt="""
answer = Conversation.take("0a0a0a0a-0000-4000-8000-000000000001", sessions[number])
""",
        look="seen = Conversation.objects.count()",
    )

    assert sorted(answers) == ONE_OF_ALL
    assert conversations == 1


def test_concurrent_manual_escalations_create_one_session(contest):
    answers, successors = contest.race(
        setup="""
from escalation.supervisor import manual
from escalation.errors import OperationRefused
session = queued("by hand")
session.claim()
session.finish("completed", "done")
session.cycle.finish("healthy", "well")
""",
        before="mine = Session.objects.select_related('cycle').get(pk=session.pk)",
        attempt="""
try:
    answer = manual.escalate(mine, "look closer").tier
except OperationRefused as refused:
    answer = refused.code
""",
        look="seen = session.children.count()",
    )

    assert answers.count(2) == 1
    assert successors == 1


def test_of_concurrent_requests_to_allow_a_tier_one_starts_it(contest):
    answers, (sessions, approvals) = contest.race(
        setup="""
from django.contrib.auth.models import User
from escalation.supervisor import manual
from escalation.errors import OperationRefused
session = queued("allowed")
session.claim()
session.finish("completed", "done", session_id="0a0a0a0a-0000-4000-8000-000000000001")
session.cycle.finish("needs_person", "withheld")
user, _new = User.objects.get_or_create(username="grace", is_superuser=True)
""",
        before="mine = Session.objects.select_related('cycle').get(pk=session.pk)",
        attempt="""
try:
    answer = manual.allow_once(mine, by=user).tier
except OperationRefused as refused:
    answer = refused.code
""",
        look="""
seen = [session.children.count(), Approval.objects.filter(session__parent_session=session).count()]
""",
    )

    assert answers.count(2) == sessions == approvals == 1
    assert {answer for answer in answers if answer != 2} == {"cycle_active"}


def test_concurrent_endings_end_a_session_once(contest):
    answers, ends = contest.race(
        setup="""
from sessions_app.models.session import IllegalTransition
session = queued("ends")
session.claim()
""",
        attempt="""
try:
    session.finish("completed", f"by {number}")
    answer = True
except IllegalTransition:
    answer = False
""",
        look="seen = session.events.filter(payload__to='completed').count()",
    )

    assert sorted(answers) == ONE_OF_ALL
    assert ends == 1


def test_concurrent_sessions_take_the_last_slot_of_tier_3_once(contest):
    answers, running = contest.race(
        setup=f"""
from escalation.run.runner import admit
Session.objects.filter(status="running").update(status="failed")
sessions = [queued(f"third-{{n}}", tier=3) for n in range({CONTENDERS})]
""",
        attempt="answer = admit(sessions[number])",
        look="seen = Session.objects.filter(status='running', tier=3).count()",
    )

    assert answers.count("") == 1
    assert sum("CLAUDEOPS_MAX_TIER3_SESSIONS" in answer for answer in answers) == CONTENDERS - 1
    assert running == 1


def test_concurrent_recoveries_recover_a_session_once(contest):
    answers, ends = contest.race(
        setup="""
import socket
from escalation.agent.process import boot_id
from escalation.run.recovery import recover
Session.objects.filter(status__in=("running", "queued")).update(status="failed")
session = queued("orphan")
session.claim(
    host=socket.gethostname(), boot_id=boot_id(), runner_pid=2**22 + 7, runner_started=1
)
""",
        attempt="answer = [done.what for done in recover()]",
        look="seen = session.events.filter(payload__to='interrupted').count()",
    )

    assert sum("started again" in what for answer in answers for what in answer) == 1
    assert ends == 1


def test_concurrent_workers_create_the_schedules_once(contest):
    _answers, names = contest.race(
        setup="""
from django_q.models import Schedule
from escalation.worker.schedules import ensure_housekeeping
""",
        attempt="answer = ensure_housekeeping()",
        look="""
housekeeping = Schedule.objects.exclude(name__startswith="watch-")
seen = sorted(housekeeping.values_list("name", flat=True))
""",
    )

    assert names == ["cleaning", "manifests", "recovery", "sandbox-proof", "verification"]


NO_PLACE_YET = f"""
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from django_q.models import OrmQ
from escalation.queue import start_waiting
from escalation.run.runner import admit
settings.CLAUDEOPS_MAX_SESSIONS = 1
OrmQ.objects.all().delete()
Session.objects.filter(status__in=("running", "queued")).update(status="failed")
run = time.time_ns()
running = queued(f"runs-{{run}}")
running.claim()
sessions = [queued(f"waits-{{run}}-{{n}}") for n in range({CONTENDERS})]
"""


def test_a_free_slot_is_offered_once(contest):
    answers, offered = contest.race(
        setup=NO_PLACE_YET
        + """
running.finish("completed", "done")
Session.objects.filter(status="queued").update(waiting_since=timezone.now())
""",
        attempt="answer = start_waiting()",
        look="seen = [row.task['args'][0] - sessions[0].pk for row in OrmQ.objects.all()]",
    )

    assert sorted(answers) == [0] * (CONTENDERS - 1) + [1]
    assert offered == [0]


def test_a_slot_that_is_freed_during_admission_is_not_lost(contest):
    _answers, (began, offered) = contest.race(
        setup=NO_PLACE_YET,
        attempt="""
if number == 0:
    with transaction.atomic():
        running.finish("completed", "done")
        answer = start_waiting()
else:
    answer = admit(sessions[number])
""",
        look="""
began = Session.objects.filter(status="running").count()
seen = [began, OrmQ.objects.count()]
""",
    )

    assert (began, offered) in {(1, 0), (0, 1), (1, 1)}


APPROVERS = """
from datetime import timedelta
from django.contrib.auth.models import Group, User
from django.utils import timezone
from django_q.models import OrmQ
from escalation.errors import OperationRefused
from escalation.supervisor.approval_answers import approve, expire_overdue, reject
from escalation.supervisor.approvals import take
OrmQ.objects.all().delete()
user = User.objects.create(username=f"approver-{time.time_ns()}")
user.groups.add(Group.objects.get(name="approver"))
session = queued(f"approval-{time.time_ns()}", tier=3)
session.await_approval("asks")
approval = Approval.objects.create(
    kind="tier", session=session, why="x", expires_at=timezone.now() + timedelta(hours=1)
)
"""


def test_concurrent_answers_store_one(contest):
    """Two approve and two reject at once: one is heard, and what follows is its own."""
    answers, (state, status, tasks) = contest.race(
        setup=APPROVERS,
        before="mine = Approval.objects.get(pk=approval.pk)",
        attempt="""
try:
    give = approve if number % 2 else reject
    answer = give(mine, by=user, note=f"by {number}").state
except OperationRefused as refused:
    answer = refused.code
""",
        look="""
session.refresh_from_db()
approval.refresh_from_db()
seen = [approval.state, session.status, OrmQ.objects.count()]
""",
    )

    assert [answer for answer in answers if answer in {"approved", "rejected"}] == [state]
    assert answers.count("approval_answered") == CONTENDERS - 1
    assert (status, tasks) == (("queued", 1) if state == "approved" else ("cancelled", 0))


def test_of_a_concurrent_answer_and_expiry_one_wins(contest):
    answers, (state, status, tasks) = contest.race(
        setup=APPROVERS,
        before="mine = Approval.objects.get(pk=approval.pk)",
        attempt="""
try:
    if number % 2:
        answer = expire_overdue(timezone.now() + timedelta(hours=2)) and "expired"
    else:
        answer = approve(mine, by=user).state
except OperationRefused:
    answer = ""
""",
        look="""
session.refresh_from_db()
approval.refresh_from_db()
seen = [approval.state, session.status, OrmQ.objects.count()]
""",
    )

    assert [answer for answer in answers if answer] == [state]
    assert (status, tasks) == (("queued", 1) if state == "approved" else ("expired", 0))


def test_concurrent_sessions_use_an_approval_once(contest):
    answers, _seen = contest.race(
        setup=APPROVERS + "Approval.objects.filter(pk=approval.pk).update(state='approved')",
        attempt="answer = take(approval)",
        look="seen = None",
    )

    assert sorted(answers) == ONE_OF_ALL
