"""Copies transcripts between the CLI's directory and the archive.

The CLI keeps a conversation in a file on its host, named after the working directory, and deletes
it after some time. After every session the file is archived in the database, which all hosts
share; it is restored before a tier resumes a conversation on a host that lacks it.

The newer copy is the one with more entries, never the one with a later time: clocks differ.
The files of the CLI are validated when they are read, and replaced as a whole when written.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from django.db.models import Exists, OuterRef

from escalation.agent import stream as shape
from escalation.agent.stream import occupancy_of, parse_line, to_cost
from sessions_app.archive import transcripts as store
from sessions_app.archive.transcripts import TranscriptDamaged, TranscriptLocked
from sessions_app.history.resume import CONVERSATION_ID
from sessions_app.models import Session
from sessions_app.models.session import SessionQuerySet

if TYPE_CHECKING:
    from claude_agent_sdk.types import SessionKey

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 512 * 1024 * 1024
MAX_SUBPATH = 300

SUBAGENTS = "subagents"
TOOL_RESULTS = "tool-results"
AGENT_METADATA = "agent_metadata"
"""The SDK's type of the entry for the `.meta.json` of a subagent."""
TOOL_RESULT_FILE = "claudeops_tool_result_file"
"""Our type of the entry for a long output, which the CLI stores in a file of its own."""

Entry = dict[str, Any]


def transcript_path(config_dir: Path, workdir: str | Path, session_id: str) -> Path:
    """Return the path of a conversation. Links in the working directory are followed."""
    # Imported here because the SDK takes 35 MB.
    from claude_agent_sdk import project_key_for_directory

    return config_dir / "projects" / project_key_for_directory(workdir) / f"{session_id}.jsonl"


def whole_entries(path: Path) -> tuple[list[Entry], int]:
    """Return the valid entries and the number of invalid lines."""
    entries: list[Entry] = []
    unreadable = 0
    for line in read_lines(path):
        entry = entry_in(line)
        if entry is None:
            unreadable += 1
        else:
            entries.append(entry)
    return entries, unreadable


def entry_in(line: bytes) -> Entry | None:
    """Parse a line without changes, so that it can be written back."""
    if parse_line(line).is_noise:
        return None
    try:
        entry: Entry = json.loads(line.decode("utf-8", "replace"), parse_float=_finite)
    except ValueError:
        return None
    return entry


def read_lines(path: Path) -> Iterator[bytes]:
    with _opened(path) as file:
        for line in file:
            if line.strip():
                yield line


def is_message(entry: Entry) -> bool:
    """Return whether this is an entry that the CLI needs to find a conversation."""
    return entry.get("type") in ("user", "assistant") and isinstance(entry.get("uuid"), str)


def cost_entries_in(path: Path) -> Iterator[Entry]:
    """Yield the entries in which newer CLIs keep the total cost of the conversation."""
    for line in read_lines(path):
        if b'"cost-state"' in line and (entry := entry_in(line)) is not None:
            yield entry


def total_cost_in(entries: Iterable[Entry]) -> Decimal | None:
    """Return the last stated total cost."""
    total = None
    for entry in entries:
        if entry.get("type") == "cost-state":
            stated = to_cost(entry.get("totalCostUSD"))
            total = total if stated is None else stated
    return total


def companions(session_directory: Path) -> Iterator[tuple[str, Path]]:
    """Yield files of subagents and long tool outputs, each with its subpath."""
    for path in _files_under(session_directory / SUBAGENTS):
        if path.suffix == ".jsonl":
            yield path.relative_to(session_directory).with_suffix("").as_posix(), path
    for path in _files_under(session_directory / TOOL_RESULTS):
        yield path.relative_to(session_directory).as_posix(), path


def companion_entries(subpath: str, path: Path) -> tuple[list[Entry], int]:
    if not subpath.startswith(f"{SUBAGENTS}/"):
        return [{"type": TOOL_RESULT_FILE, "text": _read_text(path)}], 0
    entries, unreadable = whole_entries(path)
    if meta := _read_object(_sidecar(path)):
        entries.append({**meta, "type": AGENT_METADATA})
    return entries, unreadable


