"""Metrics for Prometheus, computed from the database when they are asked for.

Web server and workers are several processes, so no process counts anything. What is read grows with
the number of watches, probes and months, not with that of sessions: counters are sums that are kept
where the thing happens (`MetricTotal`, `PeriodCost`), so that retention does not reduce them.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from ipaddress import ip_address

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.db import DatabaseError, connection
from django.db.models import Count, Min, OuterRef, Subquery
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from sessions_app.costs.spending import load_budgets
from sessions_app.models import (
    Approval,
    Channel,
    Cycle,
    Incident,
    MetricTotal,
    PauseSwitch,
    PeriodCost,
    Probe,
    RateLimit,
    SandboxProof,
    Session,
    Watch,
    WorkerHeartbeat,
)
from sessions_app.models.costs import KEPT_TOKENS

REFUSED = (
    "Metrics are for this host, or for a bearer token: set CLAUDEOPS_METRICS_TOKEN, and let "
    "Prometheus send it (authorization: credentials).\n"
)
FORWARDED = ("X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Forwarded", "Via")


@login_not_required
@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    if not may_scrape(request):
        return HttpResponse(REFUSED, status=403, content_type="text/plain; charset=utf-8")
    written = scrapes.within(ANSWER_SECONDS)
    if written is None:
        text = f"The database did not answer within {ANSWER_SECONDS:.0f} seconds.\n"
        return HttpResponse(text, status=503, content_type="text/plain; charset=utf-8")
    return HttpResponse(written, content_type=CONTENT_TYPE_LATEST)


def exposition() -> bytes:
    """Compute the text of all metrics. Raises DatabaseError."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Record())
    return generate_latest(registry)


logger = logging.getLogger(__name__)

ANSWER_SECONDS = 5.0
"""Shorter than the time-out of Prometheus, which is 10 seconds."""


class Scrape:
    """One computation in a thread of its own: a database may also answer never."""

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.written: bytes | None = None
        threading.Thread(target=self._compute, name="metrics", daemon=True).start()

    def _compute(self) -> None:
        try:
            self.written = exposition()
        except DatabaseError as problem:
            logger.warning("Could not compute the metrics: %s", problem)
        finally:
            connection.close()
            self.ended.set()


