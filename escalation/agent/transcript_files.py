"""Transcript files of the CLI: validated when read, replaced as a whole when written."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

from escalation.agent.stream import parse_line, to_cost

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
