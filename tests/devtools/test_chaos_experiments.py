"""Planning of chaos experiments and their figures."""

from __future__ import annotations

import json
from collections import Counter

from tests.devtools.chaos.experiments import Experiment, FaultLog, plans
from tests.devtools.chaos.faults import FAULTS
from tests.devtools.chaos.figures import ChaosResult, as_json, figures

ALL = list(FAULTS)


def an_experiment(number: int = 1, **facts) -> Experiment:
    usual = {
        "fault": "kill the CLI",
        "after_seconds": 1.0,
        "also": [],
        "outcome": "fixed",
        "statuses": ["interrupted", "completed"],
        "cut_off": 1,
        "recovered": 1,
        "settling_seconds": 4.0,
        "violations": [],
    }
    return Experiment(number=number, **{**usual, **facts})


def test_every_fault_is_used_once_before_one_is_repeated():
    faults = [plan.fault for plan in plans(3 * len(ALL), seed=8, faults=ALL)]

    for start in range(0, len(faults), len(ALL)):
        assert sorted(faults[start : start + len(ALL)]) == sorted(ALL)


def test_the_same_seed_gives_the_same_faults():
    assert plans(20, seed=8, faults=ALL) == plans(20, seed=8, faults=ALL)
    assert plans(20, seed=8, faults=ALL) != plans(20, seed=9, faults=ALL)


def test_faults_are_spread_over_the_time_of_a_chain():
    moments = [plan.moment for plan in plans(200, seed=1, faults=ALL)]

    assert 0.0 <= min(moments) < 0.1
    assert 0.9 < max(moments) <= 1.0


def test_an_experiment_lists_faults_of_others_during_it():
    fault_log = FaultLog()
    fault_log.note(1, "kill the cluster")
    fault_log.note(2, "fill the disk")
    fault_log.note(3, "nothing")

    assert fault_log.others(2, since=0.0) == ["kill the cluster"]


def test_figures_are_summed_by_fault():
    disk, cli = figures(
        [
            an_experiment(1, settling_seconds=2.0),
            an_experiment(2, settling_seconds=4.0, outcome="needs_person", recovered=0),
            an_experiment(3, settling_seconds=9.0, violations=["lost", "doubled"]),
            an_experiment(4, fault="fill the disk", cut_off=0, recovered=0),
        ]
    )

    assert (cli.fault, cli.experiments, cli.violations) == ("kill the CLI", 3, 1)
    assert cli.outcomes == Counter(fixed=2, needs_person=1)
    assert (cli.settling_median_seconds, cli.settling_longest_seconds) == (4.0, 9.0)
    assert (cli.cut_off, cli.recovered) == (3, 2)
    assert (disk.fault, disk.experiments, disk.cut_off) == ("fill the disk", 1, 0)


def test_the_json_is_complete():
    played = ChaosResult(
        seed=5,
        seconds=12.34,
        experiments=[an_experiment(1), an_experiment(2, violations=["lost"])],
        leftovers=["the file spool/x was left behind"],
        left_out="no mount",
    )

    again = json.loads(json.dumps(as_json(played)))
    assert (again["seed"], again["seconds"], again["violated"]) == (5, 12.3, 1)
    assert (again["left_out"], len(again["leftovers"])) == ("no mount", 1)
    assert again["faults"][0]["experiments"] == len(again["experiments"]) == 2
    assert again["experiments"][1]["violations"] == ["lost"]
