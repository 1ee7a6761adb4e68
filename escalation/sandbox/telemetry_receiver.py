"""Receives the CLI's own telemetry of one run: a second count of its cost and tokens.

An OTLP receiver (http/json) on loopback, with a token of the run. What it reads of the CLI's events
and metrics is appended to a file at once, which survives the process: a killed run leaves what was
answered until then. Prompts and outputs are not asked for. Where traces are exported, the spans of
the CLI's own trace are kept in another file; everything else is dropped.
"""

from __future__ import annotations

import hmac
import io
import json
import logging
import math
import re
import secrets
import socket
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import islice
from pathlib import Path
from typing import Any

from escalation.agent.api_request import MAX_MODEL_LENGTH
from escalation.agent.stream import COST_STEP, Tokens
from escalation.sandbox.api_proxy import RequestReader, append_line, shut_down
from sessions_app.text import cut, mapping

logger = logging.getLogger(__name__)

TELEMETRY_NAME = "telemetry.jsonl"
"""Name of the file in the directory of the run."""
MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_CONNECTIONS = 16
MAX_ENTRIES = 20_000
"""Of one run; one request of the CLI has about five."""
MOST_USD = 100_000.0
RUN_HEADER = "x-claudeops-run"
TRACES_PATH = "/v1/traces"
PATHS = {"/v1/metrics", "/v1/logs", TRACES_PATH}
EVENT, COST_METRIC = "api_request", "claude_code.cost.usage"
EVENT_TOKENS = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cache_read": "cache_read_tokens",
    "cache_creation": "cache_creation_tokens",
}
INTERNAL, FAILED = 1, 2
"""Kind of a span, and the code of a failed one, in OTLP."""
CUMULATIVE = 2
"""Value of `aggregationTemporality` in which each point holds the sum since the start."""
EXPORT_MS = {"OTEL_METRIC_EXPORT_INTERVAL": "1000", "OTEL_LOGS_EXPORT_INTERVAL": "250"}
MAX_SPANS, MAX_SPAN_BYTES = 2_000, 2 * 1024 * 1024
"""Of one run."""
MAX_ATTRIBUTES = 50
LONGEST_TEXT, LONGEST_CONTENT = 200, 4_000
TEXTS = {
    *("session.id", "span.type", "model", "llm_request.context", "query_source_safe"),
    *("stop_reason", "speed", "effort", "tool_name", "tool_use_id", "decision", "source"),
    *("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model"),
    *("gen_ai.conversation.id", "gen_ai.tool.name", "gen_ai.tool.call.id"),
}
"""Attributes of spans whose text is kept; others may hold prompts, commands or outputs."""
END_MS = "1000"
"""Longest wait of a CLI at its end for its last exports."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CliTelemetry:
    """The CLI's own count of one run."""

    by_event: Decimal = Decimal(0)
    """Cost of all answered requests, by the events of the CLI."""
    by_metric: Decimal = Decimal(0)
    """Cost by the metric of the CLI."""
    requests: int = 0
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def cost_usd(self) -> Decimal:
        """The larger count: of a killed run either may lack the last answer."""
        return max(self.by_event, self.by_metric)

    @property
    def is_empty(self) -> bool:
        return not self.requests and not self.by_metric


