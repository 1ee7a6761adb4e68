"""The command `rollups`: checks the stored sums, and rebuilds them while sessions are running."""

from __future__ import annotations

import pytest
from django.core.management import call_command

from sessions_app.costs.rollups import check
from sessions_app.models import PeriodCost, Session
from tests.factories import three_tier_chain


@pytest.mark.django_db
def test_reports_the_number_of_sessions_when_all_sums_agree(capsys):
    three_tier_chain()

    call_command("rollups", "--check")

    assert str(Session.objects.count()) in capsys.readouterr().out


@pytest.mark.django_db
def test_a_difference_exits_with_1_and_names_the_option_that_rebuilds(capsys):
    three_tier_chain()
    PeriodCost.objects.update(runs=9)

    with pytest.raises(SystemExit) as ended:
        call_command("rollups")

    assert ended.value.code == 1
    assert "--rebuild" in capsys.readouterr().err
    call_command("rollups", "--rebuild")
    assert check().is_right


SESSIONS = """
import contextlib, io
from decimal import Decimal
from django.core.management import call_command
from django.utils import timezone
from escalation.queue import installation_lock
from sessions_app.costs.rollups import check
from sessions_app.models.session import EventLog

def rebuild():
    with contextlib.suppress(SystemExit):  # a session may end during the comparison
        call_command("rollups", "--rebuild", stdout=io.StringIO(), stderr=io.StringIO())

def run(session):
    with installation_lock():
        session.claim(timezone.now())
    with installation_lock():
        session.finish("completed", cost_usd=Decimal("0.01"))

def store_decisions(session):
    for number in range(100):
        verdict = {"verdict": f"verdict {number}"}
        EventLog(session).append(
            [SessionEvent(session=session, source="supervisor", kind="command", payload=verdict)]
        )
        time.sleep(0.01)

sessions = [queued(f"shop-{number}") for number in range(60)]
with connection.cursor() as cursor:
    cursor.execute('''
CREATE FUNCTION dawdle() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep(0.2); RETURN NULL; END $$''')
    for table in ("sessions_app_periodcost", "sessions_app_dailyverdict"):
        cursor.execute(
            f"CREATE TRIGGER dawdle AFTER DELETE ON {table} "
            "FOR EACH STATEMENT EXECUTE FUNCTION dawdle()"
        )
"""


@pytest.mark.parametrize("contest", ["postgresql"], indirect=True)
def test_a_rebuild_while_sessions_start_and_end_leaves_no_difference(contest):
    """Triggers make the rebuild slow, so that sessions start and end during it."""
    answers, (differences, ended) = contest.race(
        setup=SESSIONS,
        attempt="""
answer = ""
try:
    if number == 0:
        for _ in range(3):
            rebuild()
    elif number == 1:
        store_decisions(sessions[0])
    else:
        for session in sessions[number::4]:
            run(session)
except Exception as error:
    answer = f"{type(error).__name__}: {error}"
""",
        look="""
seen = [list(check().differences), Session.objects.filter(status="completed").count()]
""",
    )

    assert answers == [""] * 4
    assert differences == []
    assert ended == 30
