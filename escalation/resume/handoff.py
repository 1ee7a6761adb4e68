"""The handoff: a summary for a tier that cannot resume the conversation.

The supervisor builds it from the record, without a model call: reports, then tool calls with their
outputs, failed and newest first, cut to a length and redacted. It passes through a file that only
the supervisor writes and reads: signed, checked on reading, used once, stored on the session and
removed. A file that was there before is removed unread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from escalation.agent.stream import ToolCall, tool_calls
from sessions_app.models import Session
from sessions_app.redaction.redact import redacted, redacted_data

SCHEMA_VERSION = 2
MAX_FILE_BYTES = 1024 * 1024
RECORD_LENGTH = 24_000
OUTPUT_LENGTH = 1_500
INPUT_LENGTH = 500
LIST_LENGTH = 40
MAX_AGE = timedelta(hours=1)
# A clock that was set back must not make a file of a moment ago look wrong.
CLOCK_SLACK = timedelta(hours=2)


class HandoffProblem(StrEnum):
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    NOT_JSON = "not_json"
    NOT_A_HANDOFF = "not_a_handoff"
    VERSION = "version"
    OTHER_SESSION = "other_session"
    SIGNATURE = "signature"
    NO_TIME = "no_time"
    AGE = "age"


class HandoffRefused(Exception):
    """The handoff file must not be used."""

    def __init__(self, code: HandoffProblem, message: str) -> None:
        super().__init__(message)
        self.code = code


def build(path: Sequence[Session]) -> dict[str, Any]:
    """Build the handoff document from the sessions of the path."""
    parent = path[-1]
    content = {
        "runs": [_run(session) for session in path],
        "tool_calls": _chosen_calls(path),
    }
    document = {
        "schema_version": SCHEMA_VERSION,
        "cycle": parent.cycle_id,
        "source_session": parent.pk,
        "created_at": timezone.now().isoformat(),
        "content": content,
    }
    return {**document, "signature": signature_of(document)}


def is_thin(document: dict[str, Any]) -> bool:
    """Return whether the document has no report and no tool call."""
    content = document["content"]
    return not (any(run["report"] for run in content["runs"]) or content["tool_calls"])


def signature_of(document: dict[str, Any]) -> str:
    """Sign the document, without the signature itself, with the installation's secret key."""
    signed = {name: value for name, value in document.items() if name != "signature"}
    text = json.dumps(signed, sort_keys=True)
    return salted_hmac("escalation.handoff", text, algorithm="sha256").hexdigest()


def _run(session: Session) -> dict[str, Any]:
    return {
        "session": session.pk,
        "tier": session.tier,
        "ended_as": session.status,
        "report": _fitting(redacted_data(session.report)),
        "error": _cut(redacted(session.error[:RECORD_LENGTH]), OUTPUT_LENGTH),
    }


def _fitting(value: Any) -> Any:
    """Cut long texts and lists inside a report."""
    if isinstance(value, str):
        return _cut(value, OUTPUT_LENGTH)
    if isinstance(value, list):
        return [_fitting(item) for item in value[:LIST_LENGTH]]
    if isinstance(value, dict):
        return {key: _fitting(item) for key, item in value.items()}
    return value


def _chosen_calls(path: Sequence[Session]) -> list[dict[str, Any]]:
    calls = [(session.tier, call) for session in path for call in tool_calls(session.events.all())]
    newest_first = list(reversed(calls))
    ordered = [entry for entry in newest_first if entry[1].is_error] + [
        entry for entry in newest_first if not entry[1].is_error
    ]
    chosen: list[dict[str, Any]] = []
    left = RECORD_LENGTH
    for tier, call in ordered:
        shown = _shown_call(tier, call)
        left -= len(json.dumps(shown))
        if left < 0:
            break
        chosen.append(shown)
    return chosen


def _shown_call(tier: int, call: ToolCall) -> dict[str, Any]:
    return {
        "tier": tier,
        "tool": call.name,
        "input": _cut(redacted(call.normalised[:RECORD_LENGTH]), INPUT_LENGTH),
        "failed": call.is_error,
        # More is redacted than is shown, so that no secret is cut in half and missed.
        "output": _cut(redacted(call.output[:RECORD_LENGTH]), OUTPUT_LENGTH),
    }


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + f"… ({len(text) - length} more)"


def file_for(parent: Session) -> Path:
    name = f"cycle-{parent.cycle_id}-session-{parent.pk}.json"
    return Path(settings.CLAUDEOPS_STATE_DIR) / "handoffs" / name


def write(document: dict[str, Any], parent: Session) -> Path:
    path = file_for(parent)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    draft = path.with_suffix(".draft")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        json.dump(document, file)
    draft.replace(path)
    return path


def read_once(parent: Session) -> dict[str, Any]:
    """Read and check the handoff file; it is removed in any case."""
    path = file_for(parent)
    try:
        return checked(_loaded(path), parent)
    finally:
        path.unlink(missing_ok=True)


def discard(parent: Session) -> bool:
    """Remove the handoff file; return whether there was one."""
    try:
        file_for(parent).unlink()
    except FileNotFoundError:
        return False
    return True


def _loaded(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise HandoffRefused(
                HandoffProblem.TOO_LARGE, f"it has {size} bytes, more than {MAX_FILE_BYTES}"
            )
        return json.loads(path.read_bytes())
    except OSError as error:
        raise HandoffRefused(
            HandoffProblem.UNREADABLE, f"it cannot be read: {error.strerror}"
        ) from error
    except (ValueError, RecursionError) as error:
        raise HandoffRefused(HandoffProblem.NOT_JSON, "it is not JSON") from error


def checked(document: Any, parent: Session) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("content"), dict):
        raise HandoffRefused(HandoffProblem.NOT_A_HANDOFF, "it is not a handoff document")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise HandoffRefused(
            HandoffProblem.VERSION, f"its schema_version is {document.get('schema_version')!r}"
        )
    if document.get("cycle") != parent.cycle_id or document.get("source_session") != parent.pk:
        raise HandoffRefused(HandoffProblem.OTHER_SESSION, "it belongs to another cycle or session")
    _check_age(document.get("created_at"))
    if not constant_time_compare(str(document.get("signature")), signature_of(document)):
        raise HandoffRefused(HandoffProblem.SIGNATURE, "it was not signed by this installation")
    return document


def _check_age(created_at: Any) -> None:
    try:
        age = timezone.now() - datetime.fromisoformat(str(created_at))
    except (ValueError, TypeError) as error:
        raise HandoffRefused(
            HandoffProblem.NO_TIME, "it does not say when it was written"
        ) from error
    if age > MAX_AGE or age < -CLOCK_SLACK:
        raise HandoffRefused(
            HandoffProblem.AGE, f"it was written at {created_at}, too long ago to be this one"
        )
