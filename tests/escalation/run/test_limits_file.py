"""`claude-ops.toml` in the directory of a watch: it lowers what agents may do."""

from __future__ import annotations

import os
import re
from decimal import Decimal
from pathlib import Path

import pytest
from django.core.management import call_command
from hypothesis import given
from hypothesis import strategies as st

from escalation.command_policy.grants import grants_for
from escalation.run.limits_file import (
    LARGEST_FILE,
    LOOK_ONLY,
    Limits,
    differences,
    lowered,
    parsed_limits,
    read_limits,
)
from sessions_app.costs.spending import limits_of
from sessions_app.models import Cycle, Session
from sessions_app.models.autonomy import AutonomyLevel, Policy
from sessions_app.models.session import EventKind
from tests.escalation.rows import HEALTHY, queued_session
from tests.escalation.runs import run
from tests.factories import WatchFactory
from tests.tables import each_row

FULL = Limits(policy=Policy(max_tier=3, dry_run=False), grants="write:/srv/app -ssh")


def limits(text, before=FULL):
    found = parsed_limits(text.encode())
    assert found.problem == ""
    assert found.wanted is not None
    return lowered(before, found.wanted)


LOWERED = [
    ("", 0),
    ("[watch]\nmax_tier = 2", 1),
    ("[watch]\nmax_tier = 3", 0),
    ("[watch]\nautonomy = 'look'", 2),
    ("[watch]\nautonomy = 'all'", 0),
    ("[watch]\ndry_run = true", 1),
    ("[watch]\ndry_run = false", 0),
    ("[watch]\napproval = [2, 3]", 2),
    ("[watch]\nask = ['Bash(docker restart:*)']", 1),
    ("[watch]\ngrants = ['-docker', '-write:/srv/app']", 2),
    ("[watch]\ngrants = ['ssh', 'write:/etc', '-ssh']", 0),
    ("[watch]\nbudgets = { day = 1, cycle = 0.5 }", 2),
    ("[watches.shop]\nanything = 1\n[channels.x]", 0),
]


@each_row("text, number", LOWERED)
def test_what_is_lowered_is_told(text, number):
    assert len(differences(FULL, limits(text))) == number


def test_each_limit_is_the_stricter_one():
    before = Limits(
        policy=Policy(max_tier=2, dry_run=True, approval_tiers=frozenset({3})),
        ask=("Bash(a)",),
        grants="-ssh",
        day_usd=Decimal(2),
    )

    after = limits(
        "[watch]\nmax_tier = 3\napproval = [2]\nask = ['Bash(b)']\ngrants = ['ssh', '-docker']\n"
        "budgets = { day = 5, cycle = 1 }",
        before,
    )

    assert after == Limits(
        policy=Policy(max_tier=2, dry_run=True, approval_tiers=frozenset({2, 3})),
        ask=("Bash(a)", "Bash(b)"),
        grants="-ssh -docker",
        day_usd=Decimal(2),
        cycle_usd=Decimal(1),
    )


tiers = st.integers(1, 3)
policies = st.builds(
    Policy, max_tier=tiers, dry_run=st.booleans(), approval_tiers=st.frozensets(tiers)
)
amounts = st.none() | st.decimals(0, 100, places=2)
words = st.lists(st.sampled_from(["docker", "-docker", "ssh", "-ssh", "write:/a", "-write:/a"]))
befores = st.builds(
    Limits, policy=policies, grants=words.map(" ".join), day_usd=amounts, cycle_usd=amounts
)
files = st.fixed_dictionaries(
    {},
    optional={
        "autonomy": st.sampled_from([level.value for level in AutonomyLevel]),
        "max_tier": tiers,
        "dry_run": st.booleans(),
        "approval": st.lists(st.integers(2, 3)),
        "grants": words,
        "budgets": st.builds(lambda day: {"day": day} if day is not None else {}, amounts),
    },
)


@given(before=befores, table=files)
def test_no_file_raises_anything(before, table):
    wanted = type(LOOK_ONLY).model_validate(table)

    after = lowered(before, wanted)

    assert after.policy.max_tier <= before.policy.max_tier
    assert after.policy.dry_run >= before.policy.dry_run
    assert after.policy.approval_tiers >= before.policy.approval_tiers
    assert set(after.ask) >= set(before.ask)
    given_before = set(grants_for(watch_words=before.grants).words())
    assert set(grants_for(watch_words=after.grants).words()) <= given_before
    for name in ("day_usd", "cycle_usd"):
        least, most = getattr(after, name), getattr(before, name)
        assert most is None or least <= most
    assert lowered(after, wanted).policy == after.policy


