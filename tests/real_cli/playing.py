"""Plays a drill in the process of the test, and reads the requests of the model's side."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from escalation.drills.drill import drill_directory, start_drill
from escalation.run.runner import run_to_end
from sessions_app.models import Cycle, Session


@dataclass
class PlayedDrill:
    cycle: Cycle
    sessions: list[Session]
    directory: Path
    state: Path
    """The state directory in which it was played."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    """Requests of the main conversations, without subagents and auxiliary requests."""

    def of_tier(self, tier: int) -> Session:
        return next(session for session in self.sessions if session.tier == tier)

    def requests_of_tier(self, tier: int) -> list[dict[str, Any]]:
        return [entry["body"] for entry in self.requests if entry["tier"] == tier]

    def first_request_of_tier(self, tier: int) -> dict[str, Any]:
        return self.requests_of_tier(tier)[0]

    def state_of(self, container: str) -> str:
        return (self.directory / f"system/containers/{container}.state").read_text()


def play(name: str) -> PlayedDrill:
    return played(run_to_end(start_drill(name), lambda line: None))


def played(cycle: Cycle) -> PlayedDrill:
    directory = drill_directory(cycle)
    log = directory / "requests.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    return PlayedDrill(
        cycle=cycle,
        sessions=list(cycle.sessions.order_by("pk")),
        directory=directory,
        state=settings.CLAUDEOPS_STATE_DIR,
        requests=[entry for entry in map(json.loads, lines) if entry.get("main")],
    )


def conversation_text(request: dict[str, Any]) -> str:
    return json.dumps(request["messages"], ensure_ascii=False)


def offered_tools(request: dict[str, Any]) -> set[str]:
    return {tool["name"] for tool in request["tools"]}


def last_prompt(request: dict[str, Any]) -> str:
    """The newest text that a user's message carries, without the CLI's own reminders."""
    for message in reversed(request["messages"]):
        if message["role"] != "user" or isinstance(message["content"], str):
            continue
        texts = [block["text"] for block in message["content"] if block["type"] == "text"]
        ours = [text for text in texts if not text.startswith("<system-reminder>")]
        if ours:
            return "\n".join(ours)
    return ""


def tool_outputs(session: Session) -> list[str]:
    """Tool results of a session, from its stored stream."""
    outputs = []
    for event in session.events.filter(kind="user"):
        for block in event.payload["message"]["content"]:
            if block.get("type") == "tool_result":
                outputs.append(str(block["content"]))
    return outputs
