"""Runs of remedies for people and at Tier 0: by effect, in the sandbox, with their record."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection
from django.utils import timezone
from django_q.models import OrmQ

from escalation import tasks
from escalation.errors import RefusalCode
from escalation.run import remedies
from escalation.run.remedies import accept, ask_to_run, ask_to_undo, carry_out, end_lost, save
from escalation.supervisor import cooldowns, cycles
from escalation.supervisor.cooldowns import Reached
from escalation.supervisor.remedy_runs import Tier0Facts, tier0_objection
from sessions_app.models import Cycle, IncidentEvent, Probe, Remedy, RemedyRun
from sessions_app.models.autonomy import Policy
from tests.escalation.refusals import refused
from tests.factories import (
    IncidentFactory,
    RemedyFactory,
    RemedyRunFactory,
    ServiceStateFactory,
    WatchFactory,
)
from tests.tables import each_row

pytestmark = pytest.mark.django_db
State, Proof = RemedyRun.State, RemedyRun.Proof


@pytest.fixture
def watch(tmp_path: Path):
    workdir = tmp_path / "workdir"
    workdir.mkdir()
    return WatchFactory(workdir=str(workdir))


@pytest.fixture
def declare(watch, tmp_path: Path):
    def new(text: str, **fields: Any) -> Remedy:
        script = tmp_path / "operator" / "fix.sh"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!/bin/bash\n{text}\n")
        row = Remedy(
            **{
                "watch": watch,
                "name": "restart",
                "description": "Restarts it.",
                "command": [str(script)],
                "kind": Remedy.Kind.RESTART,
                "service": "web",
                **fields,
            }
        )
        save(row, by="ann")
        return row

    return new


def run_of(row: Remedy, *arguments: str, **fields: Any) -> RemedyRun:
    run = ask_to_run(row, arguments, by=None, by_name="ann", **fields)
    tasks.run_remedy(run.pk)
    run.refresh_from_db()
    return run


def test_a_person_runs_a_remedy_and_the_record_has_who_output_and_exit_code(declare, watch):
    row = declare("echo done; echo sorry >&2; touch here; exit 3")

    run = run_of(row)

    assert (run.state, run.exit_code, run.by_name) == (State.FAILED, 3, "ann")
    assert run.output == "done\nsorry\n"
    assert (Path(watch.workdir) / "here").exists()
    assert OrmQ.objects.count() == 1


def test_a_run_is_carried_out_once(declare, watch):
    row = declare("echo x >> count")
    run = ask_to_run(row, (), by=None, by_name="ann")

    assert carry_out(run.pk) is not None
    assert carry_out(run.pk) is None
    assert (Path(watch.workdir) / "count").read_text() == "x\n"


def test_a_remedy_that_runs_too_long_or_prints_too_much_is_ended(declare):
    run = run_of(declare("sleep 30", seconds=1))
    assert (run.state, bool(run.why)) == (State.FAILED, True)

    row = Remedy.objects.get()
    row.delete()
    run = run_of(declare("yes", seconds=20))
    assert (run.state, bool(run.why)) == (State.FAILED, True)
    assert len(run.output) <= remedies.LONGEST_OUTPUT + 100


def test_a_script_that_changed_since_the_request_does_not_run(declare, watch):
    row = declare("touch accepted")
    run = ask_to_run(row, (), by=None, by_name="ann")
    Path(row.script_path).write_text("#!/bin/sh\ntouch hostile\n")

    tasks.run_remedy(run.pk)

    run.refresh_from_db()
    assert (run.state, run.exit_code) == (State.REFUSED, None)
    assert list(Path(watch.workdir).iterdir()) == []


@pytest.mark.parametrize("value", ["; rm -rf /", "-f", "web\n", "other", ""])
def test_hostile_values_are_refused_before_a_run_is_stored(declare, value):
    command = ["docker", "restart", "{service}"]
    row = declare("true", service="", parameters="service: service", command=command)

    with refused(RefusalCode.INVALID_CHOICE):
        ask_to_run(row, [value], by=None, by_name="ann")

    assert not RemedyRun.objects.exists()


def test_a_run_counts_for_the_cooldown_unless_it_was_refused(watch, declare):
    now, limits = timezone.now(), cooldowns.limits_of(watch)
    run_of(declare("true"))
    RemedyRunFactory(remedy=Remedy.objects.get(), state=State.REFUSED)

    record = cooldowns.counting(Cycle(watch=watch), limits, now)

    assert [(done.kind, done.service) for done in record] == [("restart", "web")]


def test_the_result_is_told_in_the_story_of_the_incident(declare, watch):
    incident = IncidentFactory(watch=watch)

    run_of(declare("true"), incident=incident)

    [event] = incident.events.filter(kind=IncidentEvent.Kind.NOTED)
    assert event.text == "ann ran `remedy restart`: succeeded, exit code 0."


def test_a_run_whose_worker_died_is_ended(declare):
    row = declare("true")
    run = RemedyRunFactory(
        remedy=row, state=State.RUNNING, started_at=timezone.now() - timedelta(hours=1)
    )

    assert [one.pk for one in end_lost()] == [run.pk]
    run.refresh_from_db()
    assert run.state == State.FAILED


def test_a_remedy_that_was_removed_meanwhile_is_neither_run_nor_stored(declare):
    row = declare("true")
    Remedy.objects.all().delete()

    with refused(RefusalCode.NOT_FOUND):
        ask_to_run(row, (), by=None, by_name="ann")
    with pytest.raises(ValidationError):
        save(row, by="ann")
    with refused(RefusalCode.NOT_FOUND):
        accept(row, by="ann")
    assert not Remedy.objects.exists()


# Tier 0.

MAY = Tier0Facts(
    policy=Policy(max_tier=2, dry_run=False),
    tier=2,
    looks=False,
    words=("remedy", "restart", "web"),
    hours=4,
    now=timezone.now(),
)


@each_row(
    ("changed", "runs"),
    [
        ({}, True),
        ({"policy": Policy(max_tier=1, dry_run=False)}, False),
        ({"policy": Policy(max_tier=2, dry_run=True)}, False),
        ({"policy": Policy(max_tier=2, dry_run=True), "looks": True}, True),
        ({"policy": Policy(max_tier=3, dry_run=False, approval_tiers=frozenset({2}))}, False),
        ({"policy": Policy(max_tier=3, dry_run=False, approval_tiers=frozenset({3}))}, True),
        ({"ask_rules": ("Bash(remedy restart:*)",)}, False),
        ({"ask_rules": ("Bash(remedy other:*)",)}, True),
        ({"last_at": MAY.now - timedelta(hours=3)}, False),
        ({"last_at": MAY.now - timedelta(hours=5)}, True),
        ({"reached": Reached(service="web", reason="twice")}, False),
        ({"stopped": "paused"}, False),
    ],
)
def test_tier_0_runs_only_where_the_policy_lets_it(changed, runs):
    assert (not tier0_objection(replace(MAY, **changed))) is runs


@pytest.fixture
def probe(watch):
    return Probe.objects.create(
        watch=watch,
        service="web",
        name="web-http",
        kind=Probe.Kind.FILE,
        target="/x",
        state=Probe.State.DOWN,
        last_output="connection refused",
        timeout_seconds=1,
        recover_after=1,
    )


@pytest.fixture
def with_key(monkeypatch):
    monkeypatch.setattr(cycles, "credentials_configured", lambda: True)


def look(probe: Probe, helped: Path) -> threading.Thread:
    """Stand in for the loop of probes: answer a request to run now."""

    def loop() -> None:
        for _time in range(100):
            row = Probe.objects.get(pk=probe.pk)
            if row.run_asked_at is not None:
                state = Probe.State.UP if helped.exists() else Probe.State.DOWN
                Probe.objects.filter(pk=probe.pk).update(state=state, last_run_at=timezone.now())
                break
            time.sleep(0.05)
        connection.close()

    return threading.Thread(target=loop)


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("with_key")
@pytest.mark.parametrize("helps", [True, False])
def test_tier_0_runs_the_remedy_of_a_failing_probe_before_any_model(
    declare, watch, probe, monkeypatch, helps
):
    monkeypatch.setattr(remedies, "LONGEST_PROOF_SECONDS", 4)
    declare("touch helped" if helps else "echo tried", probe="web-http", tier0_hours=4)

    woken = cycles.wake(watch, [probe.fact])

    assert (woken.cycle, len(woken.incidents)) == (None, 1)
    run = RemedyRun.objects.get()
    assert (run.trigger, run.incident_id) == ("probe", woken.incidents[0].pk)
    looking = look(probe, Path(watch.workdir) / "helped")
    looking.start()
    tasks.run_remedy(run.pk)
    looking.join()
    run.refresh_from_db()
    if helps:
        assert (run.proof, run.cycle) == (Proof.HELPED, None)
        assert not Cycle.objects.exists()
    else:
        assert (run.proof, run.cycle) == (Proof.NO_HELP, Cycle.objects.get())
        [fact] = Cycle.objects.get().facts
        assert fact.output.startswith("Tier 0 ran `remedy restart`: succeeded, exit code 0")
        assert fact.output.endswith("connection refused")


@pytest.mark.usefixtures("with_key")
def test_tier_0_runs_once_within_its_hours_and_then_leaves_it_to_tier_1(declare, watch, probe):
    row = declare("true", probe="web-http", tier0_hours=4)
    RemedyRunFactory(remedy=row, trigger="probe", kind="look")

    woken = cycles.wake(watch, [probe.fact])

    assert woken.is_new
    assert RemedyRun.objects.count() == 1
    [event] = woken.incidents[0].events.filter(kind=IncidentEvent.Kind.NOTED)
    assert "already ran within 4 h" in event.text


@pytest.mark.usefixtures("with_key")
def test_a_remedy_of_tier_0_that_was_refused_leaves_it_to_tier_1(declare, watch, probe):
    row = declare("true", probe="web-http", tier0_hours=4)
    cycles.wake(watch, [probe.fact])
    Path(row.script_path).write_text("hostile")

    tasks.run_remedy(RemedyRun.objects.get().pk)

    run = RemedyRun.objects.get()
    assert (run.state, run.cycle) == (State.REFUSED, Cycle.objects.get())


def reversible(watch, **fields: Any) -> Remedy:
    """A remedy that makes a file, and the one that removes it."""
    ServiceStateFactory(watch=watch, service="web", name="web")
    plain = {"watch": watch, "kind": "other", "grants": ""}
    back = {"name": "remove", "command": ["rm", "{file}"], "parameters": "file: service"}
    RemedyFactory(**{**plain, **back, **fields})
    made = {"command": ["touch", "{name}"], "parameters": "name: service", "undo": "remove"}
    remedy: Remedy = RemedyFactory(**plain, name="make", **made)
    return remedy


def test_a_run_is_undone_once_by_the_remedy_that_its_own_names(watch):
    run = run_of(reversible(watch), "web")
    file = Path(watch.workdir) / "web"
    assert file.exists()

    undoing = ask_to_undo(run, by=None, by_name="ann")
    with refused(RefusalCode.CHANGE_UNDONE):
        ask_to_undo(run, by=None, by_name="ann")
    tasks.run_remedy(undoing.pk)

    undoing.refresh_from_db()
    assert (undoing.undoes, undoing.call, undoing.state) == (run, "remedy remove web", "succeeded")
    assert not file.exists()
    with refused(RefusalCode.CHANGE_UNDONE):
        ask_to_undo(run, by=None, by_name="ann")
    with refused(RefusalCode.INVALID_CHOICE):
        ask_to_undo(undoing, by=None, by_name="ann")


def test_an_undo_that_failed_can_be_tried_again(watch):
    run = run_of(reversible(watch), "web")
    (Path(watch.workdir) / "web").unlink()
    first = ask_to_undo(run, by=None, by_name="ann")
    tasks.run_remedy(first.pk)

    assert ask_to_undo(run, by=None, by_name="ann").undoes == run


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"name": "other"}, RefusalCode.NOT_FOUND),
        ({"parameters": "file: integer 1..9"}, RefusalCode.INVALID_CHOICE),
        ({"enabled": False}, RefusalCode.INVALID_CHOICE),
    ],
)
def test_a_run_that_nothing_can_undo_is_left(watch, fields, code):
    run = run_of(reversible(watch, **fields), "web")

    with refused(code):
        ask_to_undo(run, by=None, by_name="ann")

    assert RemedyRun.objects.get() == run
