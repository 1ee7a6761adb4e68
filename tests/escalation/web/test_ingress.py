"""Addresses that other systems call: what is stored, what is refused and counted."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client
from django.utils import timezone

from escalation.alerts import deliveries, sources
from escalation.alerts.judge import judge_waiting
from sessions_app.models import Alert, Delivery, RefusedDeliveries, Source
from sessions_app.redaction.encryption import decrypt, secret_of
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db
BODY = {"status": "firing", "alerts": [{"labels": {"alertname": "Down", "service": "web"}}]}
Reason = RefusedDeliveries.Reason


@pytest.fixture(autouse=True)
def _counts_at_once(monkeypatch):
    deliveries.refusals._counts.clear()  # of other tests in this process
    monkeypatch.setattr(deliveries.refusals, "FLUSH_SECONDS", 0.0)


def new(kind: str = "alertmanager", **fields: Any) -> sources.NewSource:
    return sources.add(Source(name=kind, kind=kind, watch=WatchFactory(), **fields))


def send(made: sources.NewSource, body: Any = BODY, below: str = "", **options: Any) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    options.setdefault("headers", {"Authorization": f"Bearer {made.secret}"})
    method = getattr(Client(), options.pop("method", "post"))
    return method(f"/in/{made.token}{below}", raw, content_type="application/json", **options)


def counted() -> dict[str, int]:
    return dict(RefusedDeliveries.objects.values_list("reason", "count"))


def test_delivery_is_stored_encrypted_and_answered():
    made = new()

    answer = send(made)

    delivery = Delivery.objects.get()
    assert (answer.status_code, answer.json()["delivery"]) == (202, delivery.pk)
    assert (delivery.source, delivery.verdict, delivery.judged_at) == (made.source, "", None)
    assert b"Down" not in bytes(delivery.encrypted_body)
    assert json.loads(decrypt(bytes(delivery.encrypted_body), "")) == BODY


@pytest.mark.parametrize("path", ["/api/v2/alerts", "/api/v1/alerts"])
def test_prometheus_sends_below_the_address(path):
    made = new("alertmanager-api")

    answer = send(made, [{"labels": {"alertname": "Down"}}], below=path)

    judge_waiting()
    assert (answer.status_code, Alert.objects.count()) == (202, 1)


REFUSED = [
    ({"headers": {}}, 401, Reason.WRONG_SECRET),
    ({"headers": {"Authorization": "Bearer wrong"}}, 401, Reason.WRONG_SECRET),
    ({"headers": {"Authorization": "Basic é"}}, 401, Reason.WRONG_SECRET),
    ({"body": b"{"}, 400, Reason.UNREADABLE),
    ({"body": b"[" * 100_000}, 400, Reason.UNREADABLE),
    ({"body": b"[" * 40 + b"]" * 40}, 400, Reason.UNREADABLE),
    ({"body": b" " * 1_100_000}, 413, Reason.TOO_LARGE),
    ({"method": "get"}, 405, Reason.METHOD),
    ({"method": "delete"}, 405, Reason.METHOD),
]


@pytest.mark.parametrize(("options", "status", "reason"), REFUSED)
def test_refused_requests_are_counted_and_not_stored(options, status, reason):
    made = new()
    if "method" in options:
        answer = getattr(Client(), options["method"])(f"/in/{made.token}")
    else:
        answer = send(made, **options)

    assert (answer.status_code, counted()) == (status, {reason: 1})
    assert answer.json()["error"]
    assert not Delivery.objects.exists()


def test_unknown_token_is_counted_without_a_source():
    answer = Client().post("/in/nobody-knows-this", b"{}", content_type="application/json")

    assert answer.status_code == 404
    assert RefusedDeliveries.objects.get(reason=Reason.UNKNOWN_TOKEN).source is None


def test_refusals_of_a_minute_are_one_row():
    made = new()
    for _request in range(5):
        send(made, headers={})

    assert counted() == {Reason.WRONG_SECRET: 5}
    assert RefusedDeliveries.objects.count() == 1


def test_source_that_is_off_takes_nothing():
    made = new()
    Source.objects.update(enabled=False)

    assert send(made).status_code == 403
    assert counted() == {Reason.DISABLED: 1}


def test_old_address_stops_working_when_it_is_renewed():
    made = new()
    again = sources.renew(Source.objects.get())

    assert send(made).status_code == 404
    assert send(again).status_code == 202


def test_token_is_stored_as_a_hash():
    made = new()

    assert made.token not in str(Source.objects.values().get())
    assert len(made.token) == 32
    assert secret_of(Source.objects.get()) == made.secret


def signed(secret: str, body: bytes) -> str:
    return hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def grafana_headers(made: sources.NewSource, case: str, raw: bytes) -> dict[str, str]:
    now = int(timezone.now().timestamp())
    name, stamp = "X-Grafana-Alerting-Signature", "X-Claudeops-Timestamp"
    match case:
        case "body":
            return {name: signed(made.secret, raw)}
        case "time and body":
            return {stamp: str(now), name: signed(made.secret, f"{now}:".encode() + raw)}
        case "old":
            old = str(now - 400)
            return {stamp: old, name: signed(made.secret, f"{old}:".encode() + raw)}
        case "other body":
            return {name: signed(made.secret, raw + b" ")}
        case "wrong beside the secret":
            return {name: "00", "Authorization": f"Bearer {made.secret}"}
        case _:
            return {"Authorization": f"Bearer {made.secret}"}


@pytest.mark.parametrize(
    ("case", "status"),
    [
        ("body", 202),
        ("time and body", 202),
        ("secret", 202),
        ("old", 401),
        ("other body", 401),
        ("wrong beside the secret", 401),
    ],
)
def test_grafana_signature(case, status):
    made, raw = new("grafana"), json.dumps(BODY).encode()

    assert send(made, raw, headers=grafana_headers(made, case, raw)).status_code == status


def test_grafana_may_use_put():
    assert send(new("grafana"), method="put").status_code == 202


def test_generic_takes_a_signature_of_github():
    made, raw = new("generic"), b'{"id": 1, "message": "down"}'
    headers = {"X-Hub-Signature-256": "sha256=" + signed(made.secret, raw)}

    assert send(made, raw, headers=headers).status_code == 202


def test_uptime_kuma_may_send_a_form():
    made = new("uptime-kuma")
    data = {"data": json.dumps({"heartbeat": None, "monitor": None, "msg": "Testing"})}
    headers = {"Authorization": f"Bearer {made.secret}"}

    answer = Client().post(f"/in/{made.token}", data, headers=headers)

    judge_waiting()
    assert answer.status_code == 202
    assert Delivery.objects.get().verdict == Delivery.Verdict.TEST


# PagerDuty

EVENT = {"event_action": "trigger", "payload": {"summary": "down", "source": "web"}}


def enqueue(key: Any, **fields: Any) -> Any:
    body = json.dumps({"routing_key": key, **EVENT, **fields})
    return Client().post("/v2/enqueue", body, content_type="application/json")


def test_pagerduty_event_is_stored_without_its_key():
    made = new("pagerduty")

    answer = enqueue(made.token, dedup_key="web/down")

    stored = decrypt(bytes(Delivery.objects.get().encrypted_body), "").decode()
    assert (answer.status_code, answer.json()["dedup_key"]) == (202, "web/down")
    assert made.token not in stored


def test_pagerduty_event_without_a_key_gets_one_that_resolves_it():
    made = new("pagerduty")
    key = enqueue(made.token).json()["dedup_key"]
    enqueue(made.token, dedup_key=key, event_action="resolve")

    judge_waiting()

    assert Alert.objects.get().state == "resolved"


@pytest.mark.parametrize("key", [None, 5, "", "wrong", "x" * 32])
def test_pagerduty_event_with_another_key_is_refused(key):
    new("pagerduty")

    assert enqueue(key).status_code == 404
    assert counted() == {Reason.UNKNOWN_TOKEN: 1}


def test_token_of_another_kind_is_no_routing_key():
    assert enqueue(new("alertmanager").token).status_code == 404


def test_token_of_pagerduty_is_no_address():
    assert send(new("pagerduty")).status_code == 404


# Faults


def test_locked_database_asks_the_sender_to_try_again(monkeypatch):
    made = new()

    def fail(*_given: object, **_more: object) -> None:
        raise OperationalError("database is locked")

    monkeypatch.setattr(Delivery.objects, "create", fail)
    answer = send(made)

    assert (answer.status_code, answer["Retry-After"]) == (503, "30")


def test_backlog_asks_the_sender_to_try_again(monkeypatch):
    made = new()
    monkeypatch.setattr(deliveries, "MOST_WAITING", 3)
    answers = [send(made).status_code for _request in range(6)]

    assert answers == [202, 202, 202, 202, 503, 503]
    judge_waiting()
    assert send(made).status_code == 202
