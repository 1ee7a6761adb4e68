"""Errors of the API, as problems of RFC 9457."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest, HttpResponse

from escalation.errors import RefusalCode
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean

CONTENT_TYPE = "application/problem+json"
CODES = "/api/v1/docs#codes"

STATUS_OF = {
    RefusalCode.NOT_FOUND: HTTPStatus.NOT_FOUND,
    RefusalCode.NOT_PERMITTED: HTTPStatus.FORBIDDEN,
    RefusalCode.OWN_REQUEST: HTTPStatus.FORBIDDEN,
    RefusalCode.ACCOUNT_MISSING: HTTPStatus.UNPROCESSABLE_ENTITY,
    RefusalCode.TEXT_MISSING: HTTPStatus.UNPROCESSABLE_ENTITY,
    RefusalCode.TEXT_TOO_LONG: HTTPStatus.UNPROCESSABLE_ENTITY,
    RefusalCode.INVALID_CHOICE: HTTPStatus.UNPROCESSABLE_ENTITY,
    RefusalCode.INVALID_ARGUMENTS: HTTPStatus.UNPROCESSABLE_ENTITY,
}
"""Statuses of refusals; every other one says that the state does not allow it: 409."""

# Codes that only the API has.
UNAUTHENTICATED = "unauthenticated"
INVALID_REQUEST = "invalid_request"
UNREADABLE = "unreadable"
METHOD_NOT_ALLOWED = "method_not_allowed"
RATE_LIMITED = "rate_limited"
KEY_REUSED = "idempotency_key_reused"
KEY_IN_USE = "idempotency_key_in_use"
PRECONDITION_MISSING = "precondition_missing"
PRECONDITION_FAILED = "precondition_failed"
TOO_LARGE = "too_large"
UNAVAILABLE = "unavailable"
INTERNAL = "internal"


class Problem(Exception):
    """Ends a request with a problem."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = int(status), str(code), detail
        self.errors, self.headers = list(errors), dict(headers or {})


def of_refusal(code: str, detail: object) -> Problem:
    try:
        status = STATUS_OF.get(RefusalCode(code), HTTPStatus.CONFLICT)
    except ValueError:  # a reason why nothing can run
        status = HTTPStatus.CONFLICT
    return Problem(status, code, str(detail))


def answer(request: HttpRequest, problem: Problem) -> HttpResponse:
    body: dict[str, Any] = {
        "type": CODES,
        "title": HTTPStatus(problem.status).phrase,
        "status": problem.status,
        "code": problem.code,
        "detail": clean(redacted(problem.detail)),
        "instance": request.path,
    }
    if problem.errors:
        body["errors"] = problem.errors
    response = HttpResponse(json.dumps(body), status=problem.status, content_type=CONTENT_TYPE)
    for name, value in problem.headers.items():
        response[name] = value
    response["Cache-Control"] = "no-store"
    return response
