"""Undoes an edit: puts the content before it back, if the file has not been changed since."""

from __future__ import annotations

import difflib
import os
import secrets
import socket
import zlib
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from escalation.errors import OperationRefused, RefusalCode
from escalation.sandbox.edited_files import ABSENT, content_at, digest_of, parent_of
from sessions_app.history.commands import read_sandbox
from sessions_app.models import Change
from sessions_app.models.session import EventKind
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, decrypt
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean, cut

LONGEST_DIFFERENCE = 20_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Undo:
    """Effect that undoing a change would have now."""

    objection: str
    """Why it cannot be undone; empty if it can."""
    code: RefusalCode | None
    difference: tuple[str, ...]
    """Redacted lines of a unified diff from the file as it is to the content before the edit."""


def undo_now(change: Change) -> Undo:
    """Look at the file of a change, and change nothing."""
    try:
        before = _content_before(change)
        with parent_of(_path(change), _roots(change)) as (directory, name):
            now = _content_now(directory, name)
    except OperationRefused as refused:
        return Undo(objection=str(refused), code=refused.code, difference=())
    except OSError as problem:
        unreachable = _unreachable(change, problem)
        return Undo(objection=str(unreachable), code=unreachable.code, difference=())
    objection = _objection(change, now)
    return Undo(
        objection=str(objection or ""),
        code=objection.code if objection else None,
        difference=_difference(now, before),
    )


def undo(change: Change, *, by: User | None, way: str) -> None:
    """Put the content before an edit back, and record who did. Raise OperationRefused."""
    with transaction.atomic():
        claimed = Change.objects.filter(pk=change.pk, undone_at=None)
        if not claimed.update(undone_at=timezone.now(), undone_by=by):
            raise _already_undone(change)
        try:
            before = _content_before(change)
            with parent_of(_path(change), _roots(change)) as (directory, name):
                if objection := _objection(change, _content_now(directory, name)):
                    raise objection
                _put_back(directory, name, before)
        except OSError as problem:
            raise _unreachable(change, problem) from problem
        change.refresh_from_db()
        _record(change, way)


def _content_before(change: Change) -> bytes | None:
    """Return the content before the edit; None if the file did not exist."""
    if change.undone_at is not None:
        raise _already_undone(change)
    if not change.can_be_undone:
        raise OperationRefused(RefusalCode.CHANGE_NOT_KEPT, NOT_KEPT)
    if change.session.host != socket.gethostname():
        raise OperationRefused(
            RefusalCode.OTHER_HOST,
            f"The file is on the host {change.session.host}: run `claudeops change undo "
            f"{change.pk}` there.",
        )
    kept = change.before_content
    if kept is None:
        return None
    try:
        return zlib.decompress(decrypt(bytes(kept.content), str(kept)))
    except (EncryptedWithAnotherKey, ValueError, zlib.error) as problem:
        raise OperationRefused(RefusalCode.CHANGE_NOT_KEPT, str(problem)) from problem


NOT_KEPT = (
    "The content before this change is not kept, so it cannot be undone here. Its diff shows what "
    "was changed."
)


def _already_undone(change: Change) -> OperationRefused:
    return OperationRefused(
        RefusalCode.CHANGE_UNDONE, f"Change {change.pk} has been undone already."
    )


def _unreachable(change: Change, problem: OSError) -> OperationRefused:
    return OperationRefused(
        RefusalCode.FILE,
        f"{change.path} cannot be changed here: {problem.strerror or problem}. Nothing was undone.",
    )


def _objection(change: Change, now: bytes | None) -> OperationRefused | None:
    """Refuse if the file is not as the session left it."""
    if change.left_digest == (ABSENT if now is None else digest_of(now)):
        return None
    return OperationRefused(
        RefusalCode.FILE_CHANGED,
        f"{change.path} has changed since the session left it. Nothing was undone: look at the "
        "difference and edit the file yourself.",
    )


def _path(change: Change) -> Path:
    return Path(change.session.cycle.workdir) / change.path


def _roots(change: Change) -> tuple[str, ...]:
    """Return the directories that the session could write."""
    facts = read_sandbox(change.session.sandbox)
    return (facts.writable or ()) if facts else ()


def _content_now(directory: int, name: str) -> bytes | None:
    try:
        return content_at(directory, name)
    except FileNotFoundError:
        return None
    except ValueError as problem:
        raise OSError(str(problem)) from problem


def _put_back(directory: int, name: str, before: bytes | None) -> None:
    """Replace the file at once, with the owner and the mode that it has."""
    if before is None:
        os.unlink(name, dir_fd=directory)
        return
    new = f".{name}.{secrets.token_hex(4)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o600, dir_fd=directory), "wb") as file:
        try:
            file.write(before)
            file.flush()
            with suppress(FileNotFoundError):
                had = os.stat(name, dir_fd=directory, follow_symlinks=False)
                with suppress(PermissionError):
                    os.fchown(file.fileno(), had.st_uid, had.st_gid)
                os.fchmod(file.fileno(), had.st_mode & 0o7777)
            os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(new, dir_fd=directory)
            raise


def _difference(now: bytes | None, before: bytes | None) -> tuple[str, ...]:
    had, gets = (
        clean(redacted((content or b"").decode("utf-8", "replace"))).splitlines()
        for content in (now, before)
    )
    text = "\n".join(list(difflib.unified_diff(had, gets, lineterm=""))[2:])
    return tuple(cut(text, LONGEST_DIFFERENCE).splitlines())


def _record(change: Change, way: str) -> None:
    who = change.undone_by.get_username() if change.undone_by else "An operator"
    change.session.note(EventKind.UNDO, f"{who} undid the edit of {change.path} ({way}).")
