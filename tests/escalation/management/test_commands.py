"""`drill`, `chain`, `up` and `bench`: output and refusals."""

from __future__ import annotations

import io
import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django_q.models import OrmQ

from escalation.drills.scenario import scenario_names
from escalation.drills.scratch import MARK
from escalation.errors import RefusalCode
from escalation.management.commands import up
from escalation.worker import installation
from escalation.worker.installation import Upgrade
from sessions_app.models import Cycle
from tests.devtools import scratch
from tests.devtools.management.commands import bench
from tests.escalation.refusals import command_refused
from tests.escalation.rows import HEALTHY
from tests.factories import CycleFactory, SessionFactory, three_tier_chain

pytestmark = pytest.mark.django_db


def output_of(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out, stderr=io.StringIO())
    return out.getvalue()


def test_drill_lists_every_scenario():
    lines = output_of("drill", "--list").splitlines()

    assert [line.split()[0] for line in lines] == scenario_names()
    assert not Cycle.objects.exists()


def test_drill_runs_without_a_key_and_exits_with_0(fake_cli, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    fake_cli.reports(HEALTHY)

    with pytest.raises(SystemExit) as leaving:
        output_of("drill", "all-healthy")

    assert leaving.value.code == 0
    assert Cycle.objects.get().outcome == Cycle.Outcome.HEALTHY


def test_drill_plays_three_tiers_by_default():
    output_of("drill", "--queue")

    assert Cycle.objects.get().drill == "three-tiers"


def test_drill_can_be_enqueued():
    said = output_of("drill", "all-healthy", "--queue")

    assert said == f"Cycle {Cycle.objects.get().pk} of drill all-healthy is queued.\n"
    assert OrmQ.objects.count() == 1


def test_drill_prints_json():
    (waiting,) = json.loads(output_of("drill", "all-healthy", "--queue", "--json"))

    assert (waiting["drill"], waiting["watch"]) == ("all-healthy", None)


def test_drill_refuses_an_unknown_scenario_with_exit_code_2():
    with command_refused(RefusalCode.SCENARIO, match="nonsense.*all-healthy"):
        output_of("drill", "nonsense")


@pytest.mark.parametrize("position", [0, 1, 2])
def test_chain_shows_the_whole_chain_from_any_session(position):
    sessions = three_tier_chain()

    shown = output_of("chain", str(sessions[position].pk))

    assert [shown.index(f"#{session.pk} Tier") for session in sessions] == sorted(
        shown.index(f"#{session.pk} Tier") for session in sessions
    )
    assert "Tier 1: $0.03" in shown
    assert "Tier 2: $0.47" in shown
    assert "Sum of tiers $2.50." in shown


def test_chain_prints_json_with_exact_costs():
    sessions = three_tier_chain()

    shown = json.loads(output_of("chain", str(sessions[0].pk), "--json"))

    assert [entry["cost_usd"] for entry in shown] == [0.03, 0.47, 2.0]
    assert [entry["parent_session_id"] for entry in shown] == [
        None,
        sessions[0].pk,
        sessions[1].pk,
    ]


def test_chain_json_keeps_every_decimal_place():
    session = SessionFactory(cost_usd=Decimal("0.0180000001"))

    assert '"cost_usd": 0.0180000001' in output_of("chain", str(session.pk), "--json")


def test_chain_shows_the_error_of_a_failed_session():
    session = SessionFactory(failed=True)

    assert "The CLI broke." in output_of("chain", str(session.pk))


def test_chain_refuses_an_unknown_session_with_exit_code_2():
    with command_refused(RefusalCode.NOT_FOUND, match="987"):
        output_of("chain", "987")


def test_chain_marks_dry_and_ephemeral_cycles():
    session = SessionFactory(cycle=CycleFactory(ephemeral=True, dry_run=True))

    assert "(dry run, not kept)" in output_of("chain", str(session.pk))


def test_drill_lists_every_scenario_as_json():
    known = json.loads(output_of("drill", "--list", "--json"))

    assert [entry["name"] for entry in known] == scenario_names()


@pytest.mark.parametrize("also", [["all-healthy"], ["--queue"], ["--fresh"]])
def test_drill_refuses_options_that_a_list_would_ignore(also):
    with command_refused(RefusalCode.INVALID_ARGUMENTS, match="--list"):
        output_of("drill", "--list", *also)

    assert not Cycle.objects.exists()


@pytest.fixture
def listening():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()


@pytest.fixture
def state(settings):
    settings.CLAUDEOPS_STATE_DIR.mkdir()
    return settings.CLAUDEOPS_STATE_DIR


def test_a_port_in_use_is_refused(settings, state, listening):
    settings.CLAUDEOPS_HOST, settings.CLAUDEOPS_PORT = listening

    for attempt in (lambda: output_of("up"), lambda: output_of("web")):
        with command_refused(RefusalCode.CANNOT_LISTEN, match="CLAUDEOPS_PORT"):
            attempt()


def test_a_foreign_host_is_refused_by_its_setting(settings, state):
    settings.CLAUDEOPS_HOST = "192.0.2.1"

    with command_refused(RefusalCode.CANNOT_LISTEN, match="CLAUDEOPS_HOST.*192.0.2.1"):
        output_of("web")


def test_a_second_up_is_refused_with_the_address_of_the_first(state):
    installation.take(state, "http://127.0.0.1:8123/")

    with command_refused(RefusalCode.IN_USE, match="http://127.0.0.1:8123/"):
        output_of("up")


def test_up_does_not_upgrade_under_running_sessions(settings, state, monkeypatch):
    settings.CLAUDEOPS_PORT = 0
    ahead = Upgrade(
        waiting=("sessions_app.0099_next",), unknown=(), is_new=False, running=(7,), workers=()
    )
    monkeypatch.setattr(up, "upgrade_ahead", lambda: ahead)

    with command_refused(RefusalCode.IN_USE, match="#7"):
        output_of("up")


def test_a_broken_scenario_does_not_hide_the_others(settings, tmp_path):
    (tmp_path / "mine.toml").write_text("title = ")
    (tmp_path / "untitled.toml").write_text("prompt = 'x'")
    settings.CLAUDEOPS_SCENARIOS_DIR = str(tmp_path)
    out = io.StringIO()

    with command_refused(RefusalCode.SCENARIO) as refusal:
        call_command("drill", "--list", stdout=out)

    broken = str(refusal.value).splitlines()
    assert "three-tiers" in out.getvalue()
    assert [f"{tmp_path}/mine.toml" in broken[0], "it has no 'title'" in broken[1]] == [True, True]


def test_bench_measures_in_a_scratch_installation(monkeypatch):
    monkeypatch.delenv(MARK, raising=False)
    monkeypatch.setattr(bench, "rerun_in_scratch", lambda: 7)

    with pytest.raises(SystemExit) as leaving:
        output_of("bench", "overhead")

    assert leaving.value.code == 7


def test_bench_refuses_an_unknown_subject():
    with pytest.raises(CommandError, match="everything"):
        output_of("bench", "everything")


def test_a_scratch_installation_has_no_settings_of_the_operator(monkeypatch, settings):
    seen: dict[str, str] = {}

    def run(command, *, env, **options):
        seen.update(env, command=" ".join(command[1:]))
        return type("Ended", (), {"returncode": 3})

    monkeypatch.setattr("tests.devtools.scratch.subprocess.run", run)
    monkeypatch.setattr("tests.devtools.scratch.sys.argv", ["manage.py", "bench", "overhead"])
    monkeypatch.setenv("DATABASE_URL", "postgresql://operator@db/record")

    code = scratch.rerun_in_scratch()

    assert (code, seen["command"]) == (3, "-m escalation.management bench overhead")
    # By name, so that `.env` cannot bring another one back.
    assert seen["DATABASE_URL"] == f"sqlite:///{seen['CLAUDEOPS_STATE_DIR']}/claudeops.sqlite3"
    assert seen["CLAUDEOPS_STATE_DIR"] != str(settings.CLAUDEOPS_STATE_DIR)
    assert seen[MARK] == "1"


def test_drill_creates_the_database_of_a_fresh_installation(tmp_path):
    environment = {"PATH": os.environ["PATH"], "CLAUDEOPS_STATE_DIR": str(tmp_path / "state")}

    done = subprocess.run(
        [sys.executable, "manage.py", "drill", "--queue"],
        cwd=settings.BASE_DIR,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    # On a busy machine it says that it goes on.
    said = done.stderr.splitlines()
    unexpected = [one for one in said if not re.fullmatch(r"Preparing the database … \d+ s", one)]
    assert (done.returncode, unexpected) == (0, [])
    with closing(sqlite3.connect(tmp_path / "state" / "claudeops.sqlite3")) as database:
        drills = database.execute(f"SELECT drill FROM {Cycle._meta.db_table}").fetchall()  # noqa: S608
    assert drills == [("three-tiers",)]