@dataclass(frozen=True, kw_only=True, slots=True)
class CliTrace:
    """The trace that the spans of a CLI belong to."""

    parent: str
    """The span of the session, as W3C Trace Context names it (`TRACEPARENT`)."""
    spans: Path | None = None
    """File for the spans of the CLI; without one they are not asked for."""
    keeps_text: bool = False
    """Keep all attributes, also those with prompts, commands and outputs."""

    @property
    def trace_id(self) -> str:
        return self.parent.split("-")[1]

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the CLI. Versions before 2.1 know none of them."""
        asked = {
            "CLAUDE_CODE_ENHANCED_TELEMETRY_BETA": "1",
            "OTEL_TRACES_EXPORTER": "otlp",
            "OTEL_TRACES_EXPORT_INTERVAL": "500",
        }
        return {"TRACEPARENT": self.parent, **(asked if self.spans else {})}


Entry = dict[str, Any]


def entries_in(path: str, body: Mapping[str, Any]) -> Iterator[Entry]:
    """Yield what is kept of one export. Unknown data yields nothing."""
    if path == "/v1/logs":
        for record in _items(body, "resourceLogs", "scopeLogs", "logRecords"):
            yield from _from_event(record)
    elif path == "/v1/metrics":
        for metric in _items(body, "resourceMetrics", "scopeMetrics", "metrics"):
            if metric.get("name") == COST_METRIC:
                yield from _from_metric(mapping(metric.get("sum")))


def _items(body: Mapping[str, Any], *path: str) -> Iterator[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = [body]
    for name in path:
        found = [
            item for one in found for item in _listed(one.get(name)) if isinstance(item, Mapping)
        ]
    yield from found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _from_event(record: Mapping[str, Any]) -> Iterator[Entry]:
    facts = attributes_of(record)
    if facts.get("event.name") not in (EVENT, f"claude_code.{EVENT}"):
        return
    cost = _amount(facts.get("cost_usd"))
    if cost is None:
        return
    place = facts.get("event.sequence", record.get("timeUnixNano"))
    yield {
        "kind": "event",
        "key": _text(f"{facts.get('session.id')} {place} {facts.get('request_id')}"),
        "model": _text(facts.get("model"))[:MAX_MODEL_LENGTH],
        "cost": cost,
        **{kind: _count(facts.get(name)) for kind, name in EVENT_TOKENS.items()},
    }


def _from_metric(total: Mapping[str, Any]) -> Iterator[Entry]:
    is_cumulative = total.get("aggregationTemporality") in (CUMULATIVE, "CUMULATIVE")
    for point in _listed(total.get("dataPoints")):
        if not isinstance(point, Mapping):
            continue
        value = _amount(point.get("asDouble", point.get("asInt")))
        if value is None:
            continue
        facts = attributes_of(point)
        place = [facts.get(name) for name in ("session.id", "model", "query_source")]
        moments = [point.get("startTimeUnixNano")]
        moments += [] if is_cumulative else [point.get("timeUnixNano")]
        labels = json.dumps(facts, sort_keys=True, default=str)
        key = _text(f"{place} {moments} {hash_of(labels)}")
        yield {"kind": "metric", "key": key, "cost": value}


def spans_in(body: Mapping[str, Any], trace: CliTrace) -> Iterator[Entry]:
    """Yield the spans of one export that belong to the trace, without what is not to be kept."""
    for span in _items(body, "resourceSpans", "scopeSpans", "spans"):
        parent = span.get("parentSpanId")
        times = [str(span.get(f"{name}TimeUnixNano")) for name in ("start", "end")]
        if (
            span.get("traceId") != trace.trace_id
            or not _matches(r"[0-9a-f]{16}", span.get("spanId"), parent)
            or not _matches(r"[0-9]{1,20}", *times)
        ):
            continue
        failed = mapping(span.get("status")).get("code") == FAILED
        yield {
            "traceId": trace.trace_id,
            "spanId": span["spanId"],
            "parentSpanId": parent,
            "name": _text(span.get("name"))[:LONGEST_TEXT],
            "kind": INTERNAL,
            "startTimeUnixNano": times[0],
            "endTimeUnixNano": times[1],
            "attributes": list(islice(_kept_attributes(span, trace.keeps_text), MAX_ATTRIBUTES)),
            **({"status": {"code": FAILED}} if failed else {}),
        }


def _matches(pattern: str, *values: object) -> bool:
    return all(isinstance(value, str) and re.fullmatch(pattern, value) for value in values)


def _kept_attributes(span: Mapping[str, Any], keeps_text: bool) -> Iterator[Entry]:
    for pair in _items(span, "attributes"):
        name = str(pair.get("key"))
        kind, value = next(iter(mapping(pair.get("value")).items()), ("", None))
        if not re.fullmatch(r"[a-zA-Z0-9_.]{1,100}", name):
            continue
        if kind == "boolValue" and isinstance(value, bool):
            yield {"key": name, "value": {kind: value}}
        elif kind == "intValue" and re.fullmatch(r"-?[0-9]{1,18}", str(value)):
            # A number or, as the specification has it, a text.
            yield {"key": name, "value": {kind: str(value)}}
        elif kind == "doubleValue" and isinstance(value, float) and math.isfinite(value):
            yield {"key": name, "value": {kind: value}}
        elif kind == "stringValue" and isinstance(value, str) and (keeps_text or name in TEXTS):
            text = cut(value, LONGEST_CONTENT if keeps_text else LONGEST_TEXT)
            yield {"key": name, "value": {kind: text}}


def hash_of(text: str) -> str:
    return hmac.new(b"", text.encode("utf-8", "replace"), "sha256").hexdigest()[:16]


def attributes_of(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes with their plain values."""
    pairs = (pair for pair in _listed(item.get("attributes")) if isinstance(pair, Mapping))
    return {
        str(pair.get("key")): next(iter(mapping(pair.get("value")).values()), None)
        for pair in pairs
    }


