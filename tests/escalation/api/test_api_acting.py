"""Acting: what happens, idempotency keys, ETags, problems and the rate limit."""

from __future__ import annotations

import threading

import pytest
from django.db import connection
from django.test import Client
from django.utils import timezone

from escalation.api import app
from sessions_app.access import tokens
from sessions_app.models import (
    ApiToken,
    Approval,
    Cycle,
    Delivery,
    IdempotentRequest,
    Session,
    Watch,
)
from tests.escalation.api.conftest import EVERY_SCOPE, Caller, make_subject, token_of
from tests.factories import ApprovalFactory, IncidentFactory, SourceFactory

pytestmark = pytest.mark.django_db


def test_a_cycle_is_started_and_found_at_its_address(caller, subject):
    client = caller()

    started = client.post("watches/shop/run", {"prompt": "look at the disk"})

    assert started.status_code == 202
    assert started.json()["data"]["prompt"] == "look at the disk"
    found = client.get(started["Location"]).json()["data"]
    assert (found["state"], found["trigger"]) == ("queued", "manual")
    again = client.post("watches/shop/run")
    assert (again.status_code, again.json()["code"]) == (409, "cycle_active")


def test_incidents_are_handled_by_the_owner_of_the_token(caller):
    incident = IncidentFactory()
    client = caller("operator", ["read", "run"])

    taken = client.post(f"incidents/{incident.pk}/acknowledge").json()["data"]
    noted = client.post(f"incidents/{incident.pk}/note", {"note": "disk ordered"})
    empty = client.post(f"incidents/{incident.pk}/note", {"note": " "})
    resolved = client.post(f"incidents/{incident.pk}/resolve").json()["data"]

    assert (taken["state"], taken["owner"]) == ("acknowledged", _owner(client))
    assert noted.status_code == 200
    assert (empty.status_code, empty.json()["code"]) == (422, "text_missing")
    assert resolved["state"] == "resolved"


def _owner(client: Caller) -> str:
    row = ApiToken.objects.get(token_hash=tokens.hashed(client.token))
    return str(row.user.get_username())


def test_an_approval_is_answered_once(caller):
    approval = ApprovalFactory()
    client = caller("approver", ["approve"])

    first = client.post(f"approvals/{approval.pk}/reject", {"note": "not now"})
    second = client.post(f"approvals/{approval.pk}/approve")

    assert (first.status_code, first.json()["data"]["way"]) == (200, Approval.Way.API)
    assert (second.status_code, second.json()["code"]) == (409, "approval_answered")


def test_a_key_is_carried_out_once_and_another_body_is_refused(caller, subject):
    client = caller()
    key = {"Idempotency-Key": "night-1"}

    first = client.post("watches/shop/run", {"prompt": "a"}, **key)
    again = client.post("watches/shop/run", {"prompt": "a"}, **key)
    other = client.post("watches/shop/run", {"prompt": "b"}, **key)
    stranger = caller().post("watches/shop/run", {"prompt": "a"}, **key)

    assert (first.status_code, again.status_code) == (202, 202)
    assert again.content == first.content
    assert (again["Idempotency-Replayed"], again["Location"]) == ("true", first["Location"])
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
    assert stranger.status_code == 409  # a key of its own: the watch is busy
    assert Cycle.objects.filter(prompt="a").count() == 1


def test_a_refused_request_may_be_sent_again_with_its_key(caller, subject):
    client = caller()
    busy = Cycle.objects.create(watch=Watch.objects.get(name="shop"), state="running", workdir="/")

    refused = client.post("watches/shop/run", **{"Idempotency-Key": "k"})
    Cycle.objects.filter(pk=busy.pk).update(state="finished")

    assert refused.status_code == 409
    assert client.post("watches/shop/run", **{"Idempotency-Key": "k"}).status_code == 202


def test_a_key_without_an_answer_is_refused_and_an_old_one_is_free(caller, subject):
    client = caller()
    client.post("pause", {"reason": "x"}, **{"Idempotency-Key": "k"})
    row = IdempotentRequest.objects.get()
    IdempotentRequest.objects.update(status=None)

    under_way = client.post("pause", {"reason": "x"}, **{"Idempotency-Key": "k"})
    assert (under_way.status_code, under_way.json()["code"]) == (409, "idempotency_key_in_use")
    IdempotentRequest.objects.update(created_at=row.created_at - IdempotentRequest.KEPT * 2)
    assert client.post("pause", {"reason": "y"}, **{"Idempotency-Key": "k"}).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_parallel_requests_with_one_key_have_one_effect(tmp_path, fake_cli):
    make_subject(str(tmp_path))
    client, answers = Caller(token_of("admin", EVERY_SCOPE)), []

    def ask():
        try:
            answers.append(client.post("watches/shop/run", **{"Idempotency-Key": "k"}))
        finally:
            connection.close()

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert Cycle.objects.filter(state="queued").count() == 1
    codes = {answer.status_code for answer in answers}
    assert codes <= {202, 409}, [answer.content for answer in answers]
    assert 202 in codes


