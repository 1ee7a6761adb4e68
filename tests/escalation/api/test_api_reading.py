"""Reading: every list and every single thing, in the shapes that the schema says."""

from __future__ import annotations

import json

import pytest
from django.test import Client
from openapi_spec_validator import validate

from escalation.api import shapes
from escalation.api.docs import schema
from tests.escalation.api.conftest import address_of
from tests.factories import SessionFactory, user_with

pytestmark = pytest.mark.django_db


def test_the_schema_is_valid_openapi():
    validate(schema())


def test_every_reading_operation_answers_with_its_shape(caller, subject):
    client, wrong = caller(), []
    for path, methods in schema()["paths"].items():
        if "get" not in methods or path.endswith("cycles/{number}/events"):
            continue
        answer = client.get(address_of(path, subject))
        if answer.status_code != 200:
            wrong.append(f"{path}: {answer.status_code} {answer.content!r}")
            continue
        name = methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"]
        shape = name.rpartition("/")[2]
        body = answer.json()
        rows = body.get("items", [body.get("data")])
        kind = shape.removesuffix("List").removeprefix("One")
        if kind in shapes.FIELDS:
            wrong += [
                f"{path}: has no {field}"
                for row in rows
                for field in shapes.fields_of(kind)
                if field not in row
            ]
        if shape.endswith("List") and not rows:
            wrong.append(f"{path}: is empty, so its shape is not tried")
    assert wrong == []


def test_pages_follow_each_other_without_gaps(caller):
    made = [SessionFactory().pk for _ in range(5)]
    client, seen = caller(), []
    cursor: str | None = ""
    while cursor is not None:
        page = client.get(f"sessions?limit=2{cursor and '&cursor=' + cursor}").json()
        seen += [row["id"] for row in page["items"]]
        cursor = page["next"]

    assert seen == made[::-1]


def test_filters_are_those_of_the_pages_and_wrong_ones_are_refused(caller, subject):
    client = caller()

    assert client.get("sessions?status=failed&watch=shop").json()["items"][0]["watch"] == "shop"
    assert client.get("sessions?status=running").json()["items"] == []
    for name in ("sessions", "changes", "incidents"):
        without = client.get(f"{name}?drill=no")
        assert without.status_code == 200, name
        assert without.json() == client.get(name).json(), name
        assert client.get(f"{name}?drill=yes").json()["items"] == [], name
    for path, status in (
        ("sessions?status=lost", 422),
        ("sessions?limit=0", 422),
        ("sessions?cursor=abc", 422),
        ("sessions?watch=nowhere", 404),
        ("cycles?since=yesterday", 422),
        ("cycles/0", 422),
        ("cycles/99999999999999999999", 422),
        ("cycles/4711", 404),
        ("nothing", 404),
    ):
        answer = client.get(path)
        assert (answer.status_code, answer["Content-Type"]) == (status, "application/problem+json")
        assert answer.json()["status"] == status


def test_a_viewer_reads_no_output(caller):
    session = SessionFactory(request="with a secret")
    viewer, operator = caller("viewer", ["read"]), caller("operator", ["read"])

    for path in ("sessions", f"sessions/{session.pk}/chain", "cycles"):
        assert "with a secret" not in viewer.get(path).content.decode(), path
        assert "with a secret" in operator.get(path).content.decode(), path
    assert viewer.get(f"sessions/{session.pk}").status_code == 403


def test_secrets_are_redacted(caller):
    key = "ghp_" + "a1B2" * 9
    SessionFactory(error=f"with {key}")

    assert key not in caller().get("sessions").content.decode()
    assert "redacted" in caller("operator", ["read"]).get("sessions").content.decode()


def test_a_browser_that_is_logged_in_may_read_but_not_act(subject):
    client = Client()
    client.force_login(user_with("admin"))

    assert client.get("/api/v1/watches").status_code == 200
    refused = client.post("/api/v1/watches/shop/pause", content_type="application/json")
    assert (refused.status_code, refused.json()["code"]) == (401, "unauthenticated")


def test_other_origins_get_no_permission(caller):
    answer = caller().get("watches", Origin="https://evil.example")

    assert not [name for name in answer.headers if name.startswith("Access-Control")]


def test_the_page_of_the_api_lists_every_operation(subject):
    client = Client()
    client.force_login(user_with("viewer"))

    page = client.get("/api/v1/docs").content.decode()

    missing = [
        one["operationId"]
        for methods in schema()["paths"].values()
        for one in methods.values()
        if f'id="{one["operationId"]}"' not in page
    ]
    assert missing == []
    assert json.loads(client.get("/api/v1/openapi.json").content)["openapi"].startswith("3.1")