def _text(value: Any) -> str:
    return str(value)[:300]


def _amount(value: Any) -> float | None:
    """Return a plausible number of dollars, or None."""
    try:
        amount = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return amount if math.isfinite(amount) and 0 <= amount <= MOST_USD else None


def _count(value: Any) -> int:
    try:
        count = int(value)
    except (TypeError, ValueError, OverflowError):
        return 0
    return min(max(count, 0), 2**53)


def read_telemetry(path: Path) -> CliTelemetry | None:
    """Sum the file; None without one. An entry that came twice counts once."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    entries: dict[tuple[str, str], Entry] = {}
    for line in lines:
        with suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict):
                entries[str(entry.get("kind")), str(entry.get("key"))] = entry
    events = [entry for (kind, _key), entry in entries.items() if kind == "event"]
    tokens = [
        Tokens(**{kind: _count(entry.get(kind)) for kind in EVENT_TOKENS}) for entry in events
    ]
    return CliTelemetry(
        by_event=_sum(events),
        by_metric=_sum(entry for (kind, _key), entry in entries.items() if kind == "metric"),
        requests=len(events),
        tokens=sum(tokens, Tokens()),
    )


def _sum(entries: Iterable[Entry]) -> Decimal:
    amounts = [Decimal(repr(_amount(entry.get("cost")) or 0.0)) for entry in entries]
    return sum(amounts, Decimal(0)).quantize(COST_STEP)


class TelemetryReceiver:
    """Serves one run from threads of this process, on loopback."""

    def __init__(self, ledger: Path, trace: CliTrace | None = None) -> None:
        self._ledger = ledger
        self._trace = trace
        self._spans, self._span_bytes = 0, 0
        self._token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self._entries = 0

    @contextmanager
    def serving(self) -> Iterator[dict[str, str]]:
        """Yield the variables that make the CLI send its telemetry here."""
        server = _ReceiverServer(self)
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="telemetry", daemon=True
        )
        thread.start()
        try:
            yield self._environment(f"http://127.0.0.1:{server.server_port}")
        finally:
            shut_down(server)
            server.server_close()
            server.cut_all()

    def _environment(self, address: str) -> dict[str, str]:
        return {
            "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
            "OTEL_METRICS_EXPORTER": "otlp",
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
            "OTEL_EXPORTER_OTLP_ENDPOINT": address,
            "OTEL_EXPORTER_OTLP_HEADERS": f"{RUN_HEADER}={self._token}",
            "OTEL_EXPORTER_OTLP_TIMEOUT": END_MS,
            "CLAUDE_CODE_OTEL_SHUTDOWN_TIMEOUT_MS": END_MS,
            "CLAUDE_CODE_OTEL_FLUSH_TIMEOUT_MS": END_MS,
            **EXPORT_MS,
            **(self._trace.environment if self._trace else {}),
        }

    def accepts(self, token: str) -> bool:
        return hmac.compare_digest(token.encode("utf-8", "replace"), self._token.encode())

    def take(self, path: str, body: Mapping[str, Any]) -> None:
        """Keep the entries of one export. A full disk is only logged."""
        with self._lock:
            if path == TRACES_PATH:
                return self._take_spans(body)
            for entry in entries_in(path, body):
                if self._entries >= MAX_ENTRIES:
                    return
                self._entries += 1
                try:
                    append_line(self._ledger, json.dumps(entry).encode() + b"\n")
                except OSError as problem:
                    logger.warning("Could not keep telemetry of the CLI: %s", problem)
                    return

    def _take_spans(self, body: Mapping[str, Any]) -> None:
        if self._trace is None or self._trace.spans is None:
            return
        for span in spans_in(body, self._trace):
            line = json.dumps(span).encode() + b"\n"
            self._spans, self._span_bytes = self._spans + 1, self._span_bytes + len(line)
            if self._spans > MAX_SPANS or self._span_bytes > MAX_SPAN_BYTES:
                return
            try:
                self._trace.spans.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
                append_line(self._trace.spans, line)
            except OSError as problem:
                logger.warning("Could not keep a span of the CLI: %s", problem)
                return


class _ReceiverServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, receiver: TelemetryReceiver) -> None:
        self.receiver = receiver
        self._clients: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _ReceiverHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        with self._lock:
            return len(self._clients) < MAX_CONNECTIONS

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._clients.discard(request)
        super().shutdown_request(request)

    def cut_all(self) -> None:
        with self._lock:
            for client in self._clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("An export of the CLI ended early", exc_info=True)


class _ReceiverHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._reader = RequestReader(self.connection)
        self.rfile = io.BufferedReader(self._reader)

    def handle_one_request(self) -> None:
        self._reader.next_request()
        super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request line may hold anything."""

    def do_POST(self) -> None:
        receiver: TelemetryReceiver = self.server.receiver  # type: ignore[attr-defined]
        if not receiver.accepts(self.headers.get(RUN_HEADER, "")):
            return self._refuse(401)
        if self.path not in PATHS:
            return self._refuse(404)
        try:
            body = json.loads(self._content())
        except OverflowError:
            return self._refuse(413)
        except (ValueError, RecursionError):
            return self._refuse(400)
        if not isinstance(body, dict):
            return self._refuse(400)
        receiver.take(self.path, body)
        self._answer(200, b"{}")

    def _content(self) -> bytes:
        """Read the body; raise OverflowError if it is too long, ValueError if it is not whole."""
        if self.headers.get("transfer-encoding", "").lower() == "chunked":
            # Of the older CLIs.
            self._reader.expect(2 * MAX_BODY_BYTES)
            content = b"".join(self._chunks())
        else:
            length = _length(self.headers.get("content-length", "").encode(), 10)
            self._reader.expect(length)
            content = self.rfile.read(length)
            if len(content) < length:
                raise ValueError("the body is not whole")
        return content

    def _chunks(self) -> Iterator[bytes]:
        left = MAX_BODY_BYTES
        while length := _length(self.rfile.readline(100).partition(b";")[0].strip(), 16):
            left -= length
            if left < 0:
                raise OverflowError
            chunk = self.rfile.read(length)
            if len(chunk) < length or self.rfile.readline(3) != b"\r\n":
                raise ValueError("a chunk is not whole")
            yield chunk
        while self.rfile.readline(1000).strip():
            """Trailers are ignored."""

    def _refuse(self, status: int) -> None:
        """Close: the body was not read, and nothing else is to follow."""
        self.close_connection = True
        self._answer(status, b'{"message": "refused"}')

    def _answer(self, status: int, content: bytes) -> None:
        self.send_response_only(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        self.wfile.write(content)


def _length(stated: bytes, base: int) -> int:
    """Return a length of at most `MAX_BODY_BYTES`; raise OverflowError or ValueError."""
    if not stated.isalnum() or len(stated) > 12:
        raise ValueError("no length is stated")
    length = int(stated, base)
    if length > MAX_BODY_BYTES:
        raise OverflowError
    return length
