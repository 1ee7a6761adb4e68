"""Three hosts and one PostgreSQL server with faults: nothing is lost or doubled.

One story is played, then looked at from all sides: by raw SQL, by the log of the scripted API and
by the transcripts of every host. The clocks of two hosts are a minute wrong, one ahead and one
behind, and one host has an older CLI. PostgreSQL is restarted while sessions run. The host whose
clock is ahead is killed in the middle of a run, and comes back when the others have gone on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from django.conf import settings

from escalation.agent.binary import find_binary
from tests.devtools.chaos.costs import Prices, dollars
from tests.devtools.chaos.evidence import DrillEvidence, gather
from tests.devtools.chaos.invariants import violations
from tests.devtools.chaos.leftovers import passing_files
from tests.devtools.chaos.prices import learned_prices
from tests.devtools.chaos.record import Row
from tests.devtools.postgres import own_postgres
from tests.system.three_hosts import (
    AHEAD,
    BEHIND,
    LIMIT,
    OLD_CLI,
    RIGHT,
    ThreeHosts,
    counting_runs,
    three_hosts_in,
)

pytestmark = [pytest.mark.prove, pytest.mark.timeout(900)]
TAKE_OVER_SECONDS = 120
OLD_VERSION = "2.1.197 (Claude Code)"
HALF_A_MINUTE = 30

HOPS = """
SELECT later.host, later.continued_by FROM sessions AS later
JOIN sessions AS earlier ON earlier.id = later.parent_session_id AND earlier.host <> later.host
WHERE later.host <> ''
"""
TALKING = """
SELECT DISTINCT sessions.id, sessions.cycle_id FROM sessions
JOIN sessions_app_sessionevent AS event ON event.session_id = sessions.id
WHERE sessions.status = 'running' AND sessions.host = ? AND sessions.cli_pid > 0
AND event.kind = 'assistant'
"""
GONE_ON = """
SELECT id FROM sessions WHERE cycle_id = ? AND id > ? AND host NOT IN ('', ?) AND status <> 'queued'
"""


@dataclass
class Story:
    hosts: ThreeHosts
    prices: Prices
    """Of both CLIs: they speak of different models."""
    cut_session: int
    cut_cycle: int
    took_over_after: float
    ran_at_once: list[int]
    left: list[str]
    """Files of runs on any host, when all was over and every host was back."""

    def sessions(self) -> list[Row]:
        return self.hosts.rows("SELECT * FROM sessions ORDER BY id")

    def evidence(self) -> list[DrillEvidence]:
        return [gather(self.hosts.place_of(cycle)) for cycle in self.hosts.cycles]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with own_postgres() as server:
        hosts = three_hosts_in(tmp_path_factory.mktemp("hosts"), server)
        try:
            yield played(hosts)
        finally:
            hosts.stop()


def played(hosts: ThreeHosts) -> Story:
    for name in hosts.hosts:
        hosts.start(name)
    with counting_runs(hosts) as ran_at_once, ThreadPoolExecutor() as beside:
        chains = hosts.start_chains(4)
        restart_database_under_load(hosts)
        hosts.wait_for_end(chains)
        while not has_resumed_elsewhere(hosts):
            hosts.wait_for_end(hosts.start_chains(2))
        session, cycle = talking_on(hosts, AHEAD)
        hosts.kill(AHEAD)
        began = time.monotonic()
        prices = [beside.submit(prices_of, program) for program in ("", str(OLD_CLI))]
        hosts.wait_until(
            lambda: hosts.rows(GONE_ON, cycle, session, AHEAD), f"somebody goes on with {session}"
        )
        took_over_after = time.monotonic() - began
        hosts.wait_for_end(hosts.cycles)
        bundled, old = (learned.result() for learned in prices)
        assert not set(bundled) & set(old)
    hosts.start(AHEAD)
    return Story(
        hosts=hosts,
        prices={**bundled, **old},
        cut_session=session,
        cut_cycle=cycle,
        took_over_after=took_over_after,
        ran_at_once=ran_at_once,
        left=left_when_all_is_over(hosts),
    )


def restart_database_under_load(hosts: ThreeHosts) -> None:
    running = "SELECT id FROM sessions WHERE status = 'running' AND cli_pid > 0"
    hosts.wait_until(lambda: len(hosts.rows(running)) > 1, "two sessions run")
    hosts.server.stop("immediate")
    hosts.server.start()


def has_resumed_elsewhere(hosts: ThreeHosts) -> bool:
    return any(hop["continued_by"] == "resume" for hop in hosts.rows(HOPS))


def talking_on(hosts: ThreeHosts, name: str) -> tuple[int, int]:
    """A session in the middle of its run there: its CLI has had an answer. Chance chooses hosts."""

    def look() -> list[Row]:
        active = "SELECT id FROM sessions_app_cycle WHERE state <> 'finished'"
        if not hosts.rows(active):
            hosts.start_chains(3)
        return hosts.rows(TALKING, name)

    (first, *_others) = hosts.wait_until(look, f"a session talks on {name}")
    return first["id"], first["cycle_id"]


def prices_of(program: str) -> Prices:
    return learned_prices([tier.model for tier in settings.CLAUDEOPS_TIERS.values()], program)


def left_when_all_is_over(hosts: ThreeHosts) -> list[str]:
    """The host that was killed clears away what it left when it is back."""

    def left() -> list[str]:
        return [name for host in hosts.hosts.values() for name in passing_files(host.state)]

    give_up = time.monotonic() + TAKE_OVER_SECONDS
    while (found := left()) and time.monotonic() < give_up:
        time.sleep(0.5)
    return found


def test_every_chain_ended(story):
    """All three tiers, whatever fell upon them; only the run that was cut off may need a person."""
    cycles = story.hosts.rows("SELECT id, state, outcome FROM sessions_app_cycle ORDER BY id")
    others = [cycle for cycle in cycles if cycle["id"] != story.cut_cycle]

    assert [cycle["id"] for cycle in cycles] == story.hosts.cycles
    assert {cycle["state"] for cycle in cycles} == {"finished"}
    assert {cycle["outcome"] for cycle in others} == {"fixed"}


def test_nothing_was_lost_or_doubled_or_left_behind(story):
    found = [line for one in story.evidence() for line in violations(one, story.prices)]

    assert [line for line in found if not is_about_dead_transcript(story, line)] == []
    assert story.left == []


def is_about_dead_transcript(story: Story, line: str) -> bool:
    """The tokens of the last answers of a run stand in its transcript, on the host that is dead:
    whoever ends the run has only its stream."""
    about_tokens = f"session {story.cut_session} counts "
    return line.startswith(about_tokens) and "its transcript proves" in line


def test_the_cost_of_the_session_that_died_with_its_host_is_unknown(story):
    (cut,) = story.hosts.rows("SELECT * FROM sessions WHERE id = ?", story.cut_session)

    assert cut["cost_usd"] is None
    assert cut["estimated_cost_usd"] is not None


def test_chains_resumed_on_other_hosts(story):
    hops = Counter(hop["continued_by"] for hop in story.hosts.rows(HOPS))

    assert hops["resume"] >= 1
    assert {session["host"] for session in story.sessions()} == {AHEAD, RIGHT, BEHIND}


def test_the_work_of_the_killed_host_continued_elsewhere_within_two_minutes(story):
    (cut,) = story.hosts.rows("SELECT * FROM sessions WHERE id = ?", story.cut_session)
    print(f"gone on with after {story.took_over_after:.0f} s")

    assert (cut["status"], cut["host"]) == ("interrupted", AHEAD)
    assert story.took_over_after < TAKE_OVER_SECONDS


def test_sessions_of_all_hosts_stayed_within_the_limit(story):
    assert max(story.ran_at_once) == LIMIT


def test_the_clocks_of_the_hosts_differed_by_a_minute(story):
    """A run is entered with its host's clock and gives signs of life by the database's."""
    wrong = {
        host: [
            (session["started_at"] - session["heartbeat_at"]).total_seconds()
            for session in story.sessions()
            if session["host"] == host and session["status"] != "interrupted"
        ]
        for host in (AHEAD, BEHIND)
    }

    assert min(wrong[AHEAD]) > HALF_A_MINUTE
    assert max(wrong[BEHIND]) < -HALF_A_MINUTE


def test_each_host_ran_its_own_cli_and_another_version_did_not_resume(story):
    versions = {(session["host"], session["cli_version"]) for session in story.sessions()}
    resumed = {hop["host"] for hop in story.hosts.rows(HOPS) if hop["continued_by"] == "resume"}
    bundled = find_binary().version

    assert versions == {(AHEAD, bundled), (RIGHT, bundled), (BEHIND, OLD_VERSION)}
    assert BEHIND not in resumed


def test_stored_costs_equal_what_the_api_served(story):
    """Where the CLI stated a cost: each token that went out whole, at the price of that CLI."""
    booked = served = 0.0
    for evidence in story.evidence():
        for run in evidence.runs:
            if run.row["cost_usd"] is not None and run.results:
                booked += run.row["cost_usd"]
                answers = [exchange for exchange in run.exchanges if exchange.served]
                served += dollars(answers, story.prices)

    assert booked == pytest.approx(served, abs=0.00001)
    assert booked > 0
