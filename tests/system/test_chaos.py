"""The worst night, shortened: things die at random moments, and nothing is lost or doubled."""

from __future__ import annotations

import json

import pytest

from tests.system.conftest import Installation, processes_mentioning


@pytest.mark.timeout(400)
def test_ten_rounds_of_chaos_leave_every_session_with_a_true_end(installation: Installation):
    played = installation.manage("chaos", "--rounds", "10", "--seed", "5", "--json", patience=380)

    found = json.loads(played.stdout)
    assert [entry for entry in found["rounds"] if entry["violations"]] == []
    assert played.returncode == 0
    assert len({entry["fault"] for entry in found["rounds"]}) >= 4
    assert processes_mentioning(installation.environment["CLAUDEOPS_WORKDIR"]) == []
