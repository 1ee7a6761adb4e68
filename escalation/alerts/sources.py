"""Sources: creation, token, secret, the settings to paste into each sender, and a test."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.utils import timezone

from escalation.alerts import snippets
from escalation.alerts.decision import read_routes
from escalation.alerts.parsers import GENERIC_PATHS, Unreadable, read_json
from escalation.alerts.samples import Preview, guess, preview
from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import installation_lock
from sessions_app.models import Source, Watch
from sessions_app.models.alert import SourceKind
from sessions_app.redaction.encryption import encrypt, secret_of

TOKEN_BYTES = 24
"""32 characters, the length of a routing key of PagerDuty, which some senders check."""
SECRET_BYTES = 24
GIVEN_TOKEN = re.compile(r"[A-Za-z0-9_-]{24,128}")
"""Tokens that an operator may choose: long enough not to be guessed."""
WITHOUT_SECRET = frozenset({SourceKind.PAGERDUTY})
"""Kinds whose senders authenticate by the token alone."""
SIGNATURE_HEADERS = {
    SourceKind.GRAFANA: "X-Grafana-Alerting-Signature",
    SourceKind.GENERIC: "X-Hub-Signature-256",
}
TIMESTAMP_HEADER = "X-Claudeops-Timestamp"
"""Named in Grafana's contact point; the signature then covers the time, too."""
LATEST_SIGNATURE = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True, slots=True)
class NewSource:
    """A source with its token and secret, which are displayed once."""

    source: Source
    token: str
    secret: str

    @property
    def address(self) -> str:
        return address_of(self.source, self.token)

    @property
    def snippet(self) -> str:
        return snippets.snippet(self.source.kind, self.address, self.token, self.secret)


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def address_of(source: Source, token: str) -> str:
    base = settings.CLAUDEOPS_INGRESS_URL.rstrip("/")
    if source.kind == SourceKind.PAGERDUTY:
        return f"{base}/v2/enqueue"
    return f"{base}/in/{token}"


def add(
    source: Source, *, with_secret: bool = True, token: str = "", secret: str = ""
) -> NewSource:
    """Store a new source. Raise OperationRefused for a wrong value.

    A token and a secret are made where none is given.
    """
    token, secret = _issue(source, with_secret=with_secret, token=token, secret=secret)
    check(source)
    with installation_lock():
        check(source)  # the name may have been taken meanwhile
        source.save()
    return NewSource(source=source, token=token, secret=secret)


def renew(source: Source) -> NewSource:
    """Give a source another token and secret. The old ones stop working at once."""
    token, secret = _issue(source, with_secret=bool(bytes(source.encrypted_secret)))
    with installation_lock():
        source.save(update_fields=["token_hash", "encrypted_secret"])
    return NewSource(source=source, token=token, secret=secret)


def change(source: Source, *, with_secret: bool = True, token: str = "", secret: str = "") -> None:
    """Store a source with other settings. A token or secret that is not given stays.

    Raise OperationRefused for a wrong value.
    """
    if token:
        _set_token(source, token)
    if secret or not with_secret:
        _set_secret(source, secret)
    check(source)
    with installation_lock():
        check(source)
        source.save()


def _issue(
    source: Source, *, with_secret: bool, token: str = "", secret: str = ""
) -> tuple[str, str]:
    token = token or secrets.token_urlsafe(TOKEN_BYTES)
    needs_one = with_secret and source.kind not in WITHOUT_SECRET
    secret = (secret or secrets.token_urlsafe(SECRET_BYTES)) if needs_one else ""
    _set_token(source, token)
    _set_secret(source, secret)
    return token, secret


def _set_token(source: Source, token: str) -> None:
    if not GIVEN_TOKEN.fullmatch(token):
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE,
            "The token of a source has 24 to 128 letters, digits, dashes and underscores. Make "
            "one with `openssl rand -hex 16`.",
        )
    source.token_hash = hashed(token)


def _set_secret(source: Source, secret: str) -> None:
    source.encrypted_secret = encrypt(secret.encode()) if secret else b""