def test_configuration_is_changed_only_by_who_has_seen_it(caller, subject):
    client = caller()
    seen = client.get("watches/shop")["ETag"]

    blind = client("PATCH", "watches/shop", {"interval_minutes": 30})
    changed = client("PATCH", "watches/shop", {"interval_minutes": 30}, **{"If-Match": seen})
    late = client("PATCH", "watches/shop", {"interval_minutes": 15}, **{"If-Match": seen})
    late_pause = client.post("watches/shop/pause", **{"If-Match": seen})
    fresh = client.get("watches/shop", **{"If-None-Match": changed["ETag"]})

    assert [blind.status_code, changed.status_code, late.status_code] == [428, 200, 412]
    assert late_pause.status_code == 412
    assert fresh.status_code == 304
    assert Watch.objects.get(name="shop").interval_minutes == 30
    assert Watch.objects.get(name="shop").enabled


def test_wrong_settings_change_nothing_and_are_all_named(caller, subject):
    client = caller()
    seen = client.get("watches/shop")["ETag"]

    wrong = client("PATCH", "watches/shop", {"cron": "x", "ask": "("}, **{"If-Match": seen})
    level = client("PUT", "watches/shop/autonomy", {"level": "everything"}, **{"If-Match": seen})

    assert wrong.status_code == 422
    assert {one["where"] for one in wrong.json()["errors"]} == {"body.cron", "body.ask"}
    assert level.status_code == 422
    assert client.get("watches/shop")["ETag"] == seen


def test_what_cannot_be_read_is_refused_with_its_place(caller, subject):
    client = caller()

    for body, status in (
        ("{", 400),
        ("[]", 422),
        ('{"prompt": 3}', 422),
        ('{"prompt": "a\\u0000b"}', 422),
        ('{"nothing": 1}', 422),
        ('{"budget_usd": "1"}', 422),
        ('{"prompt": "\\ud800"}', 422),
    ):
        answer = client.post("watches/shop/run", body)
        assert (answer.status_code, answer["Content-Type"]) == (
            status,
            "application/problem+json",
        ), (body, answer.content)
    assert not Cycle.objects.filter(state="queued").exists()
    assert client("DELETE", "watches/shop").status_code == 405
    assert set(client("DELETE", "watches/shop")["Allow"].split(", ")) == {"GET", "PATCH"}


def test_alerts_are_delivered_with_a_token_of_their_source(subject):
    SourceFactory(name="other")
    client = Caller(token_of("operator", ["alerts:grafana"]))
    before = Delivery.objects.count()

    taken = client.post("sources/grafana/deliveries", {"service": "web", "status": "firing"})

    assert taken.status_code == 202, taken.content
    assert Delivery.objects.count() == before + 1
    assert client.post("sources/other/deliveries", {}).status_code == 403
    assert client.get("status").status_code == 403


def test_too_many_requests_are_told_when_to_come_back(caller, settings, subject, monkeypatch):
    settings.CLAUDEOPS_API_RATE = 2
    client, now = caller(), timezone.now()
    monkeypatch.setattr("escalation.api.app.timezone.now", lambda: now)  # within one minute

    answers = [client.get("services") for _ in range(3)]

    assert [one["RateLimit-Remaining"] for one in answers] == ["1", "0", "0"]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert 0 < int(answers[2]["Retry-After"]) <= 61
    assert answers[2].json()["code"] == "rate_limited"


def test_an_unexpected_error_is_a_problem_too(caller, monkeypatch, caplog):
    monkeypatch.setattr("escalation.api.reading.status_now", lambda: 1 / 0)

    answer = caller().get("status")

    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert "ZeroDivisionError" in caplog.text


def test_sessions_of_a_started_tier_wait_for_approval_without_the_scope(subject):
    """A token of an approver without `approve` asks; one with it has approved by starting."""
    asking = Caller(token_of("approver", ["run"]))
    session = Session.objects.get(pk=subject["sessions"])
    Watch.objects.filter(name="shop").update(approval="1,2,3")

    retried = asking.post(f"sessions/{session.pk}/retry")

    assert retried.status_code == 202, retried.content
    assert retried.json()["data"]["status"] == "awaiting_approval"


def test_the_version_of_the_shapes_is_in_every_answer(caller, subject):
    assert caller().get("status").json()["version"] == app.VERSION
    assert Client().get("/api/v1/status").status_code == 401
