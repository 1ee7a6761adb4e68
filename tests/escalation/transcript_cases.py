"""Transcripts as the CLI writes them, for tests that need no CLI."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from escalation.resume.transcripts import transcript_path
from sessions_app.models import Session
from tests.factories import SessionFactory

ID = "11111111-1111-4111-8111-111111111111"


def said(uuid: str, text: str = "hello") -> dict[str, Any]:
    return {"type": "user", "uuid": uuid, "message": {"role": "user", "content": text}}


def cost(total: object) -> dict[str, Any]:
    return {"type": "cost-state", "sessionId": ID, "totalCostUSD": total}


def lines(*entries: dict[str, Any]) -> str:
    return "".join(json.dumps(entry) + "\n" for entry in entries)


def entries_in(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def session_in(directory: Path) -> Session:
    """A session that ran in a directory of the test's own, with its own configuration."""
    (directory / "shop").mkdir()
    return SessionFactory(
        session_id=ID, workdir=str(directory / "shop"), config_dir=str(directory / "config")
    )


def place_of(session: Session, config_dir: Path | None = None) -> Path:
    """Path of the session's transcript, in an existing directory."""
    path = transcript_path(config_dir or Path(session.config_dir), session.workdir, ID)
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
