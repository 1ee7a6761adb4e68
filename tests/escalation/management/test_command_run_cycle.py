"""`claudeops run_cycle`: one cycle in the foreground, with an exit code that scripts can use."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass

import pytest
from django.core.management import CommandError, call_command
from django_q.models import OrmQ

from escalation.errors import RefusalCode
from sessions_app.models import Cycle, Session, Watch
from tests.escalation.refusals import command_refused
from tests.escalation.rows import ESCALATE, HEALTHY, a_report
from tests.factories import CycleFactory, WatchFactory

pytestmark = pytest.mark.django_db


@dataclass
class Finished:
    code: int
    out: str
    err: str


def run_cycle(*arguments: str) -> Finished:
    out, err = io.StringIO(), io.StringIO()
    code = 0
    try:
        call_command("run_cycle", *arguments, stdout=out, stderr=err)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    return Finished(code, out.getvalue(), err.getvalue())


@pytest.fixture
def watch(workdir) -> Watch:
    return WatchFactory(name="shop", workdir=str(workdir))


@pytest.fixture
def answer(monkeypatch):
    """Set the input of the terminal."""

    def type_in(text: str) -> None:
        monkeypatch.setattr("sys.stdin", io.StringIO(text))

    return type_in


@pytest.mark.parametrize(
    ("report", "code", "outcome"),
    [
        (HEALTHY, 0, Cycle.Outcome.HEALTHY),
        (a_report(actions=(("restarted web", "succeeded"),)), 0, Cycle.Outcome.HEALTHY),
        (a_report(services=(("web", "down"),)), 1, Cycle.Outcome.NEEDS_PERSON),
    ],
)
def test_the_exit_code_follows_from_the_outcome(fake_cli, watch, report, code, outcome):
    fake_cli.reports(report)

    finished = run_cycle("--watch", "shop")

    assert (finished.code, watch.cycles.get().outcome) == (code, outcome)


def test_a_cycle_that_could_not_run_exits_with_2(fake_cli, watch, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")

    finished = run_cycle("--watch", "shop")

    assert finished.code == 2
    assert "ANTHROPIC_API_KEY" in finished.out


def test_all_tiers_run_and_the_chain_is_printed(fake_cli, watch):
    fake_cli.reports(ESCALATE).reports(HEALTHY)

    finished = run_cycle("--watch", "shop")

    first, second = Session.objects.order_by("pk")
    assert f"── Session {first.pk}: Tier 1, haiku" in finished.out
    assert f"#{second.pk} Tier 2 sonnet completed $0.02" in finished.out
    assert f"← #{first.pk}" in finished.out
    assert "Sum of tiers $0.036 = what the CLI reported for the conversation" in finished.out
    assert finished.out.rstrip().endswith("Healthy. Tier 2 found everything healthy.")


def test_with_json_stdout_is_only_json(fake_cli, watch):
    fake_cli.reports(ESCALATE).reports(HEALTHY)

    finished = run_cycle("--watch", "shop", "--json")

    first, second = json.loads(finished.out)
    assert [first["tier"], second["tier"]] == [1, 2]
    assert second["parent_session_id"] == first["id"]
    assert (first["status"], first["cost_usd"]) == ("escalated", 0.018)
    assert (second["watch"], second["outcome"], second["drill"]) == ("shop", "healthy", None)
    assert "── Session" in finished.err


def test_with_json_the_confirmation_is_not_on_stdout(fake_cli, watch, answer, capsys):
    fake_cli.reports(HEALTHY)
    answer("y\n")

    finished = run_cycle("--watch", "shop", "--tier", "2", "--json")

    assert json.loads(finished.out)
    assert capsys.readouterr().out == ""


def test_with_queue_the_cycle_is_enqueued(fake_cli, watch):
    finished = run_cycle("--watch", "shop", "--queue")

    cycle = watch.cycles.get()
    assert (finished.code, finished.out) == (0, f"Cycle {cycle.pk} of shop is queued.\n")
    assert OrmQ.objects.count() == 1
    assert fake_cli.calls == []


def test_with_queue_and_json_the_waiting_chain_is_printed(fake_cli, watch):
    (waiting,) = json.loads(run_cycle("--watch", "shop", "--queue", "--json").out)

    assert (waiting["status"], waiting["outcome"]) == ("queued", None)


def test_the_request_is_in_the_prompt(fake_cli, watch):
    fake_cli.reports(HEALTHY)

    run_cycle("--watch", "shop", "--prompt", "Is db slow?")

    assert "## Asked for this time\nIs db slow?" in fake_cli.calls[0].stdin


def test_without_a_name_the_default_watch_is_created_and_run(fake_cli, settings, workdir):
    settings.CLAUDEOPS_WORKDIR = str(workdir)
    fake_cli.reports(HEALTHY)

    assert run_cycle().code == 0
    assert Cycle.objects.get().watch == Watch.objects.get(name="default")


def test_an_unknown_watch_is_refused_with_the_known_ones(fake_cli, watch):
    with command_refused(RefusalCode.NOT_FOUND, match="lab.*shop"):
        run_cycle("--watch", "lab")


def test_an_active_cycle_is_refused(fake_cli, watch):
    CycleFactory(running=True, watch=watch)

    with command_refused(RefusalCode.CYCLE_ACTIVE):
        run_cycle("--watch", "shop")


@pytest.mark.parametrize("tier", ["0", "4", "two"])
def test_a_tier_that_does_not_exist_is_refused(watch, tier):
    with pytest.raises(CommandError, match="--tier"):
        run_cycle("--watch", "shop", "--tier", tier)


def test_a_tier_above_the_limit_of_the_watch_is_refused(fake_cli, workdir):
    WatchFactory(name="lab", workdir=str(workdir), max_tier=1)

    with command_refused(RefusalCode.POLICY):
        run_cycle("--watch", "lab", "--tier", "2", "--no-input")


@pytest.mark.parametrize("typed", ["", "\n", "n\n", "maybe\n"])
def test_a_higher_tier_is_not_started_without_a_confirmation(fake_cli, watch, answer, typed):
    answer(typed)

    with command_refused(RefusalCode.NOT_CONFIRMED):
        run_cycle("--watch", "shop", "--tier", "2")

    assert not Cycle.objects.exists()


@pytest.mark.parametrize("typed", ["y\n", "YES\n"])
def test_a_higher_tier_is_started_after_a_confirmation(fake_cli, watch, answer, typed):
    fake_cli.reports(HEALTHY)
    answer(typed)

    finished = run_cycle("--watch", "shop", "--tier", "2")

    assert f"Tier 2 (safe remediation) may change {watch.workdir}" in finished.err
    assert Session.objects.get().tier == 2


def test_with_no_input_a_higher_tier_is_started_at_once(fake_cli, watch):
    fake_cli.reports(HEALTHY)

    assert run_cycle("--watch", "shop", "--tier", "3", "--no-input").code == 0
    assert fake_cli.calls[0].flag("--model") == "opus"
