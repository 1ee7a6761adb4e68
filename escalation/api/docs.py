"""The OpenAPI schema, and the page that shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from escalation.api import acting, events, reading, shapes
from escalation.api.app import BearerToken, api
from escalation.api.problems import STATUS_OF
from escalation.errors import RefusalCode
from sessions_app.access.permissions import needs
from sessions_app.access.roles import Right
from sessions_app.access.tokens import scope_for

REGISTERED = (acting, events, reading)
"""They register their operations when they are loaded."""
PREFIX = "/api/v1/"
METHODS = ("get", "post", "put", "patch", "delete")
CONFLICT = 409


@cache
def schema() -> dict[str, Any]:
    made = dict(api.get_openapi_schema(path_prefix=PREFIX))
    made["components"] = {**made["components"]}
    bodies, answers = made["components"].get("schemas", {}), shapes.schemas()
    assert not set(bodies) & set(answers), "a body and a shape have one name"
    made["components"]["schemas"] = {**bodies, **answers}
    for methods in made["paths"].values():
        for operation in methods.values():
            _tidy(operation)
    schemes = made["components"]["securitySchemes"]
    made["components"]["securitySchemes"] = {"BearerToken": schemes["BearerToken"]}
    plain: dict[str, Any] = json.loads(json.dumps(made))
    return plain


def _tidy(operation: dict[str, Any]) -> None:
    """Leave out what the library adds: a null that no query can hold, an answer that never is."""
    for parameter in operation.get("parameters", ()):
        found = parameter["schema"]
        kinds = [one for one in found.get("anyOf", ()) if one.get("type") != "null"]
        if len(kinds) == 1:
            del found["anyOf"]
            found.update(kinds[0])
        elif kinds:
            found["anyOf"] = kinds
    operation["security"] = [{"BearerToken": []}]
    answers = operation["responses"]
    for status in [status for status, one in answers.items() if set(one) == {"description"}]:
        del answers[status]


@api.get("openapi.json", auth=BearerToken(Right.SEE), include_in_schema=False, url_name="schema")
def openapi(request: HttpRequest) -> HttpResponse:
    """The schema of this API."""
    return JsonResponse(schema())


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    kind: str
    is_required: bool
    description: str


@dataclass(frozen=True, slots=True)
class Operation:
    name: str
    method: str
    path: str
    summary: str
    description: str
    scope: str
    parameters: tuple[Parameter, ...]
    body: tuple[Parameter, ...]
    answer: str


def operations() -> Iterator[tuple[str, list[Operation]]]:
    """Yield the operations of each tag, as the page shows them."""
    rights = {
        operation.operation_id: getattr(operation.view_func, "needed_right", None)
        for router in api._get_bound_routers()
        for view in router.path_operations.values()
        for operation in view.operations
    }
    of_tag: dict[str, list[Operation]] = {}
    for path, methods in schema()["paths"].items():
        for method, found in methods.items():
            if method in METHODS:
                right = rights.get(found["operationId"])
                tag = found.get("tags", ["other"])[0]
                of_tag.setdefault(tag, []).append(_operation(path, method, found, right))
    yield from sorted(of_tag.items())


def _operation(path: str, method: str, found: dict[str, Any], right: Right | None) -> Operation:
    answers = found["responses"]
    good: dict[str, Any] = next((answers[status] for status in answers if status[0] == "2"), {})
    content = _schema_in(good)
    return Operation(
        name=found["operationId"],
        method=method.upper(),
        path=path,
        summary=found.get("summary", ""),
        description=found.get("description", ""),
        scope=scope_for(right) if right else "alerts:SOURCE",
        parameters=tuple(
            Parameter(
                one["name"],
                one["in"],
                _kind(one.get("schema", {})),
                bool(one.get("required")),
                one.get("description") or one.get("schema", {}).get("description", ""),
            )
            for one in found.get("parameters", ())
        ),
        body=tuple(_fields(found.get("requestBody", {}))),
        answer=content.get("$ref", "").rpartition("/")[2],
    )


def _schema_in(part: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of the only content of a body or an answer."""
    for content in part.get("content", {}).values():
        return dict(content.get("schema", {}))
    return {}


def _fields(body: dict[str, Any]) -> Iterator[Parameter]:
    content = _schema_in(body)
    name = content.get("$ref", "").rpartition("/")[2]
    found = schema()["components"]["schemas"].get(name, {})
    for field, one in found.get("properties", {}).items():
        needed = field in found.get("required", ())
        yield Parameter(field, "body", _kind(one), needed, one.get("description", ""))


def _kind(one: dict[str, Any]) -> str:
    if "enum" in one:
        return ", ".join(map(str, one["enum"]))
    if "const" in one:
        return str(one["const"])
    if "$ref" in one:
        name = one["$ref"].rpartition("/")[2]
        return _kind(schema()["components"]["schemas"].get(name, {}))
    if "anyOf" in one or "allOf" in one:
        kinds = [_kind(part) for part in one.get("anyOf", one.get("allOf", ()))]
        return ", ".join(kind for kind in kinds if kind != "null")
    return str(one.get("type", "any"))


@needs(Right.SEE)
@require_safe
def reference(request: HttpRequest) -> HttpResponse:
    """The page of the API."""
    found = {name: list(shapes.fields_of(name).items()) for name in shapes.FIELDS if name != "Said"}
    context = {
        "tags": list(operations()),
        "shapes": found,
        "codes": [(code.value, int(STATUS_OF.get(code, CONFLICT))) for code in RefusalCode],
    }
    return render(request, "web/api_reference.html", context)
