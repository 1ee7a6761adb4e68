"""The directory of one run: by what its processes and its spending are known after a crash.

It lies in the state directory, where no room shows it, and is gone when the run is concluded.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from django.conf import settings

from escalation.agent import Traces
from sessions_app.models import Session


def run_directory_of(session: Session) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "runs" / f"session-{session.pk}"


def traces_of(session: Session, mark: str) -> Traces:
    return Traces(mark=mark, tool_log=run_directory_of(session) / "tools")


def ledger_of(session: Session) -> Path:
    """What each answer of the API cost in tokens, written by the gateway."""
    return run_directory_of(session) / "usage.jsonl"


def remove(session: Session) -> None:
    shutil.rmtree(run_directory_of(session), ignore_errors=True)
