"""Remedies of a watch: reads them for a run, and pins scripts as a person accepts them.

An agent never writes a remedy. Its script runs as it was when a person accepted it; a script that
differs, is gone or lies where an agent may write waits for a person.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from difflib import unified_diff

from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from escalation.command_policy.grants import grants_for
from escalation.command_policy.remedies import DeclaredRemedy
from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import installation_lock
from escalation.sandbox.edited_files import digest_of
from escalation.sandbox.setup import current_remedies, read_script, why_writable
from sessions_app.history.services import one_spelling
from sessions_app.models import FileContent, Remedy, ServiceState, Watch
from sessions_app.models.remedy import script_position
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, decrypt, encrypt
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean

NOT_ACCEPTED = "nobody has accepted its script"


def declared_remedies(watch: Watch | None) -> tuple[DeclaredRemedy, ...]:
    """Return the enabled remedies of a watch, each with why it waits, as for a new run."""
    if watch is None:
        return ()
    rows = Remedy.objects.filter(watch=watch, enabled=True).select_related("script")
    services = known_services(watch) if rows else ()
    return current_remedies([declared(row, services) for row in rows], writable_paths(watch))


def known_services(watch: Watch) -> tuple[str, ...]:
    """Return the names that a parameter of the type service may have."""
    found = ServiceState.objects.filter(watch=watch).values_list("service", "name")
    named = Remedy.objects.filter(watch=watch).exclude(service="").values_list("service", flat=True)
    return tuple(sorted({name for pair in found for name in pair} | set(named)))


def declared(row: Remedy, services: tuple[str, ...]) -> DeclaredRemedy:
    position = script_position(row.command)
    script, waits = None, ""
    if position is not None:
        script, waits = _accepted_content(row)
    return DeclaredRemedy(
        name=row.name,
        description=row.description,
        command=tuple(row.command),
        parameters=row.declared_parameters,
        kind=row.kind,
        service=one_spelling(row.service) if row.service else "",
        tier=row.tier,
        grants=frozenset(row.grants.split()),
        seconds=row.seconds,
        services=services,
        script=script,
        script_at=position or 0,
        waits=waits,
        stamp=stamp_of(row),
    )


def stamp_of(row: Remedy) -> str:
    """Identify the declaration: another one has another stamp."""
    return f"{row.pk} {row.changed_at.isoformat()}"


def _accepted_content(row: Remedy) -> tuple[bytes, str]:
    if row.script is None:
        return b"", NOT_ACCEPTED
    try:
        return zlib.decompress(decrypt(bytes(row.script.content), str(row.script))), ""
    except (EncryptedWithAnotherKey, ValueError, zlib.error) as problem:
        return b"", f"its accepted content cannot be read ({problem})"


def writable_paths(watch: Watch) -> tuple[str, ...]:
    """Return the paths that an agent of the watch may write at some tier."""
    return (watch.workdir, *grants_for(watch_words=watch.grants).writable)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyState:
    """A remedy beside its script as it is now."""

    waits: str
    """Why a person has to look at it; empty if it may run."""
    difference: tuple[str, ...]
    """Redacted lines of a unified diff from the accepted content to the script as it is."""
    token: str
    """Identifies the content that a person sees; keyed, because it may hold a secret."""
    objection: str = ""
    """Why it cannot be accepted either; empty if it can, or if nothing waits."""


def state_of(row: Remedy) -> RemedyState:
    """Look at the script of a remedy, on this host."""
    found = declared(row, ())
    waits = current_remedies([found], writable_paths(row.watch))[0].waits
    if not row.script_path:
        return RemedyState(waits=waits, difference=(), token="", objection=waits)
    content, objection = b"", why_writable(row.script_path, writable_paths(row.watch))
    try:
        content = read_script(row.script_path)
    except (OSError, ValueError) as problem:
        objection = objection or f"{row.script_path} cannot be read: {problem}"
    before, after = (
        clean(redacted(text.decode("utf-8", "replace"))).splitlines()
        for text in (found.script or b"", content)
    )
    return RemedyState(
        waits=waits,
        difference=tuple(unified_diff(before, after, lineterm=""))[2:],
        token=salted_hmac("remedy", content, algorithm="sha256").hexdigest(),
        objection=objection,
    )


def save(row: Remedy, *, by: str) -> None:
    """Validate and store a remedy that a person wrote, with its script as it is.

    Raise ValidationError. A script that was accepted before and is still the same path stays
    pinned: a person accepts its difference on its own.
    """
    row.full_clean()
    with installation_lock():
        row.validate_constraints()
        if not row.script_path:
            row.script, row.accepted_by, row.accepted_at = None, "", None
        elif row.script is None or _path_before(row) != row.script_path:
            try:
                _pin(row, by=by)
            except OperationRefused as refused:
                raise ValidationError({"command": str(refused)}) from refused
        row.save()


def _path_before(row: Remedy) -> str:
    before = Remedy.objects.filter(pk=row.pk).first()
    return before.script_path if before else ""


def accept(row: Remedy, *, by: str, token: str | None = None) -> None:
    """Pin the script as it is now. `token` is that of the content that the person has seen."""
    if not row.script_path:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"The remedy {row.name} has no script to accept."
        )
    with installation_lock():
        _pin(row, by=by, token=token)
        row.save()


def _pin(row: Remedy, *, by: str, token: str | None = None) -> None:
    path = row.script_path
    if why := why_writable(path, writable_paths(row.watch)):
        raise OperationRefused(
            RefusalCode.FILE,
            f"{why}. Move the script to a place where no agent may write, such as "
            "/usr/local/lib/claudeops.",
        )
    try:
        content = read_script(path)
    except (OSError, ValueError) as problem:
        raise OperationRefused(
            RefusalCode.FILE, f"The script {path} cannot be read: {problem}."
        ) from problem
    shown = salted_hmac("remedy", content, algorithm="sha256").hexdigest()
    if token is not None and not constant_time_compare(token, shown):
        raise OperationRefused(
            RefusalCode.FILE_CHANGED,
            f"{path} has changed since you looked at it. Look at the difference again.",
        )
    row.script, _created = FileContent.objects.get_or_create(
        digest=digest_of(content), defaults={"content": encrypt(zlib.compress(content))}
    )
    row.accepted_by, row.accepted_at = by, timezone.now()


def remove(row: Remedy) -> None:
    with installation_lock():
        row.delete()
