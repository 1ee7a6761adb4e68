"""Traces by OpenTelemetry: the spans of a cycle, and a collector that takes, fails or hangs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone

from escalation.management.commands.doctor import _traces
from escalation.run.prepare import cli_spans_of
from escalation.worker import traces
from escalation.worker.notifier import Notifier
from sessions_app.models import Cycle, MetricTotal, Session, TraceExport
from sessions_app.models.telemetry import trace_id, traceparent
from tests.escalation.notifications.post_offices import Webhook, webhook
from tests.factories import CycleFactory, SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db
SECRET = "ghp_" + "a1B2" * 9
State = TraceExport.State


@pytest.fixture
def collector(settings) -> Iterator[Webhook]:
    with webhook() as hook:
        settings.OTEL_TRACES_URL = f"http://{hook.place}/v1/traces"
        settings.OTEL_TRACES_HEADERS = "x-key=a%20b, other=1"
        yield hook


@pytest.fixture
def ended(collector) -> Cycle:
    """A cycle of two tiers, the first with a tool call that ended and one that was cut off."""
    cycle = CycleFactory(running=True, watch_name="shop", trigger="schedule")
    began = timezone.now() - timedelta(minutes=1)
    first = SessionFactory(
        cycle=cycle,
        tier=1,
        model="haiku",
        status=Session.Status.FAILED,
        started_at=began,
        input_tokens=10,
        cache_read_tokens=5,
        output_tokens=3,
        prompt="Look at the shop.",
        error=f"It said {SECRET}",
    )
    SessionFactory(cycle=cycle, tier=2, cost_usd=Decimal("0.5"), parent_session=first)
    call(first, 1, "a", began)
    result(first, 2, "a", began + timedelta(seconds=2), is_error=True)
    call(first, 3, "b", began + timedelta(seconds=3))
    assert cycle.finish(Cycle.Outcome.FIXED, "mended")
    return cycle


def call(session: Session, number: int, name: str, at: Any) -> None:
    block = {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": f"x {SECRET}"}}
    message = {"type": "assistant", "message": {"content": [block]}}
    SessionEventFactory(session=session, sequence=number, payload=message, created_at=at)


def result(session: Session, number: int, name: str, at: Any, *, is_error: bool) -> None:
    block = {"type": "tool_result", "tool_use_id": name, "content": "gone", "is_error": is_error}
    message = {"type": "user", "message": {"content": [block]}}
    SessionEventFactory(
        session=session, sequence=number, kind="user", payload=message, created_at=at
    )


def spans_in(hook: Webhook) -> list[dict[str, Any]]:
    return [
        span
        for body in hook.got
        for resource in body["resourceSpans"]
        for scope in resource["scopeSpans"]
        for span in scope["spans"]
    ]


def facts(span: dict[str, Any]) -> dict[str, Any]:
    return {pair["key"]: next(iter(pair["value"].values())) for pair in span["attributes"]}


def test_a_cycle_is_a_trace_with_sessions_and_tool_calls_as_spans(ended, collector):
    traces.export_due()

    (path, headers, _body), *others = collector.requests
    assert (path, headers["x-key"], headers["other"], others) == ("/v1/traces", "a b", "1", [])
    assert collector.got[0]["resourceSpans"][0]["schemaUrl"] == traces.SCHEMA_URL
    cycle, first, done, cut, second = spans_in(collector)
    assert {span["traceId"] for span in spans_in(collector)} == {trace_id(ended)}
    assert "parentSpanId" not in cycle
    parents = [span["parentSpanId"] for span in (first, done, cut, second)]
    assert parents == [cycle["spanId"], first["spanId"], first["spanId"], cycle["spanId"]]
    assert facts(cycle)["claudeops.outcome"] == "fixed"
    assert facts(cycle)["claudeops.watch"] == "shop"
    assert facts(cycle)["claudeops.cost_usd"] == pytest.approx(0.53)
    told = facts(first)
    assert told["gen_ai.operation.name"] == "invoke_agent"
    assert told["gen_ai.provider.name"] == "anthropic"
    assert told["gen_ai.request.model"] == "haiku"
    assert told["gen_ai.conversation.id"] == ended.sessions.get(tier=1).session_id
    counts = ("input_tokens", "output_tokens", "cache_read.input_tokens")
    assert [told[f"gen_ai.usage.{name}"] for name in counts] == ["15", "3", "5"]
    assert (told["claudeops.tier"], told["error.type"]) == ("1", "failed")
    assert [span.get("status", {}).get("code") for span in (first, second)] == [2, None]
    assert facts(done)["gen_ai.operation.name"] == "execute_tool"
    assert (facts(done)["gen_ai.tool.name"], facts(done)["gen_ai.tool.call.id"]) == ("Bash", "a")
    took = int(done["endTimeUnixNano"]) - int(done["startTimeUnixNano"])
    assert took == pytest.approx(2e9, abs=1e6)
    assert [facts(span)["error.type"] for span in (done, cut)] == ["tool_error", "cut_off"]
    sent = json.dumps(collector.got)
    assert (SECRET in sent, "Look at the shop" in sent, "gone" in sent) == (False, False, False)
    assert TraceExport.objects.get().state == State.SENT
    traces.export_due()
    assert len(collector.got) == 1


def test_content_is_exported_redacted_where_a_setting_asks_for_it(ended, collector, settings):
    settings.CLAUDEOPS_TRACE_CONTENT = True
    traces.export_due()
    sent = json.dumps(collector.got)
    assert ("Look at the shop" in sent, "gone" in sent, SECRET in sent) == (True, True, False)


def test_without_an_address_nothing_waits(settings):
    settings.OTEL_TRACES_URL = ""
    CycleFactory(running=True).finish("healthy", "x")
    assert not TraceExport.objects.exists()
    assert not traces.is_due()


def test_a_branch_that_ends_later_adds_its_spans_to_the_trace(ended, collector):
    traces.export_due()
    ended.reopen()
    branch = SessionFactory(cycle=ended, in_branch=True, tier=3)
    ended.close_again()
    traces.export_due()
    _all, (cycle, added) = collector.got[0], spans_in(collector)[5:]
    assert facts(added)["claudeops.session"] == str(branch.pk)
    assert cycle["spanId"] == spans_in(collector)[0]["spanId"]


def test_a_collector_that_fails_is_tried_a_few_times_then_counted_and_tried_when_it_is_back(
    ended, collector
):
    collector.status = 500
    for tries in range(1, len(traces.WAITS) + 2):
        assert traces.is_due()
        traces.export_due()
        assert not traces.is_due()
        export = TraceExport.objects.get()
        assert (export.tries, "500" in export.error) == (tries, True)
        TraceExport.objects.filter(state=State.WAITING).update(due_at=timezone.now())
    assert export.state == State.FAILED
    assert MetricTotal.objects.get(name="traces").values == ["failed"]
    assert _traces().startswith(f"1 failed; cycle {ended.pk}: ")

    collector.status = 200
    CycleFactory(running=True).finish("healthy", "x")
    traces.export_due()
    traces.export_due()
    assert set(TraceExport.objects.values_list("state", flat=True)) == {State.SENT}
    assert {facts(span).get("claudeops.cycle") for span in spans_in(collector)} >= {str(ended.pk)}
    assert "failed" not in _traces()


def test_a_trace_that_is_refused_is_given_up_and_does_not_hold_others(ended, collector):
    collector.status = 400
    traces.export_due()
    assert TraceExport.objects.get().is_refused
    collector.status = 200
    CycleFactory(running=True).finish("healthy", "x")
    traces.export_due()
    traces.export_due()
    assert sorted(TraceExport.objects.values_list("state", flat=True)) == ["failed", "sent"]


def test_a_worker_that_dies_while_it_sends_loses_nothing(ended, collector, monkeypatch):
    def dies(body: bytes) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(traces, "post", dies)
        with pytest.raises(KeyboardInterrupt):
            traces.export_due()
    traces.export_due()
    assert collector.got == []  # claimed, until the time of the dead worker is over
    TraceExport.objects.update(due_at=timezone.now())
    traces.export_due()
    assert len(spans_in(collector)) == 5


@pytest.mark.django_db(transaction=True)
def test_a_collector_that_hangs_holds_nothing_but_its_own_thread(ended, collector, monkeypatch):
    monkeypatch.setattr(traces, "TIMEOUT_SECONDS", 0.3)
    collector.hangs = True
    at_work, began = Notifier(), time.monotonic()
    for _look in range(3):
        at_work.look()
    assert time.monotonic() - began < 5
    at_work.finish(20)
    collector.released.set()
    export = TraceExport.objects.get()
    assert (export.state, export.tries, len(collector.got)) == (State.WAITING, 1, 1)


def cli_span(session: Session, **texts: str) -> dict[str, Any]:
    _version, trace, parent, _flags = traceparent(session).split("-")
    return {
        "traceId": trace,
        "spanId": f"{session.pk:016x}",
        "parentSpanId": parent,
        "name": "claude_code.interaction",
        "kind": 1,
        "startTimeUnixNano": "5",
        "endTimeUnixNano": "7",
        "attributes": [
            {"key": name, "value": {"stringValue": text}} for name, text in texts.items()
        ],
    }


def test_spans_of_the_cli_are_sent_redacted_once_below_their_session(
    ended, collector, settings, tmp_path
):
    settings.CLAUDEOPS_STATE_DIR = tmp_path
    first, second = ended.sessions.order_by("tier")
    Session.objects.filter(pk=first.pk).update(cli_version="2.1.9 (Claude Code)")
    line = json.dumps(cli_span(first, user_prompt=f"x {SECRET}"))
    old, kept = cli_spans_of(second), cli_spans_of(first)
    old.parent.mkdir()
    old.write_text(line)
    os.utime(old, (0, 0))
    kept.write_text(f'{line}\n{line}\n[1]\n{{"spanId"')
    collector.status = 503
    traces.export_due()
    assert (kept.exists(), old.exists()) == (True, False)
    assert _traces().startswith(f"some are tried again; cycle {ended.pk}: ")

    collector.status = 200
    collector.got.clear()
    TraceExport.objects.update(due_at=timezone.now())
    traces.export_due()

    own, of_cli = collector.got
    assert len(own["resourceSpans"][0]["scopeSpans"][0]["spans"]) == 5
    resource, sent = of_cli["resourceSpans"][0], spans_in(collector)
    assert facts(resource["resource"])["service.name"] == "claude-code"
    assert facts(resource["resource"])["service.version"] == "2.1.9"
    assert [sent[5]["parentSpanId"], len(sent)] == [sent[1]["spanId"], 6]
    assert facts(sent[1])["claudeops.tier"] == "1"
    assert SECRET not in json.dumps(collector.got)
    assert not kept.exists()


def test_another_host_leaves_a_trace_to_the_one_that_has_its_files_for_a_minute(ended, collector):
    ended.sessions.update(host="elsewhere")
    assert not traces.is_due()
    TraceExport.objects.update(due_at=timezone.now() - traces.OTHER_HOSTS_WAIT)
    assert traces.is_due()