class Scrapes:
    """Shares the computation under way, so that scrapes of a hanging database do not pile up."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: Scrape | None = None

    def within(self, seconds: float) -> bytes | None:
        with self._lock:
            if self._latest is None or self._latest.ended.is_set():
                self._latest = Scrape()
            scrape = self._latest
        scrape.ended.wait(seconds)
        return scrape.written


scrapes = Scrapes()


def may_scrape(request: HttpRequest) -> bool:
    """Allow the token, and without one set this host itself, not what a proxy on it passes on."""
    token = settings.CLAUDEOPS_METRICS_TOKEN
    if token:
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
    if any(name in request.headers for name in FORWARDED):
        return False
    host = request.get_host().rpartition(":")[0] or request.get_host()
    return _is_loopback(request.META.get("REMOTE_ADDR", "")) and _is_loopback(host.strip("[]"))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def gauge(name: str, text: str, labels: Iterable[str] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"claudeops_{name}", text, labels=tuple(labels))


def summary(name: str, text: str, labels: Iterable[str] = ()) -> SummaryMetricFamily:
    return SummaryMetricFamily(f"claudeops_{name}", text, labels=tuple(labels))


def counter(name: str, text: str, labels: Iterable[str] = ()) -> CounterMetricFamily:
    return CounterMetricFamily(f"claudeops_{name}", text, labels=tuple(labels))


class Record(Collector):
    """Collects every metric; drills are left out."""

    def collect(self) -> Iterator[Metric]:
        now = timezone.now()
        yield from _installation()
        yield from _sessions(now)
        yield from _watches()
        yield from _costs()
        yield from _people()
        yield from _totals()


CLI_LOOKED_AT = 50
"""Latest sessions among which the version of the CLI is looked up."""


def _cli_version() -> str:
    latest = Session.objects.order_by("-pk").values_list("cli_version", flat=True)
    return next(filter(None, latest[:CLI_LOOKED_AT]), "")


def _installation() -> Iterator[Metric]:
    info = gauge("build_info", "Versions of Claude Ops and of the last CLI.", ["version", "cli"])
    info.add_metric([settings.CLAUDEOPS_VERSION, _cli_version()], 1)
    yield info
    seen = gauge("worker_last_seen_timestamp_seconds", "Last heartbeat of a worker.", ["host"])
    for worker in WorkerHeartbeat.objects.all():
        seen.add_metric([worker.host], worker.seen_at.timestamp())
    yield seen
    paused = gauge("paused", "1 while no new session starts because everything is paused.")
    paused.add_metric([], int(PauseSwitch.current().paused))
    yield paused
    sandbox = gauge("sandbox_ok", "0 while the last sandbox proof got worse.")
    sandbox.add_metric([], int(SandboxProof.holding() is None))
    yield sandbox
    limit = gauge("rate_limit_reset_timestamp_seconds", "End of the rate limit; 0 without one.")
    holding = RateLimit.holding()
    limit.add_metric([], holding.until.timestamp() if holding and holding.until else 0)
    yield limit
    failing = gauge("channel_failures", "Failures in a row of a channel.", ["channel"])
    for name, failures in Channel.objects.values_list("name", "failures_in_a_row"):
        failing.add_metric([name], failures)
    yield failing


def _sessions(now: datetime) -> Iterator[Metric]:
    running = gauge("sessions_running", "Sessions that run.", ["tier"])
    open_ones = Session.objects.filter(status=Session.Status.RUNNING, cycle__drill="").order_by()
    for tier, count in open_ones.values_list("tier").annotate(count=Count("pk")):
        running.add_metric([str(tier)], count)
    yield running
    queued = Session.objects.filter(status=Session.Status.QUEUED, cycle__drill="")
    found = queued.aggregate(count=Count("pk"), oldest=Min("created_at"))
    waiting = gauge("sessions_queued", "Sessions that wait for a worker.")
    waiting.add_metric([], found["count"])
    yield waiting
    oldest = gauge("queue_oldest_seconds", "Age of the session that has waited longest.")
    oldest.add_metric([], (now - found["oldest"]).total_seconds() if found["oldest"] else 0)
    yield oldest


def _watches() -> Iterator[Metric]:
    enabled = gauge("watch_enabled", "1 while the watch runs by itself.", ["watch"])
    success = gauge(
        "watch_last_success_timestamp_seconds",
        "End of the last cycle that found or made everything healthy.",
        ["watch"],
    )
    good = Cycle.objects.filter(
        watch=OuterRef("pk"), state=Cycle.State.FINISHED, outcome__in=Cycle.GOOD_OUTCOMES
    )
    last = Subquery(good.order_by("-pk").values("finished_at")[:1])
    for watch in Watch.objects.annotate(last_good=last).order_by("name"):
        enabled.add_metric([watch.name], int(watch.enabled))
        if watch.last_good:
            success.add_metric([watch.name], watch.last_good.timestamp())
    yield enabled
    yield success
    up = gauge("probe_up", "1 while a probe succeeds, 0 while it is down.", ["watch", "probe"])
    known = (Probe.State.UP, Probe.State.DOWN)
    for probe in Probe.objects.filter(state__in=known).select_related("watch"):
        up.add_metric([probe.watch.name, probe.name], int(probe.state == Probe.State.UP))
    yield up


def _costs() -> Iterator[Metric]:
    labels = ["watch", "tier", "model"]
    cost = counter("cost_usd", "Cost of sessions in dollars.", labels)
    runs = counter("sessions", "Sessions that were started.", labels)
    used_tokens = counter("tokens", "Tokens of sessions.", ["tier", "type"])
    names = dict(Watch.objects.values_list("pk", "name"))
    sums: defaultdict[tuple[str, str, str], Counter[str]] = defaultdict(Counter)
    tokens: Counter[tuple[str, str]] = Counter()
    kept = PeriodCost.objects.real().months()
    for row in kept.amounts_by("watch_number", "watch_name", "tier", "model"):
        # A renamed watch stays one series; a removed one keeps its last name.
        watch = names.get(row["watch_number"]) or row["watch_name"]
        found = sums[watch, str(row["tier"]), row["model"]]
        found.update({name: row[name] for name in ("cost_usd", "runs")})
        for name in KEPT_TOKENS:
            tokens[str(row["tier"]), name.removesuffix("_tokens")] += row[name]
        tokens[str(row["tier"]), "input"] += row["tokens"] - sum(row[name] for name in KEPT_TOKENS)
    for values, amounts in sums.items():
        cost.add_metric(values, float(amounts["cost_usd"]))
        runs.add_metric(values, amounts["runs"])
    for of_type, count in tokens.items():
        used_tokens.add_metric(of_type, count)
    yield cost
    yield runs
    yield used_tokens
    used = gauge("budget_used_ratio", "Spent share of a budget; over 1 if exceeded.", ["scope"])
    for budget in load_budgets().limited:
        spent = float(budget.spent.total / budget.limit) if budget.limit else 1.0
        used.add_metric([budget.label or budget.name], spent)
    yield used


def _people() -> Iterator[Metric]:
    approvals = gauge("approvals_waiting", "Approvals that wait for a person.")
    approvals.add_metric([], Approval.objects.answerable().count())
    yield approvals
    wanted = gauge("incidents_waiting", "Incidents that wait for a person.")
    wanted.add_metric([], Incident.objects.waiting_for_person().count())
    yield wanted
    incidents = gauge("incidents_open", "Unresolved incidents.", ["kind", "severity"])
    unresolved = Incident.objects.filter(state__in=Incident.UNRESOLVED_STATES, drill="").order_by()
    for kind, severity, count in unresolved.values_list("kind", "severity").annotate(
        count=Count("pk")
    ):
        incidents.add_metric([kind, Incident.Severity(severity).label], count)
    yield incidents


def _totals() -> Iterator[Metric]:
    """Counters that are kept where things happen, read by one query."""
    found: defaultdict[str, list[MetricTotal]] = defaultdict(list)
    for total in MetricTotal.objects.order_by("pk"):
        found[total.name].append(total)
    yield from _cycles(found[MetricTotal.Name.CYCLES])
    repairs = summary(
        "incident_repair_seconds", "From the beginning of an incident to its end.", ["resolved_as"]
    )
    for total in found[MetricTotal.Name.REPAIRS]:
        repairs.add_metric(total.values, total.count, total.seconds)
    yield repairs
    fixes = counter("fixes", "Fixes that agents reported, by their verification.", ["verified"])
    for total in found[MetricTotal.Name.FIXES]:
        fixes.add_metric(total.values, total.count)
    yield fixes
    waits = summary("approval_wait_seconds", "From a request to its end.", ["kind", "state"])
    for total in found[MetricTotal.Name.APPROVALS]:
        waits.add_metric(total.values, total.count, total.seconds)
    yield waits
    received = counter("alerts_received", "Deliveries of alerts.", ["source", "result"])
    for total in found[MetricTotal.Name.ALERTS]:
        received.add_metric(total.values, total.count)
    yield received
    exported = counter("trace_exports", "Exports of traces by OpenTelemetry.", ["result"])
    for total in found[MetricTotal.Name.TRACES]:
        exported.add_metric(total.values, total.count)
    yield exported
    decided = counter("command_policy_decisions", "Decisions on commands.", ["tier", "decision"])
    for total in found[MetricTotal.Name.DECISIONS]:
        decided.add_metric(total.values, total.count)
    yield decided


def _cycles(totals: Iterable[MetricTotal]) -> Iterator[Metric]:
    ended = counter("cycles", "Cycles that ended.", ["watch", "outcome"])
    lasted = summary("cycle_duration_seconds", "From start to end of a cycle.", ["watch"])
    names = dict(Watch.objects.values_list("pk", "name"))
    by_outcome: Counter[tuple[str, str]] = Counter()
    by_watch: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for total in totals:
        number, name, outcome = total.values
        # As for costs: a renamed watch stays one series.
        watch = names.get(int(number)) or name
        by_outcome[watch, outcome] += total.count
        by_watch[watch][0] += total.count
        by_watch[watch][1] += total.seconds
    for labels, count in by_outcome.items():
        ended.add_metric(labels, count)
    for watch, (ended_count, seconds) in by_watch.items():
        lasted.add_metric([watch], int(ended_count), seconds)
    yield ended
    yield lasted
