"""Exports traces by OpenTelemetry (OTLP over HTTP, as JSON), from the record.

A cycle is a trace; its sessions, and their tool calls, are spans. The spans of the CLI itself,
which the telemetry receiver has kept in a file, are sent with those of their session. A thread of
the worker sends them: a collector that hangs or fails delays no session.
"""

from __future__ import annotations

import http.client
import json
import logging
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import Any
from urllib.parse import unquote, urlsplit

from django.conf import settings
from django.db.models import Exists, F, OuterRef, Q
from django.utils import timezone

from escalation.agent.stream import calls_of, output_of, results_of, text_in
from escalation.run.prepare import cli_spans_directory, cli_spans_of
from sessions_app.models import Cycle, MetricTotal, Session, SessionEvent, TraceExport
from sessions_app.models.session import LONG_FIELDS, SPOKEN
from sessions_app.models.telemetry import session_span_id, span_id, trace_id
from sessions_app.redaction.redact import redacted, redacted_data
from sessions_app.text import cut, mapping, one_line

logger = logging.getLogger(__name__)

SCHEMA_URL = "https://opentelemetry.io/schemas/1.37.0"
"""Version of the semantic conventions whose names are used, the generative AI ones among them."""
PROVIDER = "anthropic"
INTERNAL, CLIENT, ERROR = 1, 3, 2
"""Kinds of spans, and the code of a failed one, in OTLP."""
LONGEST_CONTENT = 4_000
MOST_SPANS = 10_000
"""Of one session; later tool calls are left out."""
SPANS_AT_ONCE = 500

# Spans, from rows.

Span = dict[str, Any]


def spans_of(cycle: Cycle, sessions: Iterable[Session]) -> Iterator[Span]:
    """Yield the span of the cycle, then those of the sessions, each with its tool calls."""
    yield _cycle_span(cycle)
    for session in sessions:
        yield _session_span(cycle, session)
        yield from islice(_tool_spans(cycle, session), MOST_SPANS)


def _cycle_span(cycle: Cycle) -> Span:
    facts = {
        "claudeops.cycle": cycle.pk,
        "claudeops.watch": cycle.watch_name,
        "claudeops.drill": cycle.drill,
        "claudeops.trigger": cycle.trigger,
        "claudeops.outcome": cycle.outcome,
        "claudeops.cost_usd": float(
            sum(one.cost_usd or 0 for one in cycle.sessions.only("cost_usd"))
        ),
    }
    failed = cycle.outcome == Cycle.Outcome.COULD_NOT_RUN
    name = f"cycle {cycle.watch_name or cycle.drill}"
    return _span(
        cycle,
        "cycle",
        name,
        "",
        (cycle.created_at, cycle.finished_at),
        facts,
        error=cycle.outcome_reason if failed else "",
    )


def _session_span(cycle: Cycle, session: Session) -> Span:
    cached = session.cache_read_tokens, session.cache_creation_tokens
    facts = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.agent.name": f"Tier {session.tier}",
        "gen_ai.request.model": session.model,
        "gen_ai.response.model": session.model_used,
        "gen_ai.conversation.id": session.session_id,
        "gen_ai.usage.input_tokens": session.input_tokens + sum(cached),
        "gen_ai.usage.output_tokens": session.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": cached[0],
        "gen_ai.usage.cache_creation.input_tokens": cached[1],
        "claudeops.session": session.pk,
        "claudeops.watch": cycle.watch_name,
        "claudeops.tier": session.tier,
        "claudeops.purpose": session.purpose,
        "claudeops.status": session.status,
        "claudeops.continued_by": session.continued_by,
        "claudeops.cost_usd": None if session.cost_usd is None else float(session.cost_usd),
        "claudeops.cost_basis": session.cost_basis,
        "claudeops.host": session.host,
    }
    if settings.CLAUDEOPS_TRACE_CONTENT:
        facts["gen_ai.input.messages"] = _content(session.prompt)
        facts["gen_ai.output.messages"] = _content(session.result)
    ended_well = session.status in Session.GOOD_STATUSES
    return _span(
        cycle,
        f"session {session.pk}",
        f"invoke_agent Tier {session.tier}",
        span_id(cycle, "cycle"),
        (session.started_at or session.created_at, session.finished_at),
        facts,
        error="" if ended_well else session.error or session.status,
        error_type=session.stop_cause or session.status,
        kind=CLIENT,
    )


