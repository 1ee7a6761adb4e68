"""Measures the reading operations of the API by the size of the database, in this process.

Operations and filters are found in the OpenAPI schema, so that a new one is measured at once.
Listed are only combined filters. Each is requested with a token, as a program does.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone

from escalation.api.docs import PREFIX, schema
from sessions_app.access import tokens
from sessions_app.archive.transcripts import append_entries
from sessions_app.models import (
    Channel,
    Maintenance,
    Probe,
    Remedy,
    RemedyRun,
    ServiceState,
    Session,
    Source,
    Watch,
)
from tests.devtools.benchmarks import Tell, silent
from tests.devtools.benchmarks.pages import (
    NUMBERED,
    ROUNDS,
    MeasuredPage,
    PageFailed,
    Timed,
    measure_page,
    newest_number,
    parts_of_queries,
)

AIM_MS, QUERIES_AIM = 60, 15
LARGEST_PAGE = 100
LEFT_OUT = {"follow_cycle": "a stream without an end: `bench live` measures its reader"}
# Filters together, by operation.
COMBINED: dict[str, dict[str, str]] = {
    "list_cycles": {
        "Tier 3 of one watch": "tier=3&watch={watch_name}",
        "many at once": "outcome=fixed&watch={watch_name}&tier=2&trigger=schedule",
        "many at once, of which there is none": "outcome=healthy&tier=3&trigger=alert",
        "a month": "since={month}-01&until={month}-20",
        "Tier 3 of a month": "since={month}-01&until={month}-20&tier=3",
    },
    "list_sessions": {
        "Tier 2 of one watch": "tier=2&watch={watch_name}",
        "failed of one watch": "status=failed&watch={watch_name}",
        "three filters, of which there is none": "status=expired&tier=3&watch={watch_name}",
        "search: a frequent word": "q=healthy",
        "search: no match": "q=xylophone",
        "search: an id": "q={session_id}",
        "search: in Tier 3": "q=database&tier=3",
    },
    "list_incidents": {
        "open ones of one watch": "state=open&watch={watch_name}",
        "three filters, of which there is none": "kind=could_not_run&state=open&drill=yes",
    },
    "list_changes": {
        "edits of one watch, of which there is none": "kind=edit&watch={watch_name}",
        "a month": "since={month}-01&until={month}-20",
        "restarts of a month of one watch": (
            "kind=restart&since={month}-01&until={month}-20&watch={watch_name}"
        ),
    },
    "get_costs": {"drills of all time": "drills=true&period=all"},
}
GROWING = {
    "list_cycles": "cycles",
    "list_sessions": "sessions",
    "list_incidents": "incidents",
    "list_approvals": "approvals",
    "list_changes": "changes",
}
"""Lists that are also read from the middle, by the kind of their rows."""
SINGLE = {"tier": ("1", "2", "3"), "drills": ("true",)}
"""Values of filters of which the schema lists none."""


def measure(rounds: int = ROUNDS, tell: Tell = silent) -> list[Timed]:
    """Measure all operations on a record of `record.seed`."""
    logging.getLogger("django.request").setLevel(logging.ERROR)
    add_configured()
    # The limit of requests would refuse most of them.
    with override_settings(CLAUDEOPS_API_RATE=1_000_000):
        client, measured = _client(), []
        asked = list(requests())
        for number, one in enumerate(asked, 1):
            tell(f"Measuring request {number} of {len(asked)}: {one.title}")
            timed = measure_page(client, one, rounds)
            if timed is None:
                raise PageFailed(f"{one.title}: {one.url} may not be read")
            measured.append(timed)
    return measured


def requests() -> Iterator[MeasuredPage]:
    parts = parts_of_queries()
    parts["watch_name"] = Watch.objects.order_by("pk").values_list("name", flat=True)[0]
    for path, methods in schema()["paths"].items():
        operation = methods.get("get")
        if operation is None or operation["operationId"] in LEFT_OUT:
            continue
        name, url = operation["operationId"], _filled(path, str(parts["watch_name"]))
        for way, query in _ways(name, operation.get("parameters", ())):
            asked = query.format(**parts)
            yield MeasuredPage(name=name, way=way, url=f"{url}?{asked}" if asked else url)


def _ways(name: str, parameters: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield queries: none, each value of each filter, the largest page, and filters together."""
    yield "", ""
    for parameter in parameters:
        key = parameter["name"]
        if parameter["in"] != "query":
            continue
        for value in parameter["schema"].get("enum", SINGLE.get(key, ())):
            yield f"{key} {value}", f"{key}={value}"
        if key == "watch":
            yield "one watch", "watch={watch_name}"
        if key == "limit":
            yield "a page of one", "limit=1"
            yield "the largest page", f"limit={LARGEST_PAGE}"
    if name in GROWING:
        middle = (newest_number(NUMBERED[GROWING[name]]) or 2) // 2
        yield "from the middle", f"cursor={middle}"
    yield from COMBINED.get(name, {}).items()


def _filled(path: str, watch: str) -> str:
    kind = path.removeprefix(PREFIX).partition("/")[0]
    number = newest_number(NUMBERED[kind]) if "{number}" in path else ""
    values = {
        "number": number,
        "watch": watch,
        "probe": "probe-1",
        "remedy": "remedy-1",
        "source": "am",
    }
    return path.format(**{name: quote(str(value)) for name, value in values.items()})


