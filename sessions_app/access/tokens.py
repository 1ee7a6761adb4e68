"""Tokens of the API: scopes, creation, authentication, rate limit and revocation."""

from __future__ import annotations

import hashlib
import secrets
import threading
import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from django.conf import settings
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, Q, QuerySet
from django.utils import timezone

from sessions_app.access.roles import Right, limit_rights, may, note_added, note_changed, rights_of
from sessions_app.models import ApiToken, Source

PREFIX = "cops_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SECRET_LENGTH, CHECKSUM_LENGTH = 32, 6
SHOWN_LENGTH = len(PREFIX) + 4
LONGEST_NAME = 100
LONGEST_LIFE = timedelta(days=3650)


class Scope(StrEnum):
    READ = "read"
    RUN = "run"
    APPROVE = "approve"
    CONFIGURE = "configure"


ALERTS = "alerts:"
"""Beginning of a scope that delivers alerts to one source."""
RIGHTS_OF_SCOPES: dict[str, frozenset[Right]] = {
    Scope.READ: frozenset({Right.SEE, Right.SEE_OUTPUT}),
    Scope.RUN: frozenset(
        {
            Right.RUN,
            Right.STOP,
            Right.FOLLOW_UP,
            Right.ESCALATE,
            Right.HANDLE_INCIDENTS,
            Right.PAUSE_ALL,
        }
    ),
    Scope.APPROVE: frozenset({Right.APPROVE}),
    Scope.CONFIGURE: frozenset({Right.CHANGE_WATCHES, Right.MANAGE_KEYS}),
}
RIGHT_TO_DELIVER = Right.RUN
"""Needed by the owner of a token with the scope `alerts:SOURCE`: alerts start cycles."""


