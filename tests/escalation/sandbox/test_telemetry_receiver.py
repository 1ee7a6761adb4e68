"""The receiver of the CLI's telemetry: what it keeps, what it refuses, and what it survives."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from escalation.agent.stream import Tokens
from escalation.sandbox import telemetry_receiver
from escalation.sandbox.telemetry_receiver import (
    CliTelemetry,
    CliTrace,
    TelemetryReceiver,
    read_telemetry,
)

LIMIT = telemetry_receiver.MAX_BODY_BYTES


def attributes(**facts: Any) -> list[dict[str, Any]]:
    return [{"key": name, "value": {"stringValue": value}} for name, value in facts.items()]


def event(number: int, cost: Any = 0.25, name: str = "api_request") -> dict[str, Any]:
    tokens = {"input_tokens": 10, "output_tokens": 2, "cache_read_tokens": "3"}
    facts = {"event.name": name, "event.sequence": number, "cost_usd": cost, "model": "haiku"}
    record = {"attributes": attributes(**facts, **tokens)}
    return {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}


def cost_metric(value: Any, at: int, temporality: int = 1) -> dict[str, Any]:
    point = {"startTimeUnixNano": "5", "timeUnixNano": str(at), "asDouble": value}
    points = {"aggregationTemporality": temporality, "dataPoints": [point]}
    metrics = [{"name": "claude_code.cost.usage", "sum": points}, {"name": "x", "sum": points}]
    return {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]}


def told_by(ledger: Path) -> CliTelemetry:
    told = read_telemetry(ledger)
    assert told is not None
    return told


class Client:
    def __init__(self, environment: dict[str, str]) -> None:
        self.port = urlsplit(environment["OTEL_EXPORTER_OTLP_ENDPOINT"]).port
        name, _equals, token = environment["OTEL_EXPORTER_OTLP_HEADERS"].partition("=")
        self.headers = {name: token}

    def post(self, path: str, body: Any, **headers: str) -> int:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            connection.request("POST", path, content, {**self.headers, **headers})
            return connection.getresponse().status
        finally:
            connection.close()


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.jsonl"


@pytest.fixture
def client(ledger: Path) -> Iterator[Client]:
    with TelemetryReceiver(ledger).serving() as environment:
        yield Client(environment)


def test_costs_and_tokens_are_summed_and_what_comes_twice_counts_once(client, ledger):
    assert read_telemetry(ledger) is None
    for body in (event(1), event(1), event(2, "0.5"), event(3, name="user_prompt")):
        assert client.post("/v1/logs", body) == 200
    for body in (cost_metric(0.25, 7), cost_metric(0.25, 7), cost_metric(0.75, 8)):
        assert client.post("/v1/metrics", body) == 200
    assert client.post("/v1/traces", {"resourceSpans": []}) == 200

    told = told_by(ledger)

    assert (told.by_event, told.by_metric) == (Decimal("0.75"), Decimal(1))
    assert told.cost_usd == told.by_metric
    assert (told.requests, told.tokens) == (2, Tokens(20, 4, 6, 0))
    assert "user_prompt" not in ledger.read_text()


def test_of_cumulative_points_the_last_counts(client, ledger):
    for value, at in ((0.25, 7), (0.75, 8)):
        assert client.post("/v1/metrics", cost_metric(value, at, temporality=2)) == 200
    assert told_by(ledger).by_metric == Decimal("0.75")


def test_a_body_in_chunks_is_read_as_the_older_clis_send_it(client, ledger):
    content = json.dumps(event(1)).encode()
    pieces = (content[:20], content[20:])
    chunked = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    head = "".join(f"{name}: {value}\r\n" for name, value in client.headers.items())
    request = f"POST /v1/logs HTTP/1.1\r\n{head}transfer-encoding: chunked\r\n\r\n".encode()
    for body, status in (
        (chunked, b"200"),
        (b"zz\r\n", b"400"),
        (b"%x\r\n" % (LIMIT + 1), b"413"),
        (b"ffffffffffffffff\r\n", b"400"),
    ):
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
            connection.sendall(request + body)
            assert connection.recv(1000).split()[1] == status
    assert told_by(ledger).requests == 1


def test_it_refuses_what_is_not_from_its_cli_and_keeps_nothing_of_it(client, ledger):
    deep = b"[" * 100_000
    for path, body, headers, expected in (
        ("/v1/logs", event(1), {"x-claudeops-run": "another"}, 401),
        ("/v1/logs", event(1), {"x-claudeops-run": ""}, 401),
        ("/v1/logs", event(1), {"x-claudeops-run": "\xff"}, 401),
        ("/v1/messages", event(1), {}, 404),
        ("/v1/logs", b"not json", {}, 400),
        ("/v1/logs", b"\xff\xfe", {}, 400),
        ("/v1/logs", deep, {}, 400),
        ("/v1/logs", b"[]", {}, 400),
        ("/v1/logs", b"{}", {"content-length": str(LIMIT + 1)}, 413),
        ("/v1/logs", b"{}", {"content-length": "-5"}, 400),
    ):
        assert client.post(path, body, **headers) == expected, (path, headers)
    assert not ledger.exists()


def test_values_that_are_no_cost_and_no_count_are_left_out(client, ledger):
    for number, cost in enumerate((None, "free", "NaN", "inf", -1, 1e300, {"a": 1}, [])):
        assert client.post("/v1/logs", event(number, cost)) == 200
    strange: tuple[Any, ...] = (
        {"resourceLogs": "x"},
        {"resourceLogs": [None, {"scopeLogs": {}}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"attributes": [1, {"key": 2}]}]}]}]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "x", "sum": 7}]}]}]},
    )
    for body in strange:
        assert client.post("/v1/logs", body) == 200
        assert client.post("/v1/metrics", body) == 200
    assert not ledger.exists()


def test_a_torn_file_is_read_as_far_as_it_goes(ledger):
    ledger.write_text('{"kind": "event", "key": "1", "cost": 0.5}\n[1]\n{"kind": "event", "co')
    assert told_by(ledger).cost_usd == Decimal("0.5")


def test_a_flood_is_bounded_in_entries_and_connections(client, ledger, monkeypatch):
    monkeypatch.setattr(telemetry_receiver, "MAX_ENTRIES", 3)
    for number in range(6):
        assert client.post("/v1/logs", event(number)) == 200
    assert told_by(ledger).requests == 3

    # Not before: the server may still hold a connection whose answer has come.
    monkeypatch.setattr(telemetry_receiver, "MAX_CONNECTIONS", 2)
    held = [socket.create_connection(("127.0.0.1", client.port), timeout=10) for _ in range(3)]
    assert held[2].recv(10) == b""
    for connection in held:
        connection.close()


def span(number: int, trace: str = "ab" * 16, **facts: dict[str, Any]) -> dict[str, Any]:
    return {
        "traceId": trace,
        "spanId": f"{number:016x}",
        "parentSpanId": "cd" * 8,
        "name": "claude_code.tool",
        "kind": 1,
        "startTimeUnixNano": "5",
        "endTimeUnixNano": 7,
        "attributes": [{"key": name, "value": value} for name, value in facts.items()],
        "events": [{"name": "said", "attributes": attributes(text="a prompt")}],
        "status": {"code": 2, "message": "a prompt"},
    }


def spans(*found: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"scopeSpans": [{"spans": list(found)}]}]}


def test_spans_of_the_trace_are_kept_without_prompts_commands_and_outputs(tmp_path, monkeypatch):
    monkeypatch.setattr(telemetry_receiver, "MAX_SPANS", 3)
    said = {"stringValue": "a prompt"}
    plain: dict[str, Any] = {
        "model": {"stringValue": "haiku"},
        "input_tokens": {"intValue": "4"},
        "success": {"boolValue": False},
        "share": {"doubleValue": 0.5},
    }
    odd: dict[str, Any] = {
        "list": {"arrayValue": {}},
        "much": {"intValue": "a prompt"},
        "wide": {"doubleValue": "a prompt"},
        "sure": {"boolValue": "a prompt"},
        "none": {},
        "a prompt": {"intValue": 1},
    }
    told = span(1, user_prompt=said, duration_ms={"intValue": 3}, **plain, **odd)
    strange = (
        {**told, "spanId": 1},
        {**told, "spanId": "x" * 16},
        {**told, "startTimeUnixNano": {}},
        {**told, "parentSpanId": None},
        span(9, trace="ef" * 16),
        7,
    )
    for keeps_text in (False, True):
        kept = tmp_path / str(keeps_text) / "spans.jsonl"
        trace = CliTrace(parent=f"00-{'ab' * 16}-{'cd' * 8}-01", spans=kept, keeps_text=keeps_text)
        with TelemetryReceiver(tmp_path / "telemetry.jsonl", trace).serving() as environment:
            client = Client(environment)
            assert environment["TRACEPARENT"] == trace.parent
            assert environment["OTEL_TRACES_EXPORTER"] == "otlp"
            assert client.post("/v1/traces", spans(*strange)) == 200
            assert not kept.exists()
            assert client.post("/v1/traces", spans(told, span(2))) == 200
            assert client.post("/v1/traces", spans(span(3), span(4))) == 200
        first, *others = map(json.loads, kept.read_text().splitlines())
        numbers = [int(one["spanId"], 16) for one in (first, *others)]
        assert numbers == [1, 2, 3]
        facts = {one["key"]: one["value"] for one in first["attributes"]}
        expected = plain | {"duration_ms": {"intValue": "3"}}
        assert facts == expected | ({"user_prompt": said} if keeps_text else {})
        assert (first["endTimeUnixNano"], first["status"]) == ("7", {"code": 2})
        assert ("a prompt" in kept.read_text()) is keeps_text


def test_without_an_export_of_traces_the_spans_of_the_cli_are_not_asked_for(tmp_path):
    trace = CliTrace(parent=f"00-{'ab' * 16}-{'cd' * 8}-01")
    with TelemetryReceiver(tmp_path / "telemetry.jsonl", trace).serving() as environment:
        assert environment["TRACEPARENT"] == trace.parent
        assert "OTEL_TRACES_EXPORTER" not in environment
        assert Client(environment).post("/v1/traces", spans(span(1))) == 200
    assert list(tmp_path.iterdir()) == []
