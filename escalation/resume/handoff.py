"""The handoff: what a tier is told when it cannot have the conversation.

The supervisor builds it from its own record, so it costs no model call: reports first, then tool
calls with their outputs, failing and newest before the rest, cut to a budget, secrets masked. It
passes through a file that is written and read by the supervisor alone, before the next agent is
started: keyed, checked on reading, used once, kept on the session, and removed. A file that is
there before it was written is nobody's word and is removed unread.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from sessions_app.models import Session
from sessions_app.reading.masking import masked, masked_data
from sessions_app.reading.tool_calls import ToolCall, tool_calls

SCHEMA_VERSION = 2
MAX_FILE_BYTES = 1024 * 1024
RECORD_LENGTH = 24_000
OUTPUT_LENGTH = 1_500
INPUT_LENGTH = 500
LIST_LENGTH = 40
MAX_AGE = timedelta(hours=1)
# A clock that was set back must not make a file of a moment ago look wrong.
CLOCK_SLACK = timedelta(hours=2)


class HandoffRefused(Exception):
    """The file must not be used; the message says why."""


def build(path: Sequence[Session]) -> dict[str, Any]:
    """The record of everything that led to the last session of the path, its own run included."""
    parent = path[-1]
    content = {
        "runs": [_run(session) for session in path],
        "tool_calls": _chosen_calls(path),
        "findings": _cut(masked(_findings(path)[: 2 * RECORD_LENGTH]), RECORD_LENGTH),
    }
    document = {
        "schema_version": SCHEMA_VERSION,
        "cycle": parent.cycle_id,
        "source_session": parent.pk,
        "created_at": timezone.now().isoformat(),
        "content": content,
    }
    return {**document, "seal": seal_of(document)}


def _findings(path: Sequence[Session]) -> str:
    """What an agent on the path wrote down itself, the last one that did."""
    return next((session.findings for session in reversed(path) if session.findings), "")


def is_thin(document: dict[str, Any]) -> bool:
    """Nothing in it that the next tier could start from: no report, no tool call, no findings."""
    content = document["content"]
    reported = any(run["report"] for run in content["runs"])
    return not (reported or content["tool_calls"] or content["findings"])


def seal_of(document: dict[str, Any]) -> str:
    """Over everything but itself. Only who has this installation's secret key can make it."""
    sealed = {name: value for name, value in document.items() if name != "seal"}
    text = json.dumps(sealed, sort_keys=True)
    return salted_hmac("escalation.handoff", text, algorithm="sha256").hexdigest()


def _run(session: Session) -> dict[str, Any]:
    return {
        "session": session.pk,
        "tier": session.tier,
        "ended_as": session.status,
        "report": _fitting(masked_data(session.report)),
        "error": _cut(masked(session.error[:RECORD_LENGTH]), OUTPUT_LENGTH),
    }


def _fitting(value: Any) -> Any:
    """A report of any size, cut so that its beginning can be read."""
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
    room = RECORD_LENGTH
    for tier, call in ordered:
        shown = _shown_call(tier, call)
        room -= len(json.dumps(shown))
        if room < 0:
            break
        chosen.append(shown)
    return chosen


def _shown_call(tier: int, call: ToolCall) -> dict[str, Any]:
    return {
        "tier": tier,
        "tool": call.name,
        "input": _cut(masked(call.normalised[:RECORD_LENGTH]), INPUT_LENGTH),
        "failed": call.is_error,
        # More than is shown is masked, so that no secret is cut in half and missed.
        "output": _cut(masked(call.output[:RECORD_LENGTH]), OUTPUT_LENGTH),
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
    """The checked document; the file is gone afterwards, used or refused."""
    path = file_for(parent)
    try:
        return checked(_loaded(path), parent)
    finally:
        path.unlink(missing_ok=True)


def discard(parent: Session) -> bool:
    """Remove what lies there; True if something did."""
    try:
        file_for(parent).unlink()
    except FileNotFoundError:
        return False
    return True


def _loaded(path: Path) -> Any:
    try:
        size = path.stat().st_size
        if size > MAX_FILE_BYTES:
            raise HandoffRefused(f"it has {size} bytes, more than {MAX_FILE_BYTES}")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise HandoffRefused(f"it cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise HandoffRefused("it is not JSON") from error


def checked(document: Any, parent: Session) -> dict[str, Any]:
    if not isinstance(document, dict) or not isinstance(document.get("content"), dict):
        raise HandoffRefused("it does not have the shape of a handoff")
    if document.get("schema_version") != SCHEMA_VERSION:
        raise HandoffRefused(f"its schema_version is {document.get('schema_version')!r}")
    if document.get("cycle") != parent.cycle_id or document.get("source_session") != parent.pk:
        raise HandoffRefused("it belongs to another cycle or session")
    _check_age(document.get("created_at"))
    if not constant_time_compare(str(document.get("seal")), seal_of(document)):
        raise HandoffRefused("it was not sealed by this installation")
    return document


def _check_age(created_at: Any) -> None:
    try:
        age = timezone.now() - datetime.fromisoformat(str(created_at))
    except (ValueError, TypeError) as error:
        raise HandoffRefused("it does not say when it was written") from error
    if age > MAX_AGE or age < -CLOCK_SLACK:
        raise HandoffRefused(f"it was written at {created_at}, too long ago to be this one")