class TokenRefused(Exception):
    """Raised for a token that cannot be made; the message says what to do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NewToken:
    row: ApiToken
    token: str
    """Displayed once."""


# The token: a prefix, random characters, and a checksum by which scanners tell it from other text.


def new_token() -> str:
    body = "".join(secrets.choice(ALPHABET) for _ in range(SECRET_LENGTH))
    return f"{PREFIX}{body}{checksum(body)}"


def checksum(body: str) -> str:
    number, digits = zlib.crc32(body.encode()), ""
    for _ in range(CHECKSUM_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def is_well_formed(token: str) -> bool:
    body = token.removeprefix(PREFIX)
    secret = body[:SECRET_LENGTH]
    return (
        token.startswith(PREFIX)
        and len(body) == SECRET_LENGTH + CHECKSUM_LENGTH
        and body.isascii()
        and body.isalnum()
        and body[SECRET_LENGTH:] == checksum(secret)
    )


def hashed(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


# Making and revoking.


def create(
    user: User, name: str, scopes: list[str], *, expires_in: timedelta | None = None, by: User
) -> NewToken:
    """Make a token of `user`. Raise TokenRefused if the account may not have it."""
    name, scopes = name.strip(), list(dict.fromkeys(scopes))
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise TokenRefused(f"Give the token a name of at most {LONGEST_NAME} characters.")
    if objection := _objection_to_scopes(user, scopes):
        raise TokenRefused(objection)
    if expires_in is not None and not timedelta(0) < expires_in <= LONGEST_LIFE:
        raise TokenRefused(f"A token expires in 1 to {LONGEST_LIFE.days} days, or never.")
    token, now = new_token(), timezone.now()
    row = ApiToken(
        user=user,
        name=name,
        scopes=" ".join(scopes),
        prefix=token[:SHOWN_LENGTH],
        token_hash=hashed(token),
        created_at=now,
        expires_at=now + expires_in if expires_in is not None else None,
    )
    try:
        with transaction.atomic():
            row.save()
            note_added(by, row)
    except IntegrityError as error:
        raise TokenRefused(
            f"{user.get_username()} has a token {name} already. Revoke it, or choose another name."
        ) from error
    return NewToken(row=row, token=token)


def _objection_to_scopes(user: User, scopes: list[str]) -> str:
    known = ", ".join(Scope)
    if not scopes:
        return f"Give the token at least one scope: {known}, {ALERTS}SOURCE."
    for scope in scopes:
        if scope.startswith(ALERTS):
            source = scope.removeprefix(ALERTS)
            if " " in scope or not Source.objects.filter(name=source).exists():
                return f"There is no source {source!r} that a scope can name."
            needed = frozenset({RIGHT_TO_DELIVER})
        elif scope in RIGHTS_OF_SCOPES:
            needed = RIGHTS_OF_SCOPES[scope]
        else:
            return f"There is no scope {scope!r}. Scopes: {known}, {ALERTS}SOURCE."
        if not needed & rights_of(user):
            return (
                f"{user.get_username()} may do nothing that the scope {scope} allows: leave it "
                "out, or give the account a higher role."
            )
    return ""


def revoke(row: ApiToken, *, by: User | None) -> bool:
    """Revoke a token. Return False if it was revoked before."""
    revoked = ApiToken.objects.filter(pk=row.pk, revoked_at=None).update(revoked_at=timezone.now())
    if revoked and by is not None:
        note_changed(by, row, "Revoked.")
    return bool(revoked)


def tokens_for(user: User) -> QuerySet[ApiToken]:
    """Return the tokens that an account may see and revoke: its own, or all."""
    rows = ApiToken.objects.select_related("user")
    return rows if may(user, Right.MANAGE_KEYS) else rows.filter(user=user)


# Authentication.


def authenticated(token: str, now: datetime) -> ApiToken | None:
    """Return a valid token. Its account has no more rights than the scopes give."""
    if not is_well_formed(token):
        return None
    rows = ApiToken.objects.select_related("user").prefetch_related("user__groups")
    row = rows.filter(still_valid(now), token_hash=hashed(token)).first()
    if row is not None:
        limit_rights(row.user, rights_within(row.scope_list))
    return row


def still_valid(now: datetime) -> Q:
    return Q(revoked_at=None, user__is_active=True) & (Q(expires_at=None) | Q(expires_at__gt=now))


def rights_within(scopes: list[str]) -> frozenset[Right]:
    """Return what scopes allow at most. `alerts:SOURCE` gives no right: it is asked for itself."""
    return frozenset[Right]().union(*(RIGHTS_OF_SCOPES.get(scope, frozenset()) for scope in scopes))


def may_deliver(row: ApiToken, source: str) -> bool:
    """Test the scope `alerts:SOURCE`, and the right of the owner without the limit of scopes."""
    owner = User.objects.get(pk=row.user_id)
    return f"{ALERTS}{source}" in row.scope_list and may(owner, RIGHT_TO_DELIVER)


def scope_for(right: Right) -> str:
    return next(scope for scope, rights in RIGHTS_OF_SCOPES.items() if right in rights)


# The rate limit: so many requests of a token in each minute. A process takes several at once from
# the row of the token, so that the limit holds for all processes with one write for each batch.

WINDOW = timedelta(minutes=1)
BATCH = 20


@dataclass(slots=True)
class _Batch:
    window: datetime
    left: int
    used: int


@dataclass(frozen=True, slots=True)
class Allowance:
    limit: int
    remaining: int
    reset_seconds: int
    is_exceeded: bool = False

    def headers(self) -> dict[str, str]:
        found = {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset_seconds),
        }
        return found | ({"Retry-After": str(self.reset_seconds)} if self.is_exceeded else {})


_batches: dict[int, _Batch] = {}
_lock = threading.Lock()


def take(row: ApiToken, now: datetime) -> Allowance:
    """Count one request of a token."""
    limit = settings.CLAUDEOPS_API_RATE
    window = now.replace(second=0, microsecond=0)
    reset = max(1, int((window + WINDOW - now).total_seconds()) + 1)
    with _lock:
        batch = _batches.get(row.pk)
        if batch is None or batch.window != window or not batch.left:
            batch = _next_batch(row, window, now, limit)
            if batch is None:
                return Allowance(limit, 0, reset, is_exceeded=True)
            _batches[row.pk] = batch
        batch.left -= 1
        return Allowance(limit, max(0, limit - batch.used + batch.left), reset)


def _next_batch(row: ApiToken, window: datetime, now: datetime, limit: int) -> _Batch | None:
    rows = ApiToken.objects.filter(pk=row.pk)
    size = min(BATCH, limit)
    begun = rows.filter(~Q(window_start=window) | Q(window_start=None))
    if begun.update(window_start=window, window_used=size, last_used_at=now):
        return _Batch(window, size, size)
    while size:
        counted = rows.filter(window_start=window, window_used__lte=limit - size)
        if counted.update(window_used=F("window_used") + size, last_used_at=now):
            used = rows.values_list("window_used", flat=True).get()
            return _Batch(window, size, used)
        size //= 2
    return None


def forget_batches() -> None:
    """Forget what this process has taken, for tests."""
    with _lock:
        _batches.clear()