def _tool_spans(cycle: Cycle, session: Session) -> Iterator[Span]:
    begun: dict[str, tuple[Any, datetime]] = {}
    spoken = session.events.filter(source=SessionEvent.Source.STREAM, kind__in=SPOKEN)
    for event in spoken.order_by("sequence").only("payload", "created_at").iterator(100):
        line = mapping(event.payload)
        for call in calls_of(line):
            begun[text_in(call.get("id"))] = call, event.created_at
        for result in results_of(line):
            number = text_in(result.get("tool_use_id"))
            if number in begun:
                call, at = begun.pop(number)
                yield _tool_span(cycle, session, call, result, (at, event.created_at))
    for call, at in begun.values():
        yield _tool_span(cycle, session, call, None, (at, session.finished_at))


def _tool_span(
    cycle: Cycle, session: Session, call: Any, result: Any, times: tuple[datetime, datetime | None]
) -> Span:
    number, tool = text_in(call.get("id")), text_in(call.get("name"))
    facts = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": tool,
        "gen_ai.tool.call.id": number,
        "gen_ai.tool.type": "function",
        "gen_ai.conversation.id": session.session_id,
        "claudeops.session": session.pk,
        "claudeops.tier": session.tier,
    }
    if settings.CLAUDEOPS_TRACE_CONTENT:
        given = redacted_data(call.get("input"))
        facts["gen_ai.tool.call.arguments"] = _content(json.dumps(given, ensure_ascii=False))
        facts["gen_ai.tool.call.result"] = _content(output_of(mapping(result)))
    is_cut = result is None
    failed = is_cut or bool(result.get("is_error"))
    return _span(
        cycle,
        f"session {session.pk} call {number}",
        f"execute_tool {tool}",
        session_span_id(session),
        times,
        facts,
        error=("cut off" if is_cut else "the tool reported an error") if failed else "",
        error_type="cut_off" if is_cut else "tool_error",
    )


def _content(text: str) -> str:
    return cut(redacted(text), LONGEST_CONTENT)


def _span(
    cycle: Cycle,
    key: str,
    name: str,
    parent: str,
    times: tuple[datetime, datetime | None],
    facts: dict[str, Any],
    *,
    error: str = "",
    error_type: str = "",
    kind: int = INTERNAL,
) -> Span:
    began, ended = times
    if error_type and error:
        facts["error.type"] = error_type
    return {
        "traceId": trace_id(cycle),
        "spanId": span_id(cycle, key),
        **({"parentSpanId": parent} if parent else {}),
        "name": one_line(redacted(name), 200),
        "kind": kind,
        "startTimeUnixNano": _nanoseconds(began),
        "endTimeUnixNano": _nanoseconds(max(began, ended or began)),
        "attributes": attributes(facts),
        **({"status": {"code": ERROR, "message": one_line(redacted(error), 300)}} if error else {}),
    }


def _nanoseconds(moment: datetime) -> str:
    return str(int(moment.timestamp() * 1_000_000) * 1000)


def attributes(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """Return attributes of OTLP; empty values are left out, text is redacted."""
    return [
        {"key": key, "value": _value(value)}
        for key, value in facts.items()
        if value is not None and value != ""
    ]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, int):
        return {"intValue": str(value)}
    if isinstance(value, float):
        return {"doubleValue": value}
    return {"stringValue": redacted(str(value))}


def cli_spans(session: Session) -> list[Span]:
    """Return the spans that the CLI of this session sent to this host, with redacted text.

    A line that cannot be read is left out.
    """
    try:
        lines = cli_spans_of(session).read_bytes().splitlines()
    except OSError:
        return []
    found: dict[str, Span] = {}
    for line in lines:
        try:
            span = json.loads(line)
            texts = {name: redacted_data(span[name]) for name in ("name", "attributes")}
            found[span["spanId"]] = {**span, **texts}
        except (ValueError, RecursionError, TypeError, KeyError):
            continue
    return list(found.values())


