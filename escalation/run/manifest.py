"""The manifest of a watch: CLAUDE-OPS.md in its working directory, as a person accepted it.

An agent may write in the working directory. So the accepted text serves as instructions, and a text
that differs from it is data until a person accepts it.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from datetime import datetime
from difflib import unified_diff
from enum import StrEnum
from pathlib import Path

from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import own_labels
from sessions_app.models import Cycle, Manifest, Watch
from sessions_app.models.fields import fitted
from sessions_app.models.watch import MANIFEST_NAME, may_run, read_host_words
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean

MANIFEST_LENGTH = 20_000
CUT = f"\n(cut here: the rest of {MANIFEST_NAME} is data)"
UPGRADE = "the upgrade"
"""Name of who accepted the manifest that was there before manifests were accepted."""


class ManifestState(StrEnum):
    ACCEPTED = "accepted"
    CHANGED = "changed"
    """The file differs from the accepted text."""
    FIRST = "first"
    """There is a file, and no text was accepted before."""
    MISSING = "missing"


def manifest_state(accepted: str, found: str) -> ManifestState:
    """Compare the accepted text with the text of the file; either is empty if there is none."""
    if not found.strip():
        return ManifestState.MISSING
    if found == accepted:
        return ManifestState.ACCEPTED
    return ManifestState.CHANGED if accepted.strip() else ManifestState.FIRST


@dataclass(frozen=True, kw_only=True, slots=True)
class CurrentManifest:
    """The accepted text beside the text of the file."""

    accepted: str = ""
    """Serves as instructions."""
    found: str = ""
    accepted_by: str = ""
    accepted_at: datetime | None = None

    @property
    def state(self) -> ManifestState:
        return manifest_state(self.accepted, self.found)

    @property
    def unaccepted(self) -> str:
        """Text that counts as data; empty if the file is as accepted, or missing."""
        is_data = self.state in {ManifestState.CHANGED, ManifestState.FIRST}
        return self.found if is_data else ""

    @property
    def waits(self) -> bool:
        """True if a person should accept the text, or that the file is gone."""
        is_gone = self.state == ManifestState.MISSING and bool(self.accepted.strip())
        return is_gone or bool(self.unaccepted)

    @property
    def token(self) -> str:
        """Identifies the text that a person sees; keyed, because the text may hold a secret."""
        return salted_hmac("manifest", self.found, algorithm="sha256").hexdigest()

    @property
    def difference(self) -> tuple[str, ...]:
        """Lines of a unified diff without its head, with invisible characters as marks.

        Secrets are redacted. Empty if the texts differ in secrets alone.
        """
        before, after = (
            clean(redacted(text)).split("\n") if text else []
            for text in (self.accepted, self.found)
        )
        return tuple(unified_diff(before, after, lineterm=""))[2:]


def read_manifest(workdir: Path) -> str:
    """Text of the manifest in the working directory, cut to MANIFEST_LENGTH.

    An earlier session may have written in the directory, and this is read outside the sandbox: a
    link out of the directory would put any file into a prompt, and a pipe would block.
    """
    try:
        path = (workdir / MANIFEST_NAME).resolve()
        if not path.is_relative_to(workdir.resolve()):
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, encoding="utf-8", errors="replace") as manifest:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                return ""
            text = fitted(manifest.read(MANIFEST_LENGTH + 1))
    except (OSError, RuntimeError):
        return ""
    return text[:MANIFEST_LENGTH] + CUT if len(text) > MANIFEST_LENGTH else text


def manifest_of_watch(watch: Watch) -> CurrentManifest:
    """Look up the manifest of a watch. It needs no query if the watch was read with `manifest`."""
    return _beside(getattr(watch, "manifest", None), Path(watch.workdir))


def manifest_of_cycle(cycle: Cycle) -> CurrentManifest:
    """Look up the manifest for a session, and note on the watch whether it waits for acceptance.

    The manifest of a drill is part of its scenario, so it is accepted.
    """
    watch, workdir = cycle.watch, Path(cycle.workdir)
    if cycle.drill:
        found = read_manifest(workdir)
        return CurrentManifest(accepted=found, found=found)
    if watch is None or watch.workdir != cycle.workdir:
        return CurrentManifest(found=read_manifest(workdir))
    row = Manifest.objects.filter(watch=watch).first()
    if row is not None and row.accepted_at is None:
        row = _accept(watch, read_manifest(workdir), UPGRADE)
    current = _beside(row, workdir)
    _note(watch, current)
    return current


def note_waiting() -> int:
    """Note on each watch whether its manifest waits for acceptance; return how many do.

    A watch that does not run on this host is left to another one.
    """
    labels = own_labels()
    looked = [
        (watch, manifest_of_watch(watch))
        for watch in Watch.objects.select_related("manifest")
        if may_run(read_host_words(watch.hosts), labels) and Path(watch.workdir).is_dir()
    ]
    for watch, current in looked:
        _note(watch, current)
    return sum(current.waits for _watch, current in looked)


def accept_first(watch: Watch, *, by: str, moved: bool = False) -> None:
    """Accept the manifest of a watch that a person adds, or moves to another directory.

    Any other edit accepts nothing: the person may not have seen the file.
    """
    if moved or not hasattr(watch, "manifest"):
        _accept(watch, read_manifest(Path(watch.workdir)), by)


def write_first(watch: Watch, text: str, *, by: str) -> Manifest:
    """Write the manifest of a watch that has none, and accept it. Raise OperationRefused.

    Nothing is overwritten, and no link is followed: an agent may write in the directory.
    """
    text = text.replace("\r\n", "\n").strip()
    if not text or len(text) > MANIFEST_LENGTH:
        raise OperationRefused(
            RefusalCode.TEXT_TOO_LONG,
            f"Nothing was saved: {MANIFEST_NAME} takes 1 to {MANIFEST_LENGTH:,} characters.",
        )
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    try:
        directory = os.open(watch.workdir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with open(os.open(MANIFEST_NAME, new, 0o644, dir_fd=directory), "w") as file:
                file.write(f"{text}\n")
        finally:
            os.close(directory)
    except FileExistsError:
        raise OperationRefused(
            RefusalCode.MANIFEST_CHANGED,
            f"Nothing was saved: there is a {MANIFEST_NAME} in {watch.workdir} by now.",
        ) from None
    except OSError as error:
        raise OperationRefused(
            RefusalCode.MANIFEST_CHANGED,
            f"{MANIFEST_NAME} could not be written in {watch.workdir}: {error.strerror}. Copy the "
            "text into the file by hand.",
        ) from None
    return _accept(watch, read_manifest(Path(watch.workdir)), by)


def accept_seen(watch: Watch, *, seen: str, by: str) -> Manifest:
    """Accept the text that a person has seen, by its token. Raise OperationRefused."""
    current = manifest_of_watch(watch)
    if not constant_time_compare(seen, current.token):
        raise OperationRefused(
            RefusalCode.MANIFEST_CHANGED,
            f"{MANIFEST_NAME} of {watch.name} has changed since you looked at it. Nothing was "
            "accepted: look at the difference again.",
        )
    return _accept(watch, current.found, by)


def _accept(watch: Watch, text: str, by: str) -> Manifest:
    accepted = {"text": text, "accepted_by": by, "accepted_at": timezone.now()}
    row, _created = Manifest.objects.update_or_create(watch=watch, defaults=accepted)
    Watch.objects.filter(pk=watch.pk).update(manifest_waits=False)
    watch.manifest, watch.manifest_waits = row, False
    return row


def _beside(row: Manifest | None, workdir: Path) -> CurrentManifest:
    found = read_manifest(workdir)
    if row is None:
        return CurrentManifest(found=found)
    if row.accepted_at is None:
        return CurrentManifest(accepted=found, found=found, accepted_by=UPGRADE)
    return CurrentManifest(
        accepted=row.text,
        found=found,
        accepted_by=row.accepted_by,
        accepted_at=row.accepted_at,
    )


def _note(watch: Watch, current: CurrentManifest) -> None:
    if watch.manifest_waits != current.waits:
        Watch.objects.filter(pk=watch.pk).update(manifest_waits=current.waits)
        watch.manifest_waits = current.waits
