"""Chaos with every fault: processes die at random moments, and nothing is lost or doubled."""

from __future__ import annotations

import json

import pytest

from tests.devtools.chaos.faults import FAULTS
from tests.system.conftest import Installation, processes_mentioning


@pytest.mark.prove
@pytest.mark.timeout(500)
def test_chaos_with_every_fault_leaves_every_session_with_a_true_end(installation: Installation):
    experiments = str(len(FAULTS))

    played = installation.manage(
        "chaos", "--experiments", experiments, "--seed", "5", "--json", timeout=480
    )

    found = json.loads(played.stdout)
    assert [entry for entry in found["experiments"] if entry["violations"]] == []
    assert played.returncode == 0
    assert sorted(entry["fault"] for entry in found["experiments"]) == sorted(FAULTS)
    assert found["left_out"] == ""
    assert processes_mentioning(str(installation.state.parent)) == []
