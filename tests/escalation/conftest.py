from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from escalation.agent import binary, capabilities
from escalation.rehearsal import own_postgres
from escalation.run import runner
from escalation.run.unguarded import UnguardedCommands
from sessions_app.models import Session
from tests.escalation.contenders import Contest
from tests.escalation.fake_cli import FakeCli
from tests.escalation.rows import queued_session


@pytest.fixture(autouse=True)
def own_surroundings(settings, tmp_path: Path, monkeypatch) -> None:
    """All state goes to a directory of the test, and nothing of the developer's login is seen."""
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    settings.CLAUDEOPS_PASS_ENV = ()
    # The stand-in for the CLI lies where no room shows it; rooms have tests of their own.
    settings.CLAUDEOPS_ROOMS = "off"
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE_CODE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    binary._described.cache_clear()
    capabilities._remembered.clear()


class BelievedCommands(UnguardedCommands):
    """The stand-in for the CLI only says that it ran a command: no gate could have seen it."""

    def look_at(self, line: Mapping[str, Any]) -> str:
        return ""


@pytest.fixture(autouse=True)
def believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "UnguardedCommands", BelievedCommands)


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
    if request.param == "sqlite":
        with closing(Contest(directory)) as contest:
            yield contest
        return
    with (
        own_postgres.postgres_server() as port,
        closing(Contest(directory, own_postgres.new_database(port))) as contest,
    ):
        yield contest