def _client() -> Client:
    operator = User.objects.create_superuser("bench-api")
    token = tokens.create(operator, "bench", list(tokens.Scope), by=operator).token
    return Client(
        HTTP_HOST="127.0.0.1",
        raise_request_exception=True,
        headers={"Authorization": f"Bearer {token}"},
    )


# What a record of runs does not contain: a full page of everything that people configure, and
# the transcript of the session that is read.

CONFIGURED = LARGEST_PAGE + 10


def add_configured() -> None:
    watches, now = list(Watch.objects.order_by("pk")), timezone.now()
    numbers = range(1, CONFIGURED + 1)
    names = [(number, watches[(number - 1) % len(watches)]) for number in numbers]
    first, cycle = watches[0], newest_number(NUMBERED["cycles"])
    Probe.objects.bulk_create(
        Probe(
            watch=first if number == 1 else watch,
            name=f"probe-{number}",
            service="web",
            kind=Probe.Kind.TCP,
            target="127.0.0.1:9",
        )
        for number, watch in names
    )
    Remedy.objects.bulk_create(
        Remedy(
            watch=watch,
            name=f"remedy-{number}",
            description="Restart a container.",
            command=["docker", "restart", "{service}"],
            parameters="service: service",
            kind=Remedy.Kind.RESTART,
            grants="docker",
        )
        for number, watch in names
    )
    ServiceState.objects.bulk_create(
        ServiceState(
            watch=watch,
            service=f"service-{number}",
            name=f"service-{number}",
            status=ServiceState.Status.HEALTHY,
            place=ServiceState.place_of(ServiceState.Status.HEALTHY),
            since=now,
            seen_at=now,
            cycle_id=cycle,
        )
        for number, watch in names
    )
    Maintenance.objects.bulk_create(
        Maintenance(watch=watch, starts_at=now, ends_at=now + timedelta(hours=1))
        for _number, watch in names
    )
    Channel.objects.bulk_create(
        Channel(name=f"channel-{number}", encrypted_address=b"") for number in numbers
    )
    Source.objects.bulk_create(
        Source(name=f"source-{number}", kind="alertmanager", token_hash=str(number))
        for number in numbers
    )
    source, remedy = Source.objects.get(name="am"), Remedy.objects.get(name="remedy-1")
    for _number in numbers:
        source.deliveries.create(size=1_000, verdict="noted")
    RemedyRun.objects.bulk_create(
        RemedyRun(
            remedy=remedy,
            watch=remedy.watch,
            name=remedy.name,
            kind=remedy.kind,
            arguments=["web"],
            state=RemedyRun.State.SUCCEEDED,
            exit_code=0,
        )
        for _number in numbers
    )
    _add_transcript()


def _add_transcript() -> None:
    session = Session.objects.get(pk=newest_number(Session))
    said = [
        {
            "type": "assistant" if number % 2 else "user",
            "uuid": f"{number:08x}-0000-4000-8000-000000000000",
            "parentUuid": f"{number - 1:08x}-0000-4000-8000-000000000000" if number else None,
            "sessionId": session.session_id,
            "timestamp": timezone.now().isoformat(),
            "message": {
                "role": "assistant" if number % 2 else "user",
                "content": [{"type": "text", "text": f"Message {number}: the service answers."}],
            },
        }
        for number in range(CONFIGURED)
    ]
    append_entries({"project_key": "-srv-shop", "session_id": session.session_id}, said)


# Output.

HEAD = f"{'median':>8} {'p95':>8} {'cpu p95':>8} {'queries':>8}  operation"


def misses(timed: Timed) -> tuple[str, ...]:
    """Return the aims that an operation misses."""
    busy = timed.cpu_p95_ms if timed.by_cpu else timed.p95_ms
    missed = {"queries": timed.queries > QUERIES_AIM, "time": busy > AIM_MS}
    return tuple(name for name, is_missed in missed.items() if is_missed)


def as_table(found: Sequence[Timed], sessions: int) -> str:
    missed = sum(bool(misses(one)) for one in found)
    judged = "processor" if found and found[0].by_cpu else "clock"
    slowest = max(found, key=lambda one: one.cpu_p95_ms if one.by_cpu else one.p95_ms)
    return "\n".join(
        [
            f"{sessions:,} sessions, in milliseconds; judged by the {judged}",
            HEAD,
            *(_line(one) for one in found),
            f"{len(found)} requests; {missed or 'none'} missed an aim (95 % within {AIM_MS} ms, "
            f"{QUERIES_AIM} queries); slowest: {slowest.title}",
        ]
    )


def _line(one: Timed) -> str:
    missed = f"  MISSED: {', '.join(misses(one))}" if misses(one) else ""
    return (
        f"{one.median_ms:8.1f} {one.p95_ms:8.1f} {one.cpu_p95_ms:8.1f} {one.queries:8d}  "
        f"{one.title}{missed}"
    )


def as_data(found: Sequence[Timed], sessions: int) -> dict[str, Any]:
    return {
        "sessions": sessions,
        "requests": [{**asdict(one), "missed": list(misses(one))} for one in found],
    }
