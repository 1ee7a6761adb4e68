"""Changes of a run: asked for by the gate's threads, counted and written by the run's own."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import OperationalError
from django.utils import timezone

from escalation.gate.decision import Verdict
from escalation.policy import change_record
from escalation.rooms.records import CommandEnd, GateRecord
from escalation.rooms.tool_runner import Refusal
from escalation.run import changes as module
from escalation.run.changes import NOT_COUNTED, OVER, RunChanges, settle_from_events
from escalation.run.gate_events import GateEvents
from escalation.run.recorder import Recorder
from escalation.run.unguarded import UnguardedCommands
from sessions_app.models import Change, Happening
from tests.factories import ChangeFactory, CycleFactory, SessionFactory, WatchFactory

pytestmark = pytest.mark.django_db
RAN = CommandEnd(exit_code=0, run_ms=1, room="room")


def record(command: str = "docker restart web", **fields: Any) -> GateRecord:
    return GateRecord(
        **{
            "command": command,
            "verdict": Verdict.ALLOW,
            "rule": "understood",
            "reason": "",
            "doors": (),
            "actions": (command,),
            "changes": (command,),
            "decision_ms": 1,
            "cwd": "/",
            "at": datetime.now(UTC),
            **fields,
        }
    )


@pytest.fixture
def session():
    return SessionFactory(running=True, tier=2)


def ask(changes: RunChanges, *records: GateRecord) -> list[Refusal | None]:
    """As the gate does, from a thread each, while the run's own thread answers."""
    answers: dict[int, Refusal | None] = {}

    def question(number: int, asked: GateRecord) -> None:
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


def test_the_third_restart_is_refused_with_what_to_do(session):
    changes = RunChanges(session)

    first, second, third = (ask(changes, record())[0] for _ in range(3))

    assert (first, second) == (None, None)
    assert third == Refusal(
        "cooldown",
        "web was restarted twice in the last 4 h: do not try again, ask for a person in your "
        "report.",
    )
    assert Change.objects.filter(session=session).count() == 2


def test_of_two_hundred_at_once_two_are_let_through(session):
    answers = ask(RunChanges(session), *(record() for _ in range(200)))

    assert answers.count(None) == 2
    assert Change.objects.count() == 2


def test_a_container_is_one_service_by_its_name_and_by_its_id(session):
    """However much of the id is given, in compose's own spelling too."""
    changes = RunChanges(session)
    names = {"abc123": "shop-web-1", "abc123abc123": "shop-web-1"}
    by_id, again = record("docker restart abc123"), record("docker restart abc123abc123")

    first = answered(changes, by_id, names)
    second = answered(changes, record("docker restart web"), names)
    third = answered(changes, again, names)

    assert (first, second) == (None, None)
    assert third is not None
    assert "web was restarted twice" in third.reason
    assert set(Change.objects.values_list("service", flat=True)) == {"web"}


def test_only_what_docker_did_is_looked_for_among_its_containers(session):
    """A service of systemd may be called as a container's id begins."""
    names = {"cafe": "web"}

    answered(RunChanges(session), record("systemctl restart cafe"), names)

    assert Change.objects.get().service == "cafe"


def answered(changes: RunChanges, asked: GateRecord, names: dict[str, str]) -> Refusal | None:
    def names_of(words):
        return {word: names[word] for word in words if word in names}

    with ThreadPoolExecutor(1) as gate:
        answer = gate.submit(changes.objection, asked, names_of)
        while not answer.done():
            changes.answer()
        return answer.result()


def test_what_other_runs_of_the_watch_did_counts_and_what_was_cleared_does_not(session):
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


def test_people_are_told_once_for_a_run_and_a_service(session):
    ChangeFactory.create_batch(2, session=session)
    changes = RunChanges(session)

    ask(changes, record())
    ask(changes, record())

    told = Happening.objects.get(kind=Happening.Kind.COOLDOWN)
    assert (told.watch, told.path) == (session.cycle.watch, session.get_absolute_url())
    assert Happening.objects.filter(kind=Happening.Kind.INCIDENT_OPENED).count() == 1


def test_a_drill_counts_for_itself_and_tells_nobody():
    drilled = {"running": True, "cycle": CycleFactory(running=True, drilled=True)}
    session = SessionFactory(tier=2, **drilled)
    ChangeFactory.create_batch(2, session=SessionFactory(tier=2, drill=True), watch=None)

    answers = [ask(RunChanges(session), record())[0] for _ in range(3)]

    assert [answer is None for answer in answers] == [True, True, False]
    assert not Happening.objects.exists()


def test_what_has_no_cooldown_asks_nobody(session):
    assert RunChanges(session).objection(record("touch x")) is None
    assert RunChanges(session).objection(record("docker ps", changes=())) is None


