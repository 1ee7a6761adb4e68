"""The API's operations: who may call them, their answers, and what makes a retry harmless.

Each operation names the right that it needs, as pages do. A token is asked for; the login of a
browser is enough to read.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, cast

from asgiref.sync import sync_to_async
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import RequestDataTooBig, SuspiciousOperation
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DatabaseError, IntegrityError, transaction
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.utils import timezone
from ninja import NinjaAPI
from ninja.errors import HttpError, ValidationError
from ninja.security import HttpBearer

from escalation.api import problems, shapes
from escalation.api.problems import Problem
from escalation.errors import OperationRefused, RefusalCode
from escalation.management.output import Refused
from sessions_app.access import tokens
from sessions_app.access.roles import Right, may, refusal
from sessions_app.models import ApiToken, IdempotentRequest
from sessions_app.redaction.redact import redacted_data

logger = logging.getLogger(__name__)
VERSION = 1
"""Version of the shapes: raised when a field changes its meaning or goes away."""
BEARER = "bearer "
LONGEST_KEY = 255
KEY = re.compile(rf"[!-~]{{1,{LONGEST_KEY}}}")
READING = ("GET", "HEAD")

api = NinjaAPI(
    title="Claude Ops",
    version=str(VERSION),
    description=(
        "Read what Claude Ops has recorded, and act as its pages do. Texts come from logs, "
        "reports and alerts: they are data."
    ),
    docs_url=None,
    openapi_url=None,
    urls_namespace="api",
    servers=[],
)


# Who calls.


class BearerToken(HttpBearer):
    """Admits a request whose account has a right: by token, or to read by the login."""

    def __init__(self, right: Right | None, *, acts: bool = False) -> None:
        super().__init__()
        self.right, self.acts = right, acts

    def __call__(self, request: HttpRequest) -> Any:
        return admit(request, self.right, acts=self.acts)

    def authenticate(self, request: HttpRequest, token: str) -> Any:
        raise NotImplementedError  # `__call__` does it all


class AsyncBearerToken(BearerToken):
    is_async = True

    async def __call__(self, request: HttpRequest) -> Any:
        return await sync_to_async(admit)(request, self.right, acts=self.acts)


def token_in(request: HttpRequest) -> str | None:
    """Return the bearer token of a request, or None if it has none."""
    given = request.headers.get("Authorization", "")
    return given[len(BEARER) :].strip() if given.lower().startswith(BEARER) else None


def admit(request: HttpRequest, right: Right | None, *, acts: bool) -> User:
    """Return the account of a request. Raise Problem if it may not do this."""
    given = token_in(request)
    if given is None and request.user.is_authenticated and not acts:
        user = request.user
    else:
        user = _of_token(request, given)
    if right is not None and not may(user, right):
        raise Problem(HTTPStatus.FORBIDDEN, RefusalCode.NOT_PERMITTED, _why_not(request, right))
    return user


def _of_token(request: HttpRequest, given: str | None) -> User:
    now = timezone.now()
    row = tokens.authenticated(given, now) if given else None
    if row is None:
        raise Problem(
            HTTPStatus.UNAUTHORIZED,
            problems.UNAUTHENTICATED,
            "The token is wrong, has expired or was revoked."
            if given
            else "Send a token: Authorization: Bearer cops_…",
            headers={"WWW-Authenticate": 'Bearer realm="Claude Ops"'},
        )
    allowance = tokens.take(row, now)
    request.api_token = row  # type: ignore[attr-defined]
    request.api_allowance = allowance  # type: ignore[attr-defined]
    if allowance.is_exceeded:
        raise Problem(
            HTTPStatus.TOO_MANY_REQUESTS,
            problems.RATE_LIMITED,
            f"The token has made {allowance.limit} requests in this minute: wait "
            f"{allowance.reset_seconds} seconds.",
        )
    request.user = row.user
    return row.user


def token_row(request: HttpRequest) -> ApiToken | None:
    return getattr(request, "api_token", None)


def _why_not(request: HttpRequest, right: Right) -> str:
    row = token_row(request)
    if row is not None and right not in tokens.rights_within(row.scope_list):
        return f"The token needs the scope {tokens.scope_for(right)}."
    return refusal(request.user, right)


# Operations.

Data = Any
View = Callable[..., Data]
PROBLEMS = (400, 401, 403, 404, 409, 422, 429, 503)


@dataclass(frozen=True, slots=True)
class Answer:
    """Data with the status and the headers of its response."""

    data: Data
    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rows:
    """A page of a list."""

    items: Iterable[Data]
    next: int | None = None


def reads(
    path: str, right: Right | None, *, tag: str, shape: str = "Data"
) -> Callable[[View], View]:
    """Register an operation that reads."""

    def register(view: View) -> View:
        extra = _documented(shape, [200], problems_of=PROBLEMS)
        _register("get", path, view, _answering(view), BearerToken(right), tag, extra)
        return view

    return register


def acts(
    path: str,
    right: Right | None,
    *,
    tag: str,
    method: str = "post",
    shape: str = "Data",
    status: int = HTTPStatus.OK,
) -> Callable[[View], View]:
    """Register an operation that changes something: with a token alone."""

    def register(view: View) -> View:
        call = _once(_answering(view)) if method == "post" else _answering(view)
        extra = _documented(shape, [int(status)], problems_of=(*PROBLEMS, 412, 413, 428))
        if method == "post":
            extra["parameters"] = [shapes.IDEMPOTENCY_KEY]
        _register(method, path, view, call, BearerToken(right, acts=True), tag, extra)
        return view

    return register


def _register(
    method: str,
    path: str,
    view: View,
    call: View,
    auth: BearerToken,
    tag: str,
    extra: dict[str, Any],
) -> None:
    # The library reads the parameters from the signature.
    call.__signature__ = inspect.signature(view, eval_str=True)  # type: ignore[attr-defined]
    call.needed_right = auth.right  # type: ignore[attr-defined]
    register = getattr(api, method)
    register(
        path,
        auth=auth,
        tags=[tag],
        operation_id=view.__name__,
        summary=view.__name__.replace("_", " ").capitalize(),
        description=inspect.getdoc(view) or "",
        url_name=view.__name__,
        openapi_extra=extra,
    )(call)


def _documented(shape: str, statuses: list[int], *, problems_of: Iterable[int]) -> dict[str, Any]:
    good = {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": shapes.ref(shape)}},
        }
        for status in statuses
    }
    bad = {
        status: {
            "description": HTTPStatus(status).phrase,
            "content": {problems.CONTENT_TYPE: {"schema": shapes.ref("Problem")}},
        }
        for status in problems_of
    }
    return {"responses": good | bad}


def _answering(view: View) -> View:
    @functools.wraps(view)
    def call(request: HttpRequest, **values: Any) -> HttpResponse:
        return to_response(request, view(request, **values))

    return call


def to_response(request: HttpRequest, found: Data) -> HttpResponse:
    answer = found if isinstance(found, Answer) else Answer(found)
    data = answer.data
    if isinstance(data, Rows):
        following = None if data.next is None else str(data.next)
        body = {"version": VERSION, "items": list(data.items), "next": following}
    else:
        body = {"version": VERSION, "data": data}
    plain = json.loads(json.dumps(body, cls=DjangoJSONEncoder))
    headers = {"Cache-Control": "private, no-cache", "Vary": "Authorization, Cookie"}
    tag = answer.headers.get("ETag")
    if tag and request.method in READING and tag in _tags_in(request, "If-None-Match"):
        response = HttpResponse(status=HTTPStatus.NOT_MODIFIED)
    else:
        text = json.dumps(redacted_data(plain))
        response = HttpResponse(text, status=answer.status, content_type="application/json")
    for name, value in {**headers, **answer.headers}.items():
        response[name] = value
    return response


# ETags of configuration.


def etag_of(values: Any) -> str:
    text = json.dumps(values, cls=DjangoJSONEncoder, sort_keys=True)
    return f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}"'


def _tags_in(request: HttpRequest, header: str) -> list[str]:
    return [tag.strip() for tag in request.headers.get(header, "").split(",")]


def require_match(request: HttpRequest, etag: str, *, needed: bool) -> None:
    """Raise Problem if the caller has seen another version, or should say which one it has seen."""
    given = [tag for tag in _tags_in(request, "If-Match") if tag]
    if not given and needed:
        raise Problem(
            HTTPStatus.PRECONDITION_REQUIRED,
            problems.PRECONDITION_MISSING,
            "Read it first, and send its ETag as If-Match.",
        )
    if given and etag not in given and "*" not in given:
        raise Problem(
            HTTPStatus.PRECONDITION_FAILED,
            problems.PRECONDITION_FAILED,
            "It was changed since you read it: read it again.",
        )


# Idempotency: a request with a key is carried out once, and its answer is repeated.


def _once(call: View) -> View:
    @functools.wraps(call)
    def once(request: HttpRequest, **values: Any) -> HttpResponse:
        key, token = request.headers.get("Idempotency-Key"), token_row(request)
        if key is None or token is None:
            return cast(HttpResponse, call(request, **values))
        if not KEY.fullmatch(key):
            raise Problem(
                HTTPStatus.BAD_REQUEST,
                problems.INVALID_REQUEST,
                f"An Idempotency-Key has 1 to {LONGEST_KEY} printable ASCII characters, no space.",
            )
        row, before = _begun(request, token, key)
        if before is not None:
            return _repeated(before)
        try:
            response = cast(HttpResponse, call(request, **values))
        except BaseException:
            # Nothing was done: every operation is one transaction, or refuses before it acts.
            row.delete()
            raise
        row.status = response.status_code
        row.answer = {"body": response.content.decode(), "location": response.get("Location")}
        row.save(update_fields=["status", "answer"])
        return response

    return once


def _begun(
    request: HttpRequest, token: ApiToken, key: str
) -> tuple[IdempotentRequest, IdempotentRequest | None]:
    """Store the key, or return the request that had it before."""
    now, fingerprint = timezone.now(), _fingerprint(request)
    rows = IdempotentRequest.objects.filter(token=token, key=key)
    rows.filter(created_at__lt=now - IdempotentRequest.KEPT).delete()
    row = IdempotentRequest(token=token, key=key, fingerprint=fingerprint, created_at=now)
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        before = rows.first()
        if before is None or before.status is None:
            raise Problem(
                HTTPStatus.CONFLICT,
                problems.KEY_IN_USE,
                "A request with this Idempotency-Key is under way, or ended without an answer. "
                "Look what it did before you send another key.",
                headers={"Retry-After": "1"},
            ) from None
        if before.fingerprint != fingerprint:
            raise Problem(
                HTTPStatus.UNPROCESSABLE_ENTITY,
                problems.KEY_REUSED,
                "This Idempotency-Key was used for another request: choose a new one.",
            ) from None
        return row, before
    return row, None


def _fingerprint(request: HttpRequest) -> str:
    head = f"{request.method} {request.get_full_path()}\n".encode()
    return hashlib.sha256(head + request.body).hexdigest()


def _repeated(before: IdempotentRequest) -> HttpResponse:
    kept = before.answer or {}
    response = HttpResponse(
        kept.get("body", ""), status=before.status, content_type="application/json"
    )
    if kept.get("location"):
        response["Location"] = kept["location"]
    response["Idempotency-Replayed"] = "true"
    return response


# Errors.


@api.exception_handler(Problem)
def _on_problem(request: HttpRequest, error: Problem | type[Problem]) -> HttpResponse:
    return problems.answer(request, cast(Problem, error))


@api.exception_handler(OperationRefused)
def _on_refusal(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.answer(request, problems.of_refusal(error.code, error))


@api.exception_handler(Refused)
def _on_refused(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.answer(request, problems.of_refusal(error.code, error))


@api.exception_handler(Http404)
def _on_missing(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.answer(
        request, Problem(HTTPStatus.NOT_FOUND, RefusalCode.NOT_FOUND, "There is no such thing.")
    )


@api.exception_handler(ValidationError)
def _on_invalid(request: HttpRequest, error: Any) -> HttpResponse:
    found = [
        {"where": ".".join(map(str, one["loc"])), "code": one["type"], "detail": one["msg"]}
        for one in error.errors
    ]
    return problems.answer(
        request,
        Problem(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            problems.INVALID_REQUEST,
            "The request does not fit the schema: see errors.",
            errors=found,
        ),
    )


@api.exception_handler(HttpError)
def _on_http_error(request: HttpRequest, error: Any) -> HttpResponse:
    return problems.answer(request, Problem(error.status_code, problems.UNREADABLE, str(error)))


@api.exception_handler(SuspiciousOperation)
def _on_suspicious(request: HttpRequest, error: Any) -> HttpResponse:
    if isinstance(error, RequestDataTooBig):
        problem = Problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, problems.TOO_LARGE, "At most 1 MB is taken."
        )
    else:
        problem = Problem(HTTPStatus.BAD_REQUEST, problems.UNREADABLE, "It cannot be read.")
    return problems.answer(request, problem)


@api.exception_handler(DatabaseError)
def _on_database(request: HttpRequest, error: Any) -> HttpResponse:
    logger.error("The API could not use the database", exc_info=error)
    return problems.answer(
        request,
        Problem(
            HTTPStatus.SERVICE_UNAVAILABLE,
            problems.UNAVAILABLE,
            "The database does not answer.",
            headers={"Retry-After": "5"},
        ),
    )


@api.exception_handler(Exception)
def _on_error(request: HttpRequest, error: Any) -> HttpResponse:
    if settings.DEBUG:
        raise error
    logger.error("An operation of the API failed: %s", request.path, exc_info=error)
    return problems.answer(
        request,
        Problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            problems.INTERNAL,
            "It failed; the log of the web server says why.",
        ),
    )


def finished(request: HttpRequest, response: HttpResponseBase) -> HttpResponseBase:
    """Add the headers of the rate limit, and make a problem of a method that is not known."""
    if response.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = response.get("Allow", "")
        problem = Problem(
            HTTPStatus.METHOD_NOT_ALLOWED,
            problems.METHOD_NOT_ALLOWED,
            f"This address takes {allowed}.",
            headers={"Allow": allowed},
        )
        response = problems.answer(request, problem)
    if (allowance := getattr(request, "api_allowance", None)) is not None:
        for name, value in allowance.headers().items():
            response[name] = value
    return response
