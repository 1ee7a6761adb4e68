from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from escalation.agent import capabilities
from escalation.run import runner
from escalation.run.command_checks import BypassCheck
from sessions_app.models import Session
from tests.escalation.contenders import Contest
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import queued_session


@pytest.fixture(autouse=True)
def own_environment(settings, tmp_path: Path, monkeypatch) -> None:
    """Use a state directory of the test, without the developer's credentials."""
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    settings.CLAUDEOPS_PASS_ENV = ()
    # The fake CLI is outside of every sandbox; sandboxes have their own tests.
    settings.CLAUDEOPS_SANDBOX = "off"
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE_CODE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    capabilities._remembered.clear()


class BelievedCommands(BypassCheck):
    """The fake CLI only reports that it ran a command: no policy could have seen it."""

    def look_at(self, line: Mapping[str, Any]) -> str:
        return ""


@pytest.fixture(autouse=True)
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "BypassCheck", BelievedCommands)


@pytest.fixture
def fake_cli(settings, tmp_path: Path) -> FakeCli:
    """A `claude` that does as the test says; every run of the test uses it."""
    return FakeCli(tmp_path / "fake-cli").install(settings)


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    directory = tmp_path / "system"
    directory.mkdir()
    return directory


@pytest.fixture
def session(db, workdir: Path) -> Session:
    """The first session of a cycle, queued and waiting to be run."""
    return queued_session(workdir)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def contest(request, tmp_path_factory) -> Iterator[Contest]:
    """Real processes on a database of each kind."""
    directory = tmp_path_factory.mktemp("contest")
    address = ""
    if request.param == "sqlite":
        migrated = request.getfixturevalue("migrated_database")
        shutil.copy(migrated, directory / "claudeops.sqlite3")
    else:
        address = request.getfixturevalue("new_postgres_database")()
    with closing(Contest(directory, address)) as contest:
        yield contest