def test_after_the_run_nobody_answers_and_nothing_runs(session):
    changes = RunChanges(session)
    changes.close()

    assert changes.objection(record()) == OVER
    assert not Change.objects.exists()


def test_what_cannot_be_counted_does_not_run(session, monkeypatch):
    def away(*args: Any) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(change_record, "counting", away)

    assert ask(RunChanges(session), record()) == [NOT_COUNTED]


def events_of(session, changes: RunChanges) -> tuple[GateEvents, Recorder]:
    recorder = Recorder(session)
    return GateEvents(recorder, UnguardedCommands(), changes), recorder


def test_what_came_back_is_written_beside_it_masked(session):
    changes = RunChanges(session)
    events, _recorder = events_of(session, changes)
    secret = "postgresql://me:hunter2hunter2@db/shop"
    decided = record(f"touch x {secret}")

    events.on_decision(decided)
    events.on_end(decided, CommandEnd(exit_code=3, run_ms=1, room="room"))
    events.write()
    changes.answer()

    (change,) = Change.objects.all()
    assert (change.kind, change.exit_code, change.watch) == ("other", 3, session.cycle.watch)
    assert "hunter2" not in change.command + change.action


def test_what_was_denied_or_never_entered_its_room_was_no_change(session):
    changes = RunChanges(session)
    events, _recorder = events_of(session, changes)
    ask(changes, entered := record())
    denied = record("touch y", verdict=Verdict.DENY)

    for decided in (entered, denied):
        events.on_decision(decided)
        events.on_end(decided, CommandEnd(exit_code=126, run_ms=1, room="room", has_run=False))
    events.write()
    changes.answer()

    assert not Change.objects.exists()


def test_a_locked_database_delays_the_writing_and_loses_nothing(session, monkeypatch):
    changes = RunChanges(session)
    changes.decided(record("touch x"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "write_down", _locked)
        changes.answer()
    assert not Change.objects.exists()

    changes.write_rest()
    changes.write_rest()

    assert Change.objects.count() == 1


def _locked(*args: Any) -> None:
    raise OperationalError("database is locked")


def test_recovery_finds_what_was_not_written_and_doubles_nothing(session):
    """The runner died: the events are stored, of the changes one is, without its end."""
    changes = RunChanges(session)
    events, recorder = events_of(session, changes)
    ask(changes, counted := record())
    uncounted, lost = record("touch x"), record("touch y")
    for decided in (counted, uncounted, lost):
        events.on_decision(decided)
    events.on_end(counted, RAN)
    events.on_end(uncounted, CommandEnd(exit_code=1, run_ms=1, room="room"))
    events.on_decision(record("touch z", verdict=Verdict.DENY))
    events.write()
    recorder.close()

    settle_from_events(session)
    settle_from_events(session)

    found = {change.action: change.exit_code for change in Change.objects.all()}
    assert found == {"docker restart web": 0, "touch x": 1, "touch y": None}
    assert Change.objects.count() == 3


def test_two_healthy_rounds_clear_what_was_done_before_them():
    watch = WatchFactory()
    old, young = SessionFactory(cycle=CycleFactory(watch=watch)), None
    change = ChangeFactory(session=old)
    other = ChangeFactory(session=old, service="db")
    rounds = [round_of(watch, web="healthy", db="down"), round_of(watch, web="healthy", db="down")]
    young = ChangeFactory(session=rounds[0].sessions.get())

    change_record.clear_recovered(rounds[0])
    early = Change.objects.get(pk=change.pk).is_cleared
    change_record.clear_recovered(rounds[1])

    cleared = set(Change.objects.filter(is_cleared=True).values_list("pk", flat=True))
    assert not early
    assert cleared == {change.pk}
    assert {other.pk, young.pk} & cleared == set()


def test_what_was_done_to_everything_is_cleared_when_everything_is_well():
    watch = WatchFactory()
    change = ChangeFactory(session=SessionFactory(cycle=CycleFactory(watch=watch)), service="*")
    round_of(watch, web="healthy", db="healthy")
    change_record.clear_recovered(round_of(watch, web="healthy", db="down"))
    early = Change.objects.get(pk=change.pk).is_cleared
    round_of(watch, web="healthy", db="healthy")

    change_record.clear_recovered(round_of(watch, web="healthy", db="healthy"))

    assert (early, Change.objects.get(pk=change.pk).is_cleared) == (False, True)


def round_of(watch, **services: str):
    report = {"services": [{"name": name, "status": status} for name, status in services.items()]}
    return SessionFactory(cycle=CycleFactory(watch=watch), report=report).cycle
