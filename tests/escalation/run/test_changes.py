"""Changes of a session: counted before the command runs, stored with its exit code."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from escalation.command_policy.programs import understand
from escalation.command_policy.understanding import CommandEffect
from escalation.run import command_checks as module
from escalation.run.command_checks import (
    NOT_COUNTED,
    OVER,
    BypassCheck,
    CommandEvents,
    RunChanges,
    settle_from_events,
)
from escalation.run.recorder import Recorder
from escalation.sandbox.command_runner import CommandEnd, CommandRefusal, DecisionRecord
from escalation.supervisor import cooldowns
from sessions_app.models import Change, Notification
from sessions_app.models.session import Verdict
from tests.factories import ChangeFactory, CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
RAN = CommandEnd(exit_code=0, run_ms=1, location="sandbox")


def effects_in(command: str) -> tuple[CommandEffect, ...]:
    """Return the effects that the grammars of the command policy find."""
    argv = tuple(command.split())
    return understand(argv).effects(command) if argv else ()


def record(command: str = "docker restart web", **fields: Any) -> DecisionRecord:
    return DecisionRecord(
        **{
            "command": command,
            "verdict": Verdict.ALLOW,
            "rule": "understood",
            "reason": "",
            "actions": (command,),
            "changes": (command,),
            "effects": effects_in(command),
            "decision_ms": 1,
            "cwd": "/",
            "at": datetime.now(UTC),
            **fields,
        }
    )


@pytest.fixture
def session():
    return SessionFactory(running=True, tier=2)


def ask(changes: RunChanges, *records: DecisionRecord) -> list[CommandRefusal | None]:
    """Ask from one thread each, as the command runner does, while this thread answers."""
    answers: dict[int, CommandRefusal | None] = {}

    def question(number: int, asked: DecisionRecord) -> None:
        answers[number] = changes.objection(asked)

    threads = [
        threading.Thread(target=question, args=(number, asked))
        for number, asked in enumerate(records)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        changes.answer()
        threads[0].join(0.001)
        threads = [thread for thread in threads if thread.is_alive()] or threads[:1]
    return [answers[number] for number in range(len(records))]


def test_third_restart_is_refused_by_the_cooldown(session):
    changes = RunChanges(session)

    first, second, third = (ask(changes, record())[0] for _ in range(3))

    assert (first, second) == (None, None)
    assert third == CommandRefusal(
        "cooldown",
        "web was restarted twice in the last 4 h: do not try again, ask for a person in your "
        "report.",
    )
    assert Change.objects.filter(session=session).count() == 2


def test_of_two_hundred_concurrent_restarts_two_are_allowed(session):
    answers = ask(RunChanges(session), *(record() for _ in range(200)))

    assert answers.count(None) == 2
    assert Change.objects.count() == 2


def test_a_container_is_one_service_in_every_spelling(session):
    changes = RunChanges(session)
    spellings = (
        "docker restart web",
        "docker restart /shop-web-1",
        "systemctl restart web.service",
    )

    answers = [ask(changes, record(command))[0] for command in spellings]

    assert [answer is None for answer in answers] == [True, True, False]
    assert set(Change.objects.values_list("service", flat=True)) == {"web"}


def test_changes_of_the_watch_count_unless_cleared(session):
    earlier = SessionFactory(tier=2, cycle=CycleFactory(watch=session.cycle.watch))
    ChangeFactory.create_batch(2, session=earlier, is_cleared=True)
    ChangeFactory(session=earlier)
    ChangeFactory(session=earlier, at=timezone.now() - timedelta(hours=5))
    ChangeFactory.create_batch(2)
    changes = RunChanges(session)

    answers = [ask(changes, record())[0] for _ in range(2)]

    assert [answer is None for answer in answers] == [True, False]


def test_a_limit_that_was_changed_meanwhile_counts(session):
    watch = session.cycle.watch
    type(watch).objects.filter(pk=watch.pk).update(restarts_allowed=0)

    (answer,) = ask(RunChanges(session), record())

    assert answer is not None
    assert "may never be restarted" in answer.reason


def test_cooldown_is_notified_once_per_session_and_service(session):
    ChangeFactory.create_batch(2, session=session)
    changes = RunChanges(session)

    ask(changes, record())
    ask(changes, record())

    told = Notification.objects.get(kind=Notification.Kind.COOLDOWN)
    assert (told.watch, told.path) == (session.cycle.watch, session.get_absolute_url())
    assert Notification.objects.filter(kind=Notification.Kind.INCIDENT_OPENED).count() == 1


def test_drill_has_its_own_count_and_sends_no_notification():
    drilled = {"running": True, "cycle": CycleFactory(running=True, drilled=True)}
    session = SessionFactory(tier=2, **drilled)
    ChangeFactory.create_batch(2, session=SessionFactory(tier=2, drill=True), watch=None)

    answers = [ask(RunChanges(session), record())[0] for _ in range(3)]

    assert [answer is None for answer in answers] == [True, True, False]
    assert not Notification.objects.exists()


def test_effect_without_cooldown_is_not_counted(session):
    assert RunChanges(session).objection(record("touch x")) is None
    assert RunChanges(session).objection(record("docker ps", changes=())) is None


def test_command_after_the_session_is_refused(session):
    changes = RunChanges(session)
    changes.close()

    assert changes.objection(record()) == OVER
    assert not Change.objects.exists()


def test_change_that_cannot_be_counted_is_refused(session, monkeypatch):
    def away(*args: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(cooldowns, "counting", away)

    assert ask(RunChanges(session), record()) == [NOT_COUNTED]


def events_of(session, changes: RunChanges) -> tuple[CommandEvents, Recorder]:
    recorder = Recorder(session)
    return CommandEvents(recorder, BypassCheck(), changes), recorder


def test_exit_code_is_stored_with_the_redacted_change(session):
    changes = RunChanges(session)
    events, _recorder = events_of(session, changes)
    secret = "postgresql://me:hunter2hunter2@db/shop"
    decided = record(f"touch x {secret}")

    events.on_decision(decided)
    events.on_end(decided, CommandEnd(exit_code=3, run_ms=1, location="sandbox"))
    events.write()
    changes.answer()

    (change,) = Change.objects.all()
    assert (change.kind, change.exit_code, change.watch) == ("other", 3, session.cycle.watch)
    assert "hunter2" not in change.command + change.action


def test_denied_or_unstarted_command_is_no_change(session):
    changes = RunChanges(session)
    events, _recorder = events_of(session, changes)
    ask(changes, entered := record())
    denied = record("touch y", verdict=Verdict.DENY)

    for decided in (entered, denied):
        events.on_decision(decided)
        events.on_end(
            decided, CommandEnd(exit_code=126, run_ms=1, location="sandbox", has_run=False)
        )
    events.write()
    changes.answer()

    assert not Change.objects.exists()


def test_a_locked_database_delays_changes_and_loses_none(session, monkeypatch):
    changes = RunChanges(session)
    changes.decided(record("touch x"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "store_changes", _locked)
        changes.answer()
    assert not Change.objects.exists()

    changes.write()
    changes.write()

    assert Change.objects.count() == 1


def _locked(*args: Any) -> None:
    raise OperationalError("database is locked")


def test_recovery_stores_missing_changes_once(session):
    """The runner died: the events are stored, of the changes one is, without its end."""
    changes = RunChanges(session)
    events, recorder = events_of(session, changes)
    ask(changes, counted := record())
    uncounted, lost = record("touch x"), record("touch y")
    for decided in (counted, uncounted, lost):
        events.on_decision(decided)
    events.on_end(counted, RAN)
    events.on_end(uncounted, CommandEnd(exit_code=1, run_ms=1, location="sandbox"))
    events.on_decision(record("touch z", verdict=Verdict.DENY))
    events.write()
    recorder.close()

    settle_from_events(session)
    settle_from_events(session)

    found = {change.action: change.exit_code for change in Change.objects.all()}
    assert found == {"docker restart web": 0, "touch x": 1, "touch y": None}
    assert Change.objects.count() == 3


def test_two_healthy_cycles_clear_earlier_changes():
    watch = WatchFactory()
    old, young = SessionFactory(cycle=CycleFactory(watch=watch)), None
    change = ChangeFactory(session=old)
    other = ChangeFactory(session=old, service="db")
    cycles = [cycle_of(watch, web="healthy", db="down"), cycle_of(watch, web="healthy", db="down")]
    young = ChangeFactory(session=cycles[0].sessions.get())

    cooldowns.clear_recovered(cycles[0])
    early = Change.objects.get(pk=change.pk).is_cleared
    cooldowns.clear_recovered(cycles[1])

    cleared = set(Change.objects.filter(is_cleared=True).values_list("pk", flat=True))
    assert not early
    assert cleared == {change.pk}
    assert {other.pk, young.pk} & cleared == set()


def test_the_report_of_a_plan_clears_no_cooldown():
    watch = WatchFactory()
    change = ChangeFactory(session=SessionFactory(cycle=CycleFactory(watch=watch)))
    for _ in range(2):
        planned = cycle_of(watch, db="healthy")
        healthy = {"services": [{"name": "web", "status": "healthy"}]}
        SessionFactory(cycle=planned, tier=2, purpose="plan", report=healthy)

    cooldowns.clear_recovered(planned)

    assert not Change.objects.get(pk=change.pk).is_cleared


def test_a_cycle_of_which_only_a_plan_reported_is_not_the_cycle_before():
    watch = WatchFactory()
    change = ChangeFactory(session=SessionFactory(cycle=CycleFactory(watch=watch)))
    cycle_of(watch, web="healthy")
    silent = SessionFactory(cycle=CycleFactory(watch=watch), report=None).cycle
    SessionFactory(cycle=silent, purpose="plan", report={"services": []})

    cooldowns.clear_recovered(cycle_of(watch, web="healthy"))

    assert Change.objects.get(pk=change.pk).is_cleared


def test_change_of_all_services_is_cleared_when_all_are_healthy():
    watch = WatchFactory()
    change = ChangeFactory(session=SessionFactory(cycle=CycleFactory(watch=watch)), service="*")
    cycle_of(watch, web="healthy", db="healthy")
    cooldowns.clear_recovered(cycle_of(watch, web="healthy", db="down"))
    early = Change.objects.get(pk=change.pk).is_cleared
    cycle_of(watch, web="healthy", db="healthy")

    cooldowns.clear_recovered(cycle_of(watch, web="healthy", db="healthy"))

    assert (early, Change.objects.get(pk=change.pk).is_cleared) == (False, True)


def cycle_of(watch, **services: str):
    report = {"services": [{"name": name, "status": status} for name, status in services.items()]}
    return SessionFactory(cycle=CycleFactory(watch=watch), report=report).cycle
