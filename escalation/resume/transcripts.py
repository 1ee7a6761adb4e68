"""Transcripts between the CLI's directory and the archive.

The CLI keeps a conversation in a file of its own host, under a name made from the working
directory, and deletes it some day. After every run it is archived in the database, which every host
shares; before a tier continues a conversation that is not here, it is restored.

"Newer" is decided by content, never by time: a copy is ahead when it holds an entry that the other
one lacks. Clocks of hosts differ, and may be set back.
"""

from __future__ import annotations

import logging
import shutil
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from django.db.models import Exists, OuterRef

from escalation.agent import Entry, occupancy_of
from escalation.agent import transcript_files as files
from escalation.continuity.guards import CONVERSATION_ID
from sessions_app.archive import transcript_store as store
from sessions_app.archive.transcript_chunks import TranscriptDamaged, TranscriptLocked
from sessions_app.models import Session
from sessions_app.models.querysets import SessionQuerySet

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey

logger = logging.getLogger(__name__)


class TranscriptState(StrEnum):
    PRESENT = "present"
    MISSING = "missing"
    EMPTY = "empty"
    """A file without a single message, in which the CLI finds no conversation."""
    UNREADABLE = "unreadable"
    """It belongs to another user, or is no plain file."""


def find_on_disk(session: Session, config_dir: Path | None = None) -> TranscriptState:
    """What the CLI would find here, in the session's own configuration or in another one."""
    path = _path_of(session, config_dir)
    return TranscriptState.MISSING if path is None else _state_of(path)


def is_archived(session_id: str) -> bool:
    return store.latest_project(session_id) is not None


def without_archive(sessions: SessionQuerySet) -> SessionQuerySet:
    """Those whose conversation has no copy yet, in one question to the database."""
    return sessions.exclude(session_id="").exclude(Exists(store.copies_of(OuterRef("session_id"))))


def archive(session: Session) -> int:
    """Copy what is new of the transcript, its subagents and its long outputs. Gives the number of
    entries stored. Whatever is wrong with a file is logged and costs only the lines it concerns.
    Of a run that is not kept nothing is copied, and what the CLI has saved all the same goes.
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
            logger.warning("Session %s: %r is no name that can be archived", session.pk, subpath)
            continue
        try:
            stored += _archive_file(_key(path.parent.name, session.session_id, subpath), file)
        except FileNotFoundError:
            continue
        except OSError as error:
            logger.warning("Session %s: %s cannot be archived: %s", session.pk, file, error)
    return stored


def _forget(path: Path) -> None:
    path.unlink(missing_ok=True)
    shutil.rmtree(path.with_suffix(""), ignore_errors=True)


def restore(session: Session, config_dir: Path) -> bool:
    """Put the archived conversation where a CLI with this configuration looks for it.

    True: it is there now, complete, because it was restored or because a copy that is as good was
    there before. False: do not resume it here.
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
        logger.warning("Session %s: its transcript cannot be restored: %s", session.pk, error)
        return False
    return True


def cost_state_total(session: Session) -> Decimal | None:
    """The conversation's total so far, as newer CLIs write it down; None where they do not."""
    path = _path_of(session)
    if path is not None:
        try:
            total = files.total_in_books(files.books_on_disk(path))
        except OSError:
            total = None
        if total is not None:
            return total
    return _archived_total(session.session_id)


def occupancy(session: Session) -> int:
    """The tokens that the conversation fills, by its copy here or by the archived one; 0 where
    neither tells."""
    return occupancy_of(messages_on_disk(session) or _archived_entries(session.session_id))


def messages_on_disk(session: Session) -> list[Entry]:
    """The messages that the CLI has written down here, in order; half a line at the end is left."""
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
        logger.warning("%s cannot be read: %s", path, error)
        return TranscriptState.UNREADABLE
    return TranscriptState.EMPTY


def _archive_file(key: SessionKey, path: Path) -> int:
    subpath = key.get("subpath", "")
    entries, unreadable = (
        files.companion_entries(subpath, path) if subpath else files.whole_entries(path)
    )
    if unreadable:
        logger.warning(
            "%s: %s of %s lines cannot be read", path, unreadable, unreadable + len(entries)
        )
    try:
        return store.append_missing(key, entries)
    except TranscriptLocked as error:
        logger.error("%s: not archived, because the copy is locked: %s", path, error)
        return 0
    except TranscriptDamaged as error:
        logger.warning("%s: archived again, because the copy is damaged: %s", path, error)
        store.delete_transcript(key, alone=True)
        return store.append_missing(key, entries)


def _archive_is_ahead(path: Path, archived: list[Entry]) -> bool:
    """Whether writing loses nothing and gains something. An unreadable file raises OSError."""
    state = _state_of(path)
    if state in (TranscriptState.MISSING, TranscriptState.EMPTY):
        return True
    on_disk, _unreadable = files.whole_entries(path)
    return _is_ahead(archived, on_disk)


def _is_ahead(archived: list[Entry], on_disk: list[Entry]) -> bool:
    lost = store.missing_from(archived, on_disk)
    return not lost and bool(store.missing_from(on_disk, archived))


def _restore_companions(project: str, session_id: str, directory: Path) -> None:
    """Before the transcript itself: where that is, all that it speaks of is there too."""
    for row in store.subtranscripts(project, session_id):
        if not files.is_safe_subpath(row.subpath):
            logger.warning("%s: not restored, its name leads elsewhere", row)
            continue
        archived = store.load_entries(_key(project, session_id, row.subpath)) or []
        there = dict(files.companions(directory)).get(row.subpath)
        on_disk = files.companion_entries(row.subpath, there)[0] if there else []
        if _is_ahead(archived, on_disk):
            files.write_companion(directory, row.subpath, archived)


def _archived_total(session_id: str) -> Decimal | None:
    return files.total_in_books(_archived_entries(session_id))


def _archived_entries(session_id: str) -> list[Entry]:
    project = store.latest_project(session_id)
    if project is None:
        return []
    try:
        return store.load_entries(_key(project, session_id)) or []
    except TranscriptDamaged as error:
        logger.warning("The archived copy of %s says nothing: %s", session_id, error)
        return []


def _key(project_key: str, session_id: str, subpath: str = "") -> SessionKey:
    key: SessionKey = {"project_key": project_key, "session_id": session_id}
    if subpath:
        key["subpath"] = subpath
    return key
