"""Addresses that other systems call with alerts: store first, answer at once, judge later."""

from __future__ import annotations

import json
import logging
import secrets
from http import HTTPStatus
from typing import Any

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError
from django.http import HttpRequest, JsonResponse
from django.utils import timezone
from django.views.decorators.csrf import csrf_exempt

from escalation.alerts import deliveries, sources
from escalation.alerts.deliveries import LONGEST_KEY, refusals
from escalation.alerts.parsers import Unreadable, read_json
from escalation.errors import OperationRefused, RefusalCode
from sessions_app.models import RefusedDeliveries, Source
from sessions_app.models.alert import SourceKind
from sessions_app.redaction.encryption import EncryptedWithAnotherKey

logger = logging.getLogger(__name__)

Reason = RefusedDeliveries.Reason
METHODS = ("POST", "PUT")
RETRY_AFTER = "30"
FORMS = ("multipart/form-data", "application/x-www-form-urlencoded")
TOO_LARGE = "claudeops.too_large"
"""Key in the scope of a request whose body `claudeops.middleware` cut off."""


class Refused(Exception):
    """Raised for a request that is not stored; the message is the answer."""

    def __init__(self, status: HTTPStatus, reason: str, text: str) -> None:
        super().__init__(text)
        self.status, self.reason = status, reason


@csrf_exempt
@login_not_required
def deliver(request: HttpRequest, token: str, rest: str = "") -> JsonResponse:
    """Take a delivery at the address of a source."""
    source = None
    try:
        _require_method(request)
        source = _source(token)
        raw = _body(request)
        _require_origin(source, request, raw)
        body = _parsed(source, request, raw)
        return _stored(source, raw, body)
    except Refused as refused:
        return _refused(source, refused)
    except DatabaseError:
        return _try_later("The database does not answer.")


@csrf_exempt
@login_not_required
def enqueue(request: HttpRequest) -> JsonResponse:
    """Take an event of PagerDuty's Events API, version 2: the token is in the body, and is removed
    from it before it is stored."""
    source = None
    try:
        _require_method(request)
        raw = _body(request)
        body = _json(raw)
        key = body.pop("routing_key", None) if isinstance(body, dict) else None
        source = _source(key if isinstance(key, str) else "", SourceKind.PAGERDUTY)
        given = body.get("dedup_key")
        if not isinstance(given, str) or not 0 < len(given) <= LONGEST_KEY:
            body["dedup_key"] = given = secrets.token_hex(16)
        answer = _stored(source, raw, body)
    except Refused as refused:
        return _refused(source, refused)
    except DatabaseError:
        return _try_later("The database does not answer.")
    if answer.status_code != HTTPStatus.ACCEPTED:
        return answer
    done = {"status": "success", "message": "Event processed", "dedup_key": given}
    return JsonResponse(done, status=HTTPStatus.ACCEPTED)


def stored_from_api(source: Source, request: HttpRequest) -> int:
    """Store a delivery that came with an API token. Return its number; raise OperationRefused."""
    try:
        raw = _body(request)
        answer = _stored(source, raw, _parsed(source, request, raw))
    except Refused as refused:
        refusals.add(source, refused.reason)
        raise OperationRefused(RefusalCode.INVALID_CHOICE, str(refused)) from refused
    if answer.status_code != HTTPStatus.ACCEPTED:
        raise OperationRefused(RefusalCode.NOT_DELIVERED, "Too many deliveries wait.")
    return int(json.loads(answer.content)["delivery"])


def _require_method(request: HttpRequest) -> None:
    if request.method not in METHODS:
        raise Refused(
            HTTPStatus.METHOD_NOT_ALLOWED, Reason.METHOD, "Alerts are sent with POST or PUT."
        )


def _source(token: str, kind: str = "") -> Source:
    source = sources.by_token(token)
    is_pagerduty = source is not None and source.kind == SourceKind.PAGERDUTY
    if source is None or is_pagerduty != (kind == SourceKind.PAGERDUTY):
        raise Refused(
            HTTPStatus.NOT_FOUND,
            Reason.UNKNOWN_TOKEN,
            "No source has this address. `claudeops source renew NAME` prints a new one.",
        )
    return source


def _body(request: HttpRequest) -> bytes:
    """Return the bytes as they came. The limit is `DATA_UPLOAD_MAX_MEMORY_SIZE`."""
    too_large = Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        Reason.TOO_LARGE,
        "A delivery has at most 1 MB: send fewer alerts at once.",
    )
    if getattr(request, "scope", {}).get(TOO_LARGE):
        raise too_large
    try:
        raw = request.body
    except RequestDataTooBig as error:
        raise too_large from error
    if len(raw) > (settings.DATA_UPLOAD_MAX_MEMORY_SIZE or 0):
        raise too_large
    return raw


def _require_origin(source: Source, request: HttpRequest, raw: bytes) -> None:
    if not source.enabled:
        raise Refused(HTTPStatus.FORBIDDEN, Reason.DISABLED, "This source is switched off.")
    try:
        is_authentic = sources.is_authentic(source, request.headers, raw, timezone.now())
    except EncryptedWithAnotherKey as error:
        logger.error("A delivery was refused: %s", error)
        is_authentic = False
    if not is_authentic:
        raise Refused(
            HTTPStatus.UNAUTHORIZED,
            Reason.WRONG_SECRET,
            "The secret header or the signature is missing or wrong.",
        )


def _parsed(source: Source, request: HttpRequest, raw: bytes) -> Any:
    """Return the JSON; Uptime Kuma may send it as the field `data` of a form."""
    if source.kind == SourceKind.UPTIME_KUMA and request.content_type in FORMS:
        return _json(request.POST.get("data", "").encode())
    return _json(raw)


def _json(raw: bytes) -> Any:
    try:
        return read_json(raw)
    except Unreadable as error:
        raise Refused(
            HTTPStatus.BAD_REQUEST, Reason.UNREADABLE, f"The delivery was not stored: {error}."
        ) from error


def _stored(source: Source, raw: bytes, body: Any) -> JsonResponse:
    if not source.enabled:
        raise Refused(HTTPStatus.FORBIDDEN, Reason.DISABLED, "This source is switched off.")
    if deliveries.has_backlog():
        return _try_later("Too many deliveries wait: is a worker running?")
    delivery = deliveries.store(source, raw, body)
    stored = {"status": "stored", "delivery": delivery.pk}
    return JsonResponse(stored, status=HTTPStatus.ACCEPTED)


def _refused(source: Source | None, refused: Refused) -> JsonResponse:
    """Answer and count. Not counted by source before the sender is known to be its own."""
    try:
        refusals.add(source, refused.reason)
    except DatabaseError:
        logger.exception("Could not count a refused delivery")
    answer = JsonResponse({"status": "refused", "error": str(refused)}, status=refused.status)
    if refused.status == HTTPStatus.METHOD_NOT_ALLOWED:
        answer["Allow"] = ", ".join(METHODS)
    return answer


def _try_later(text: str) -> JsonResponse:
    answer = JsonResponse({"status": "later", "error": text}, status=HTTPStatus.SERVICE_UNAVAILABLE)
    answer["Retry-After"] = RETRY_AFTER
    return answer