def check(source: Source) -> None:
    """Raise OperationRefused if a value of the source is wrong."""
    try:
        source.full_clean(exclude=["token_hash", "encrypted_secret"])
    except ValidationError as error:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, " ".join(error.messages)) from error
    if objection := objection_to(source.routes, source.paths):
        raise OperationRefused(RefusalCode.INVALID_CHOICE, objection)


def objection_to(routes: str, paths: Any) -> str:
    """Return what is wrong with the routes or the paths of a source, or nothing."""
    try:
        named = {watch for _label, _value, watch in read_routes(routes)}
    except ValueError as error:
        return str(error)
    known = set(Watch.objects.filter(name__in=named).values_list("name", flat=True))
    if missing := sorted(named - known):
        return f"There is no watch {missing[0]}, which a route names."
    if not isinstance(paths, dict) or not all(isinstance(path, str) for path in paths.values()):
        return 'Paths are a JSON object of texts, like {"service": "host.name"}.'
    if unknown := sorted(set(paths) - set(GENERIC_PATHS)):
        return f"{unknown[0]} is no field. Fields: {', '.join(GENERIC_PATHS)}."
    return ""


LONGEST_SAMPLE = 100_000


def read_sample(text: str) -> Any:
    """Parse a sample that a person pasted. Raise OperationRefused."""
    if len(text) > LONGEST_SAMPLE:
        raise OperationRefused(
            RefusalCode.TEXT_TOO_LONG, f"A sample has at most {LONGEST_SAMPLE} characters."
        )
    try:
        return read_json(text.encode(errors="replace"))
    except Unreadable as unreadable:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, f"No sample: {unreadable}.") from None


def preview_of(source: Source, body: Any, paths: Mapping[str, str] | None = None) -> Preview:
    """Read a sample of a generic source by its own paths, or by guessed ones if it has none.

    `paths` overrules them.
    """
    if source.kind != SourceKind.GENERIC:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE,
            f"Only a source of the kind generic has paths, not {source}.",
        )
    if objection := objection_to("", paths or {}):
        raise OperationRefused(RefusalCode.INVALID_CHOICE, objection)
    own = {**GENERIC_PATHS, **source.paths} if source.paths else guess(body)
    return preview(body, {**own, **(paths or {})}, timezone.now(), source.service_label)


def set_paths(source: Source, paths: Mapping[str, str]) -> None:
    """Read deliveries by these paths from now on."""
    source.paths = dict(paths)
    if objection := objection_to(source.routes, source.paths):
        raise OperationRefused(RefusalCode.INVALID_CHOICE, objection)
    Source.objects.filter(pk=source.pk).update(paths=source.paths)


def set_enabled(source: Source, *, enabled: bool) -> None:
    """Switch a source on or off. What it sends while it is off is refused and counted."""
    Source.objects.filter(pk=source.pk).update(enabled=enabled)


def remove(source: Source) -> None:
    """Remove a source with its deliveries and problems. Incidents stay."""
    with installation_lock():
        source.delete()


# Proof of origin


def by_token(token: str) -> Source | None:
    wanted = hashed(token)
    source = Source.objects.select_related("watch").filter(token_hash=wanted).first()
    if source is None or not hmac.compare_digest(source.token_hash, wanted):
        return None
    return source


def is_authentic(source: Source, headers: Mapping[str, str], body: bytes, now: datetime) -> bool:
    """Return True if a request has the secret of its source, or a signature made with it."""
    if not bytes(source.encrypted_secret):
        return True
    secret = secret_of(source)
    name = SIGNATURE_HEADERS.get(SourceKind(source.kind), "")
    if name and (given := headers.get(name, "")):
        return _is_signed(secret, given, headers.get(TIMESTAMP_HEADER, ""), body, now)
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    return scheme.lower() == "bearer" and _same(given.strip(), secret)


def _is_signed(secret: str, given: str, timestamp: str, body: bytes, now: datetime) -> bool:
    signed = timestamp.encode() + b":" + body if timestamp else body
    expected = hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    if timestamp and not _is_recent(timestamp, now):
        return False
    return _same(given.strip().removeprefix("sha256="), expected)


def _is_recent(timestamp: str, now: datetime) -> bool:
    if not timestamp.isdecimal() or len(timestamp) > 12:
        return False
    return abs(int(timestamp) - now.timestamp()) <= LATEST_SIGNATURE.total_seconds()


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), expected.encode())
