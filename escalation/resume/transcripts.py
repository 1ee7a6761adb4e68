"""Copies transcripts between the CLI's directory and the archive.

The CLI keeps a conversation in a file on its host, named after the working directory, and deletes
it after some time. After every session the file is archived in the database, which all hosts
share; it is restored before a tier resumes a conversation on a host that lacks it.

The newer copy is the one with more entries, never the one with a later time: clocks differ.
"""

from __future__ import annotations

import logging
import shutil
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from django.db.models import Exists, OuterRef

from escalation.agent import stream as shape
from escalation.agent import transcript_files as files
from escalation.agent.stream import occupancy_of
from escalation.agent.transcript_files import Entry
from escalation.resume.guards import CONVERSATION_ID
from sessions_app.archive import transcripts as store
from sessions_app.archive.transcripts import TranscriptDamaged, TranscriptLocked
from sessions_app.models import Session
from sessions_app.models.session import SessionQuerySet

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey


logger = logging.getLogger(__name__)


class TranscriptState(StrEnum):
    PRESENT = "present"
    MISSING = "missing"
    EMPTY = "empty"
    """A file without a message, in which the CLI finds no conversation."""
    UNREADABLE = "unreadable"
    """The file belongs to another user, or is not a regular file."""


def find_on_disk(session: Session, config_dir: Path | None = None) -> TranscriptState:
    """State of the transcript on this host, in the session's configuration or another one."""
    path = _path_of(session, config_dir)
    return TranscriptState.MISSING if path is None else _state_of(path)


def is_archived(session_id: str) -> bool:
    return store.latest_project(session_id) is not None


def without_archive(sessions: SessionQuerySet) -> SessionQuerySet:
    """Sessions whose conversation is not archived, in one query."""
    return sessions.exclude(session_id="").exclude(Exists(store.copies_of(OuterRef("session_id"))))


def archive(session: Session) -> int:
    """Archive new entries of the transcript, its subagents and its long outputs.

    Return the number of entries stored. Errors in a file are logged and skip only that file. The
    transcript of an ephemeral cycle is deleted instead.
    """
    path = _path_of(session)
    if path is None:
        return 0
    if session.cycle.ephemeral:
        _forget(path)
        return 0
    stored = 0
    directory = path.with_suffix("")
    for subpath, file in [("", path), *files.companions(directory)]:
        if subpath and not files.is_safe_subpath(subpath):
            logger.warning("Session %s: cannot archive the file name %r", session.pk, subpath)
            continue
        try:
            stored += _archive_file(_key(path.parent.name, session.session_id, subpath), file)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("Session %s: could not archive %s: %s", session.pk, file, error)
    return stored


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    shutil.rmtree(path.with_suffix(""), ignore_errors=True)


def restore(session: Session, config_dir: Path) -> bool:
    """Write the archived conversation to where a CLI with this configuration looks for it.

    Return whether a complete copy is there now; without one it must not be resumed here.
    """
    path = _path_of(session, config_dir)
    project = store.latest_project(session.session_id)
    if path is None or project is None:
        return False
    try:
        entries = store.load_entries(_key(project, session.session_id)) or []
        if not any(files.is_message(entry) for entry in entries):
            return False
        _restore_companions(project, session.session_id, path.with_suffix(""))
        if _archive_is_ahead(path, entries):
            files.write_entries(path, entries)
    except (TranscriptDamaged, OSError) as error:
        logger.warning("Session %s: could not restore its transcript: %s", session.pk, error)
        return False
    return True


def cost_state_total(session: Session) -> Decimal | None:
    """Total cost of the conversation as newer CLIs write it; None where they do not."""
    path = _path_of(session)
    if path is not None:
        try:
            total = files.total_cost_in(files.cost_entries_in(path))
        except OSError:
            total = None
        if total is not None:
            return total
    return _archived_total(session.session_id)


def occupancy(session: Session) -> int:
    """Context tokens of the conversation, by the copy here or the archived one, or 0."""
    return occupancy_of(messages_on_disk(session) or _archived_entries(session.session_id))


def messages_on_disk(session: Session) -> list[Entry]:
    """Messages of the transcript on this host, in order, without an incomplete last line."""
    path = _path_of(session)
    if path is None:
        return []
    try:
        entries, _broken = files.whole_entries(path)
    except OSError:
        return []
    return [entry for entry in entries if files.is_message(entry)]


def _path_of(session: Session, config_dir: Path | None = None) -> Path | None:
    if config_dir is None and not session.config_dir:
        return None
    if not session.workdir or not CONVERSATION_ID.fullmatch(session.session_id):
        return None
    return files.transcript_path(
        config_dir or Path(session.config_dir), session.workdir, session.session_id
    )


