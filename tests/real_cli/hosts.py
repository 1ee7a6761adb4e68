"""Two homes as two hosts, each with the real CLI, and one scripted API for both."""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path

from escalation.agent.binary import cli_environment, find_binary
from escalation.drills.scripted_api import ScriptedApi
from escalation.resume.transcripts import transcript_path
from sessions_app.models import Session
from tests.factories import SessionFactory

FLAGS = (
    *("--model", "haiku", "--output-format", "stream-json", "--verbose"),
    *("--permission-mode", "dontAsk", "--setting-sources", "", "--allowedTools", "Bash,Task"),
)


@dataclass
class Host:
    """A home and a configuration directory that no other host has."""

    directory: Path
    api: ScriptedApi

    @property
    def config_dir(self) -> Path:
        return self.directory / "config"

    def claude(
        self, workdir: Path, *flags: str, tier: int, prompt: str = "Look."
    ) -> subprocess.CompletedProcess[str]:
        for needed in (self.directory / "home", self.config_dir):
            needed.mkdir(parents=True, exist_ok=True)
        environment = {
            **cli_environment(
                os.environ,
                home=self.directory / "home",
                config_directory=self.config_dir,
                api_retries=1,
            ),
            "ANTHROPIC_BASE_URL": self.api.base_url("hosts", tier, self.directory.name),
            "ANTHROPIC_API_KEY": "test-key",
        }
        return subprocess.run(
            [find_binary().path, "-p", *flags, *FLAGS],
            cwd=workdir,
            env=environment,
            input=prompt,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def tier_1(self, workdir: Path) -> Session:
        """Run Tier 1 here and store what the supervisor stores about a run."""
        session_id = str(uuid.uuid4())
        ended = self.claude(workdir, "--session-id", session_id, tier=1)
        assert ended.returncode == 0, ended.stderr
        return SessionFactory(
            session_id=session_id,
            workdir=str(workdir),
            config_dir=str(self.config_dir),
            host=self.directory.name,
            result=ended.stdout,
        )

    def tier_2(self, parent: Session, workdir: Path) -> subprocess.CompletedProcess[str]:
        """Continue it here, as an escalation does."""
        fork = ("--resume", parent.session_id, "--fork-session", "--session-id", str(uuid.uuid4()))
        return self.claude(workdir, *fork, tier=2, prompt="Go on.")

    def path_of(self, session: Session) -> Path:
        return transcript_path(self.config_dir, session.workdir, session.session_id)