def body_of(spans: Sequence[Span], service: str = "claudeops", version: str = "") -> bytes:
    version = version or settings.CLAUDEOPS_VERSION
    resource = {"service.name": service, "service.version": version}
    scope = {"name": service, "version": version}
    scoped = {"scope": scope, "spans": list(spans), "schemaUrl": SCHEMA_URL}
    exported = {
        "resource": {"attributes": attributes(resource)},
        "scopeSpans": [scoped],
        "schemaUrl": SCHEMA_URL,
    }
    return json.dumps({"resourceSpans": [exported]}).encode()


# Sending.

TIMEOUT_SECONDS = 10.0
CLAIMED_FOR = timedelta(minutes=5)
WAITS = tuple(timedelta(seconds=seconds) for seconds in (10, 60, 300, 1800))
"""Before each further try; after the last the export has failed."""
AT_ONCE = 20
SENT_AGAIN_FOR = timedelta(days=1)
"""For so long, failed exports are tried again once the collector answers."""
OTHER_HOSTS_WAIT = timedelta(minutes=1)
"""Lead of the host that ran a cycle: the spans of the CLI are in files there."""
REFUSED = {400, 413}
"""Status codes by which a collector refuses the trace itself."""


@dataclass(frozen=True, slots=True)
class Failure:
    why: str
    is_refused: bool = False


def is_due() -> bool:
    return bool(settings.OTEL_TRACES_URL) and _due().exists()


def _due() -> Any:
    now = timezone.now()
    waiting = TraceExport.objects.filter(state=TraceExport.State.WAITING, due_at__lte=now)
    elsewhere = Session.objects.filter(cycle=OuterRef("cycle")).exclude(
        host__in=("", socket.gethostname())
    )
    mine = Q(due_at__lte=now - OTHER_HOSTS_WAIT) | ~Exists(elsewhere)
    return waiting.filter(mine).order_by("due_at")


def export_due() -> None:
    """Send what is due, up to the first failure of the collector."""
    _remove_old_files()
    for export in list(_due().select_related("cycle")[:AT_ONCE]):
        if (failure := export_one(export)) and not failure.is_refused:
            return


def export_one(export: TraceExport) -> Failure | None:
    """Send one trace, unless another worker does; store the result."""
    claimed = TraceExport.objects.filter(
        pk=export.pk, state=TraceExport.State.WAITING, due_at=export.due_at
    )
    until = timezone.now() + CLAIMED_FOR
    if not claimed.update(due_at=until, tries=F("tries") + 1):
        return None
    cycle = export.cycle
    ended = cycle.sessions.filter(finished_at__isnull=False).order_by("finished_at", "pk")
    if export.sent_until:
        ended = ended.filter(finished_at__gt=export.sent_until)
    keeps_text = settings.CLAUDEOPS_TRACE_CONTENT
    sessions = list(ended if keeps_text else ended.defer(*LONG_FIELDS))
    failure = None
    for spans in _batches(spans_of(cycle, sessions)):
        if failure := post(body_of(spans)):
            break
    failure = failure or _send_cli_spans(sessions)
    # A cycle that has ended again meanwhile is due by its new time.
    mine = TraceExport.objects.filter(pk=export.pk, due_at=until)
    if failure is None:
        _sent(mine, sessions)
    else:
        _failed(mine, export.tries + 1, failure)
    return failure


def _send_cli_spans(sessions: Iterable[Session]) -> Failure | None:
    """Send the spans of the CLI. If the collector refuses them, the trace is without them."""
    for session in sessions:
        for spans in _batches(cli_spans(session)):
            failure = post(body_of(spans, "claude-code", session.cli_version.split(" ")[0]))
            if failure and not failure.is_refused:
                return failure
            if failure:
                logger.warning("Session %s: spans of the CLI: %s", session.pk, failure.why)
        cli_spans_of(session).unlink(missing_ok=True)
    return None


def _remove_old_files() -> None:
    """Remove the spans of the CLI of traces that were not sent within a day."""
    oldest = time.time() - SENT_AGAIN_FOR.total_seconds()
    for path in cli_spans_directory().glob("session-*.jsonl"):
        try:
            if path.stat().st_mtime < oldest:
                path.unlink(missing_ok=True)
        except OSError:
            continue


def _batches(spans: Iterable[Span]) -> Iterator[Sequence[Span]]:
    found = iter(spans)
    while batch := list(islice(found, SPANS_AT_ONCE)):
        yield batch