def write_companion(session_directory: Path, subpath: str, entries: list[Entry]) -> None:
    """Write the file of a subpath. Of entries that replace each other the last one counts."""
    path = session_directory / subpath
    if not subpath.startswith(f"{SUBAGENTS}/"):
        write_atomically(path, [entries[-1]["text"].encode("utf-8", "surrogateescape")])
        return
    transcript = path.with_name(path.name + ".jsonl")
    meta = [entry for entry in entries if entry.get("type") == AGENT_METADATA]
    if meta:
        content = {name: value for name, value in meta[-1].items() if name != "type"}
        write_atomically(_sidecar(transcript), [json.dumps(content).encode()])
    write_entries(transcript, [entry for entry in entries if entry.get("type") != AGENT_METADATA])


def is_safe_subpath(subpath: str) -> bool:
    """Return whether a subpath stays in the directory of its session."""
    parts = subpath.split("/")
    return (
        parts[0] in (SUBAGENTS, TOOL_RESULTS)
        and len(parts) > 1
        and not {"", ".", ".."} & set(parts)
        and subpath.isprintable()
        and len(subpath) <= MAX_SUBPATH
    )


def write_entries(path: Path, entries: Iterable[Entry]) -> None:
    write_atomically(
        path, (json.dumps(entry, separators=(",", ":")).encode() + b"\n" for entry in entries)
    )


