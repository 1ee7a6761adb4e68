"""A backup restored from SQLite to PostgreSQL and back is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.devtools.postgres import OwnPostgres
from tests.system.conftest import Installation, installed_in
from tests.system.test_backup import everything, first_played, played, saved

__all__ = ["first_played", "played"]


@pytest.mark.prove
def test_a_record_moves_to_postgresql_and_back(
    played: Installation, tmp_path: Path, postgres: OwnPostgres
):
    for name in ("there", "back"):
        (tmp_path / name).mkdir()
    there, back = installed_in(tmp_path / "there"), installed_in(tmp_path / "back")

    there.environment["DATABASE_URL"] = postgres.new_database()
    moved = there.manage("restore", str(saved(played)))
    assert moved.returncode == 0, moved.stderr
    chain = there.chain(1)
    # New rows get numbers after the old ones.
    added = there.manage("watch", "add", "lab", there.environment["CLAUDEOPS_WORKDIR"])
    removed = there.manage("watch", "remove", "lab", "--no-input")
    refused = there.manage("restore", str(saved(there)))
    returned = back.manage("restore", str(there.state.parent / "ops.backup"))

    assert (added.returncode, removed.returncode) == (0, 0), added.stderr
    assert chain == played.chain(1)
    assert (refused.returncode, returned.returncode) == (2, 0), returned.stderr
    assert everything(back) == everything(played)