BROKEN = [
    b"a = ",
    b"\xff",
    b"[wach]\nmax_tier = 1",
    b"watch = 1",
    b"[watch]\nmax_teir = 1",
    b"[watch]\nmax_tier = 9",
    b"[watch]\nmax_tier = '1'",
    b"[watch]\napproval = [1]",
    b"[watch]\nautonomy = 'lok'",
    b"[watch]\ngrants = ['-dokcer']",
    b"[watch]\nask = ['restart']",
    b"[watch]\nbudgets = { day = -1 }",
    b"[watch]\nbudgets = { day = inf }",
    b"a = " + b"[" * 5000,
]


@each_row("data", BROKEN)
def test_broken_file_lets_nothing_but_look(data):
    found = parsed_limits(data)

    assert found.problem
    assert found.wanted == LOOK_ONLY
    assert lowered(FULL, found.wanted).policy.max_tier == 1
    assert lowered(FULL, found.wanted).policy.dry_run


def test_links_pipes_directories_and_long_files_are_not_read(tmp_path):
    outside = tmp_path / "outside.toml"
    outside.write_text("[watch]\nmax_tier = 3\n")
    makers = {
        "link": lambda path: path.symlink_to(outside),
        "dangling": lambda path: path.symlink_to("/nonexistent"),
        "pipe": lambda path: os.mkfifo(path),
        "directory": lambda path: path.mkdir(),
        "long": lambda path: path.write_text("#" * (LARGEST_FILE + 1)),
    }
    for name, make in makers.items():
        workdir = tmp_path / name
        workdir.mkdir()
        make(workdir / "claude-ops.toml")
        assert read_limits(workdir).wanted == LOOK_ONLY, name
    assert read_limits(tmp_path).wanted is None


def test_example_of_the_handbook_is_understood():
    page = Path(__file__).resolve().parents[3] / "docs" / "configuration-in-git.md"
    [text] = re.findall(r"```toml shop/claude-ops\.toml\n(.*?)```", page.read_text(), re.DOTALL)

    assert len(differences(FULL, limits(text))) == 6


# Whole runs.

pytestmark = pytest.mark.django_db


@pytest.fixture
def workdir(tmp_path):
    directory = tmp_path / "shop"
    directory.mkdir()
    return directory


def write(workdir, text):
    (workdir / "claude-ops.toml").write_text(text)


def ran(workdir, fake_cli, tier=1):
    fake_cli.reports(HEALTHY)
    return run(queued_session(workdir, tier=tier, grants="write:/srv/app"))


def notes(session, kind):
    return [event for event in session.events.filter(kind=kind) if "lowered" in event.payload]


def test_cycle_keeps_what_the_file_lowered_when_it_began(workdir, fake_cli):
    write(
        workdir,
        "[watch]\nmax_tier = 2\ngrants = ['-docker']\nask = ['Bash(reboot)']\n"
        "budgets = { day = 1, cycle = 0.5 }\n",
    )

    session = ran(workdir, fake_cli)
    write(workdir, "")
    cycle = Cycle.objects.get(pk=session.cycle_id)

    assert session.status == Session.Status.COMPLETED
    assert (cycle.max_tier, cycle.budget_usd) == (2, Decimal("0.5"))
    assert cycle.current_policy().max_tier == 2
    assert cycle.grants == "write:/srv/app -docker"
    assert cycle.ask_rules == ("Bash(reboot)",)
    assert Decimal(1) in limits_of(cycle).values()
    assert len(notes(session, EventKind.SETTINGS)) == 1


def test_broken_file_lets_the_cycle_go_on_at_tier_1(workdir, fake_cli):
    write(workdir, "[watch\n")

    session = ran(workdir, fake_cli)

    assert session.status == Session.Status.COMPLETED
    assert session.cycle.current_policy().max_tier == 1
    assert len(notes(session, EventKind.WARNING)) == 1


def test_tier_above_the_lowered_one_does_not_start(workdir, fake_cli):
    write(workdir, "[watch]\nmax_tier = 1\n")

    session = ran(workdir, fake_cli, tier=2)

    assert session.status == Session.Status.FAILED
    assert fake_cli.calls == []


def test_cycle_without_a_file_is_as_the_operator_set_it(workdir, fake_cli):
    session = ran(workdir, fake_cli)

    assert (session.cycle.lowered, session.cycle.max_tier) == ({}, 3)
    assert notes(session, EventKind.SETTINGS) == []


def test_page_and_command_say_what_is_lowered(workdir, operator_client, capsys):
    watch = WatchFactory(name="shop", workdir=str(workdir))
    write(workdir, "[watch]\nmax_tier = 2\n")
    assert "no tier above 2" in operator_client.get(watch.get_absolute_url()).content.decode()
    write(workdir, "[watch\n")
    call_command("watch", "show", "shop")
    assert "not understood" in capsys.readouterr().out