def _state_of(path: Path) -> TranscriptState:
    try:
        for line in files.read_lines(path):
            entry = files.entry_in(line)
            if entry is not None and files.is_message(entry):
                return TranscriptState.PRESENT
    except (FileNotFoundError, NotADirectoryError):
        return TranscriptState.MISSING
    except OSError as error:
        logger.warning("Could not read %s: %s", path, error)
        return TranscriptState.UNREADABLE
    return TranscriptState.EMPTY


def _archive_file(key: SessionKey, path: Path) -> int:
    subpath = key.get("subpath", "")
    entries, unreadable = (
        files.companion_entries(subpath, path) if subpath else files.whole_entries(path)
    )
    if unreadable:
        logger.warning(
            "%s: %s of %s lines are not readable", path, unreadable, unreadable + len(entries)
        )
    try:
        return store.append_missing(key, entries)
    except TranscriptLocked as error:
        logger.error("%s: not archived, because the archived copy is locked: %s", path, error)
        return 0
    except TranscriptDamaged as error:
        logger.warning("%s: archived again, because the archived copy is damaged: %s", path, error)
        store.delete_transcript(key, alone=True)
        return store.append_missing(key, entries)


def _archive_is_ahead(path: Path, archived: list[Entry]) -> bool:
    """Return whether restoring adds entries and loses none; an unreadable file raises OSError."""
    state = _state_of(path)
    if state in (TranscriptState.MISSING, TranscriptState.EMPTY):
        return True
    on_disk, _unreadable = files.whole_entries(path)
    return _is_ahead(archived, on_disk)


def _is_ahead(archived: list[Entry], on_disk: list[Entry]) -> bool:
    lost = store.missing_from(archived, on_disk)
    return not lost and bool(store.missing_from(on_disk, archived))


def _restore_companions(project: str, session_id: str, directory: Path) -> None:
    """Restore the companion files; called before the transcript that refers to them."""
    for row in store.subtranscripts(project, session_id):
        if not files.is_safe_subpath(row.subpath):
            logger.warning("%s: not restored, because its name leads out of the directory", row)
            continue
        archived = store.load_entries(_key(project, session_id, row.subpath)) or []
        there = dict(files.companions(directory)).get(row.subpath)
        on_disk = files.companion_entries(row.subpath, there)[0] if there else []
        if _is_ahead(archived, on_disk):
            files.write_companion(directory, row.subpath, archived)


def _archived_total(session_id: str) -> Decimal | None:
    return files.total_cost_in(_archived_entries(session_id))


def _archived_entries(session_id: str) -> list[Entry]:
    project = store.latest_project(session_id)
    if project is None:
        return []
    try:
        return store.load_entries(_key(project, session_id)) or []
    except TranscriptDamaged as error:
        logger.warning("The archived copy of %s is damaged: %s", session_id, error)
        return []


def _key(project_key: str, session_id: str, subpath: str = "") -> SessionKey:
    key: SessionKey = {"project_key": project_key, "session_id": session_id}
    if subpath:
        key["subpath"] = subpath
    return key


def own_and_unheard(session: Session) -> tuple[list[Entry], list[Entry]]:
    """Messages of this session in its transcript, and those that are not among its events."""
    heard = {
        str(payload.get("uuid"))
        for payload in session.events.values_list("payload", flat=True)
        if isinstance(payload, dict)
    }
    own = own_messages(session)
    return own, [entry for entry in own if str(entry.get("uuid")) not in heard]


def is_torn(session: Session, heard: set[str]) -> bool:
    """Return whether the transcript lacks calls of the stream or of its parent's transcript.

    A CLI that was killed, or whose disk was full, has not written them, and a tier that resumes
    would not know of them. A guard covers the case without any transcript.
    """
    entries = messages_on_disk(session)
    parent = session.parent_session if session.resumed else None
    inherited = _calls_in(messages_on_disk(parent)) if parent is not None else set()
    return bool(entries) and not heard | inherited <= _calls_in(entries)


def _calls_in(entries: list[Entry]) -> set[str]:
    return {call for entry in entries for call in shape.begun_calls(entry)}


def own_messages(session: Session) -> list[Entry]:
    """Messages of this session only.

    Left out are the copy of the parent's messages with which a fork begins, prompts, and messages
    that the CLI adds by itself, such as a result for a call that an earlier session left open.
    """
    began = (session.started_at or session.created_at).isoformat()
    recent = [
        entry
        for entry in messages_on_disk(session)
        if str(entry.get("timestamp", "")).replace("Z", "+00:00") >= began
    ]
    called = {
        call for entry in recent if shape.is_answer(entry) for call in shape.begun_calls(entry)
    }
    return [
        entry for entry in recent if shape.is_answer(entry) or called & shape.answered_calls(entry)
    ]
