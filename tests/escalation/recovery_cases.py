"""Sessions whose runner is gone, and their files on disk."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.utils import timezone

from escalation.agent.process import boot_id, started_at
from escalation.queue import enqueue_with
from escalation.resume.transcripts import transcript_path
from escalation.run.recovery import Recovered, recover
from sessions_app.models import Session, SessionEvent
from tests.factories import SessionEventFactory, SessionFactory

ID = "22222222-2222-4222-8222-222222222222"
BEGAN_AGO = timedelta(minutes=1)


def dead_process() -> int:
    """The pid of a process that has ended a moment ago."""
    ended = subprocess.Popen([sys.executable, "-IS", "-c", "pass"])
    ended.wait()
    return ended.pid


def orphan(directory: Path, *, seen: bool = True, **facts: Any) -> Session:
    """A running session of this machine whose runner has ended. `seen`: its CLI had begun."""
    (directory / "shop").mkdir(exist_ok=True)
    session: Session = SessionFactory(
        running=True,
        **{
            "session_id": ID,
            "workdir": str(directory / "shop"),
            "config_dir": str(directory / "config"),
            "host": socket.gethostname(),
            "boot_id": boot_id(),
            "runner_pid": dead_process(),
            "runner_started": 1,
            "heartbeat_at": timezone.now(),
            "started_at": timezone.now() - BEGAN_AGO,
            "run_mark": f"session-of-a-test-{os.getpid()}-{datetime.now().timestamp()}",  # noqa: DTZ005
            **facts,
        },
    )
    if seen:
        heard(session, {"type": "system", "subtype": "init", "session_id": session.session_id})
    return session


def living_runner() -> dict[str, Any]:
    """This very process, as the runner of a session."""
    return {"runner_pid": os.getpid(), "runner_started": started_at(os.getpid())}


def heard(session: Session, *payloads: dict[str, Any]) -> None:
    """Lines of the stream that reached the database before the death."""
    last = session.events.count()
    for number, payload in enumerate(payloads, start=1):
        kind = "/".join(filter(None, (payload["type"], payload.get("subtype"))))
        SessionEventFactory(session=session, sequence=last + number, kind=kind, payload=payload)


def answer(uuid: str, *blocks: dict[str, Any], seconds: float = -30, **more: Any) -> dict[str, Any]:
    """An answer of the model, as stream and transcript hold it, so many seconds from now."""
    content = list(blocks) or [{"type": "text", "text": f"said in {uuid}"}]
    return {
        "type": "assistant",
        "uuid": uuid,
        "timestamp": _stamp(seconds),
        "parent_tool_use_id": None,
        "message": {
            "id": f"msg_{uuid}",
            "role": "assistant",
            "model": "claude-haiku-5-5",
            "content": content,
            "usage": {"input_tokens": 100, "output_tokens": 10},
            **more,
        },
    }


def tool_call(uuid: str, call: str = "toolu_1", seconds: float = -20) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "df"}}
    return answer(uuid, block, seconds=seconds)


def tool_result(uuid: str, call: str = "toolu_1", seconds: float = -10) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
    return {
        "type": "user",
        "uuid": uuid,
        "timestamp": _stamp(seconds),
        "message": {"role": "user", "content": [block]},
    }


def prompt(uuid: str, seconds: float = -59) -> dict[str, Any]:
    return {
        "type": "user",
        "uuid": uuid,
        "timestamp": _stamp(seconds),
        "message": {"role": "user", "content": "# On call: one cycle"},
    }


def write_transcript(session: Session, *entries: dict[str, Any], rest: str = "") -> Path:
    path = transcript_path(Path(session.config_dir), session.workdir, session.session_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries) + rest)
    return path


class Handed:
    """Receives enqueued sessions and keeps them."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []

    def __call__(self, session: Session) -> None:
        self.sessions.append(session)

    @property
    def pks(self) -> list[int]:
        return [session.pk for session in self.sessions]


def recovered(session: Session, handed: Handed | None = None) -> tuple[Session, list[Recovered]]:
    """Recover, and look at the session anew."""
    with enqueue_with(handed or Handed()):
        done = recover()
    return Session.objects.get(pk=session.pk), done


def uuids(session: Session) -> list[str]:
    """The messages of the stream in the order in which they are stored."""
    events = session.events.filter(source=SessionEvent.Source.STREAM).order_by("sequence")
    return [event.payload["uuid"] for event in events if "uuid" in event.payload]


def _stamp(seconds: float) -> str:
    """Format a time as the CLI does."""
    moment = timezone.now() + timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