def _sent(mine: Any, sessions: Sequence[Session]) -> None:
    until = {"sent_until": sessions[-1].finished_at} if sessions else {}
    mine.update(state=TraceExport.State.SENT, error="", **until)
    MetricTotal.add(MetricTotal.Name.TRACES, "sent")
    lately = timezone.now() - SENT_AGAIN_FOR
    failed = TraceExport.objects.filter(state=TraceExport.State.FAILED, is_refused=False)
    failed.filter(due_at__gte=lately).update(
        state=TraceExport.State.WAITING, due_at=timezone.now(), tries=0
    )


def _failed(mine: Any, tries: int, failure: Failure) -> None:
    why = one_line(redacted(failure.why), 300)
    if not failure.is_refused and tries <= len(WAITS):
        mine.update(due_at=timezone.now() + WAITS[tries - 1], error=why)
        logger.warning("A trace could not be exported, and is tried again: %s", why)
        return
    mine.update(
        state=TraceExport.State.FAILED,
        due_at=timezone.now(),
        error=why,
        is_refused=failure.is_refused,
    )
    MetricTotal.add(MetricTotal.Name.TRACES, "refused" if failure.is_refused else "failed")
    logger.warning("A trace could not be exported, and is given up: %s", why)


# How it goes.

FAILED_COUNTED = 100
CHECK_COLLECTOR = (
    "Check that the collector runs and takes OTLP over HTTP, and check OTEL_EXPORTER_OTLP_ENDPOINT "
    "and OTEL_EXPORTER_OTLP_HEADERS. Traces of the last day are sent once it answers."
)
CHECK_FORMAT = (
    "The collector refuses what it is sent: check that it takes OTLP as JSON, and its limit for "
    "the size of a request. A refused trace is not sent again."
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Exports:
    """State of the export of traces: what failed within a day, and what is tried again."""

    collector: str
    failed: int
    late: TraceExport | None
    """The next one that is tried again."""
    last: TraceExport | None
    """The one that tells why: the one tried again, or the last that failed."""

    @property
    def said(self) -> str:
        if self.last is None:
            return f"sent to {self.collector}"
        many = "+" if self.failed == FAILED_COUNTED else ""
        states = [f"{self.failed}{many} failed"] if self.failed else []
        states += ["some are tried again"] if self.late else []
        return f"{', '.join(states)}; cycle {self.last.cycle_id}: {self.last.error}"

    @property
    def advice(self) -> str:
        if self.last is None:
            return ""
        return CHECK_FORMAT if self.last.is_refused else CHECK_COLLECTOR


def exports() -> Exports:
    """Make two queries."""
    since = timezone.now() - SENT_AGAIN_FOR
    latest = TraceExport.objects.filter(state=TraceExport.State.FAILED).order_by("-pk")
    failed = [export for export in latest[:FAILED_COUNTED] if export.due_at >= since]
    waiting = TraceExport.objects.filter(state=TraceExport.State.WAITING, tries__gt=0)
    late = waiting.order_by("due_at").first()
    url = urlsplit(settings.OTEL_TRACES_URL)
    return Exports(
        collector=url._replace(netloc=url.netloc.rpartition("@")[2], query="").geturl(),
        failed=len(failed),
        late=late,
        last=late or (failed[0] if failed else None),
    )


def headers() -> dict[str, str]:
    pairs = (pair.partition("=") for pair in settings.OTEL_TRACES_HEADERS.split(","))
    return {name.strip(): unquote(value.strip()) for name, equals, value in pairs if equals}


def post(body: bytes) -> Failure | None:
    """Send one request; return why it failed. A redirect, which could lead away, is a failure."""
    url = urlsplit(settings.OTEL_TRACES_URL)
    secure = url.scheme == "https"
    kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
    connection = kind(url.hostname or "", url.port, timeout=TIMEOUT_SECONDS)
    try:
        target = url.path + (f"?{url.query}" if url.query else "")
        connection.request(
            "POST", target or "/", body, {**headers(), "content-type": "application/json"}
        )
        answer = connection.getresponse()
        if 200 <= answer.status < 300:
            return None
        return Failure(f"the collector answered {answer.status}", answer.status in REFUSED)
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Failure(f"the collector cannot be reached: {error}")
    finally:
        connection.close()