def write_atomically(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that only its owner can read, and rename it when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, unfinished = tempfile.mkstemp(dir=path.parent, prefix=".restoring-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        os.unlink(unfinished)
        raise


def _opened(path: Path) -> IO[bytes]:
    """Open a regular file without following links: an agent can write here."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    facts = os.fstat(handle)
    if not stat.S_ISREG(facts.st_mode) or facts.st_size > MAX_FILE_BYTES:
        os.close(handle)
        raise OSError(errno.EFBIG, "not a plain file, or longer than any transcript", str(path))
    return os.fdopen(handle, "rb")


def _files_under(directory: Path) -> Iterator[Path]:
    for folder, _folders, names in sorted(os.walk(directory)):
        for name in sorted(names):
            if not name.startswith("."):
                yield Path(folder, name)


def _read_text(path: Path) -> str:
    """Read any bytes as text that can be written back unchanged."""
    with _opened(path) as file:
        return file.read().decode("utf-8", "surrogateescape")


def _read_object(path: Path) -> Entry | None:
    try:
        return entry_in(_read_text(path).encode("utf-8", "surrogateescape"))
    except OSError:
        return None


def _sidecar(transcript: Path) -> Path:
    return transcript.with_name(transcript.name.removesuffix(".jsonl") + ".meta.json")


def _finite(number: str) -> float:
    """Refuse numbers that JSON cannot hold: they would make the whole file unreadable."""
    value = float(number)
    if math.isinf(value):
        raise ValueError(f"{number[:20]} is too large")
    return value


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
    for subpath, file in [("", path), *companions(directory)]:
        if subpath and not is_safe_subpath(subpath):
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
        if not any(is_message(entry) for entry in entries):
            return False
        _restore_companions(project, session.session_id, path.with_suffix(""))
        if _archive_is_ahead(path, entries):
            write_entries(path, entries)
    except (TranscriptDamaged, OSError) as error:
        logger.warning("Session %s: could not restore its transcript: %s", session.pk, error)
        return False
    return True


def cost_state_total(session: Session) -> Decimal | None:
    """Total cost of the conversation as newer CLIs write it; None where they do not."""
    path = _path_of(session)
    if path is not None:
        try:
            total = total_cost_in(cost_entries_in(path))
        except OSError:
            total = None
        if total is not None:
            return total
    return total_cost_in(_archived_entries(session.session_id))


def occupancy(session: Session) -> int:
    """Context tokens of the conversation, by the copy here or the archived one, or 0."""
    return occupancy_of(messages_on_disk(session) or _archived_entries(session.session_id))


def messages_on_disk(session: Session) -> list[Entry]:
    """Messages of the transcript on this host, in order, without an incomplete last line."""
    path = _path_of(session)
    if path is None:
        return []
    try:
        entries, _broken = whole_entries(path)
    except OSError:
        return []
    return [entry for entry in entries if is_message(entry)]


def _path_of(session: Session, config_dir: Path | None = None) -> Path | None:
    if config_dir is None and not session.config_dir:
        return None
    if not session.workdir or not CONVERSATION_ID.fullmatch(session.session_id):
        return None
    return transcript_path(
        config_dir or Path(session.config_dir), session.workdir, session.session_id
    )


def _state_of(path: Path) -> TranscriptState:
    try:
        for line in read_lines(path):
            entry = entry_in(line)
            if entry is not None and is_message(entry):
                return TranscriptState.PRESENT
    except (FileNotFoundError, NotADirectoryError):
        return TranscriptState.MISSING
    except OSError as error:
        logger.warning("Could not read %s: %s", path, error)
        return TranscriptState.UNREADABLE
    return TranscriptState.EMPTY


def _archive_file(key: SessionKey, path: Path) -> int:
    subpath = key.get("subpath", "")
    entries, unreadable = companion_entries(subpath, path) if subpath else whole_entries(path)
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
    on_disk, _unreadable = whole_entries(path)
    return _is_ahead(archived, on_disk)


def _is_ahead(archived: list[Entry], on_disk: list[Entry]) -> bool:
    lost = store.missing_from(archived, on_disk)
    return not lost and bool(store.missing_from(on_disk, archived))


def _restore_companions(project: str, session_id: str, directory: Path) -> None:
    """Restore the companion files; called before the transcript that refers to them."""
    for row in store.subtranscripts(project, session_id):
        if not is_safe_subpath(row.subpath):
            logger.warning("%s: not restored, because its name leads out of the directory", row)
            continue
        archived = store.load_entries(_key(project, session_id, row.subpath)) or []
        there = dict(companions(directory)).get(row.subpath)
        on_disk = companion_entries(row.subpath, there)[0] if there else []
        if _is_ahead(archived, on_disk):
            write_companion(directory, row.subpath, archived)


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


def _messages_beside(session: Session) -> list[Entry]:
    """Messages of every conversation that was written since the session began, each once."""
    path = _path_of(session)
    if path is None:
        return []
    began = (session.started_at or session.created_at).timestamp()
    found: dict[str, Entry] = {}
    for each in sorted(path.parent.glob("*.jsonl"), key=lambda each: each != path):
        with contextlib.suppress(OSError):
            if each.stat().st_mtime >= began:
                entries, _broken = whole_entries(each)
                found = {str(e.get("uuid")): e for e in entries if is_message(e)} | found
    return sorted(found.values(), key=lambda entry: str(entry.get("timestamp", "")))


def transcript_state(session: Session) -> tuple[tuple[str, int, int], ...]:
    """Return a value that changes when the CLI writes to a conversation of the session."""
    path = _path_of(session)
    if path is None:
        return ()
    found = []
    for each in sorted(path.parent.glob("*.jsonl")):
        with contextlib.suppress(OSError):
            state = each.stat()
            found.append((each.name, state.st_size, state.st_mtime_ns))
    return tuple(found)


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

    In a terminal a person gives the prompts, and can begin other conversations, with `/clear`.
    """
    began = (session.started_at or session.created_at).isoformat()
    entries = _messages_beside(session) if session.is_interactive else messages_on_disk(session)
    recent = [
        entry
        for entry in entries
        if str(entry.get("timestamp", "")).replace("Z", "+00:00") >= began
    ]
    if session.is_interactive:
        return [entry for entry in recent if not entry.get("isMeta")]
    called = {
        call for entry in recent if shape.is_answer(entry) for call in shape.begun_calls(entry)
    }
    return [
        entry for entry in recent if shape.is_answer(entry) or called & shape.answered_calls(entry)
    ]
