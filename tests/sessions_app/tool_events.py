"""Lines of the stream in which tools are called."""

from __future__ import annotations

from typing import Any

from sessions_app.models import Session
from tests.factories import SessionEventFactory


def call(
    command: Any, *, call_id: str = "t1", message: str = "m1", name: str = "Bash"
) -> dict[str, Any]:
    given = {"command": command} if isinstance(command, str) else command
    block = {"type": "tool_use", "id": call_id, "name": name, "input": given}
    return {"type": "assistant", "message": {"id": message, "content": [block]}}


def answer(content: Any, *, call_id: str = "t1", is_error: bool = False) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    return {"type": "user", "message": {"content": [{**block, "is_error": is_error}]}}


def said(text: str, *, message: str = "m1") -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    return {"type": "assistant", "message": {"id": message, "content": content}}


def store(session: Session, *payloads: dict[str, Any]) -> None:
    for payload in payloads:
        SessionEventFactory(session=session, kind=payload["type"], payload=payload)


def store_commands(session: Session, *commands: str) -> None:
    """One command in each answer of the model."""
    numbered = enumerate(commands)
    store(session, *(call(text, call_id=f"t{n}", message=f"m{n}") for n, text in numbered))
