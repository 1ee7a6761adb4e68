"""Judges deliveries in the worker: problems, incidents, and the cycles that they start.

A batch of deliveries is judged in one transaction, so that after the death of a process it is
judged once more and nothing is doubled. Bodies are decrypted and redacted before it begins.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from django.db import Error
from django.db.models import F, Q
from django.utils import timezone

from escalation.alerts.decision import (
    NOTE_EVERY,
    STORM_WINDOW,
    KnownAlert,
    Verdict,
    is_replay,
    is_storm,
    judge,
    read_routes,
    routed,
    starts_cycle,
)
from escalation.alerts.parsers import (
    ParsedAlert,
    ParsedDelivery,
    ParserOptions,
    Unreadable,
    parse,
)
from escalation.incidents import recorder
from escalation.queue import installation_lock
from escalation.supervisor.cycles import Woken, wake
from sessions_app.history.services import one_spelling
from sessions_app.models import Alert, Cycle, Delivery, Incident, MetricTotal, Source, Watch
from sessions_app.models.alert import SourceKind
from sessions_app.models.cycle import Fact
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, decrypt
from sessions_app.redaction.redact import redacted, redacted_data
from sessions_app.text import cut, one_line

logger = logging.getLogger(__name__)

AT_ONCE = 200
MOST_TRIES = 5
KEPT_ALERTS = 20
"""Alerts of a delivery whose text is kept with it."""
MOST_FACTS = 20
NAMED = 10
LONGEST_LINE = 500
LONGEST_SAMPLE = 20_000
FIRING, RESOLVED = Alert.State.FIRING, Alert.State.RESOLVED
Outcome = Delivery.Verdict
WRITTEN = (
    *("group", "watch", "incident", "state", "service", "severity", "summary", "detail", "labels"),
    *("last_seen_at", "resolved_at", "starts_at", "times_seen", "noted_at"),
)


def judge_waiting() -> int:
    """Judge all deliveries that wait, and return their number."""
    judged = 0
    while waiting := list(_waiting()[:AT_ONCE]):
        try:
            judged += _judge(waiting)
        except Error:
            raise  # the database: everything waits for the next time
        except Exception:
            logger.exception("Could not judge %s deliveries at once", len(waiting))
            judged += _judge_each(waiting)
            if _waiting().filter(pk__in=[one.pk for one in waiting]).exists():
                break  # they are tried again later
    return judged


def _waiting() -> Any:
    rows = Delivery.objects.filter(judged_at=None)
    return rows.select_related("source__watch").defer("source__sample").order_by("pk")


def _judge_each(waiting: Iterable[Delivery]) -> int:
    """Judge deliveries one by one: one that always fails must not keep the others."""
    judged = 0
    for delivery in waiting:
        try:
            judged += _judge([delivery])
        except Error:
            raise
        except Exception:
            logger.exception("Could not judge delivery %s", delivery.pk)
            if delivery.tries + 1 >= MOST_TRIES:
                why = "It could not be judged: the log of the worker says why."
                _end(delivery, Outcome.UNREADABLE, why)
                judged += 1
    return judged


def _end(delivery: Delivery, verdict: str, became: str) -> None:
    waiting = Delivery.objects.filter(pk=delivery.pk, judged_at=None)
    ending = {"judged_at": timezone.now(), "verdict": verdict, "became": became}
    if waiting.update(**ending, encrypted_body=b""):
        MetricTotal.add(MetricTotal.Name.ALERTS, delivery.source.name, verdict)


@dataclass(slots=True)
class Reading:
    """A delivery with its parsed and redacted alerts, and what they led to."""

    delivery: Delivery
    parsed: ParsedDelivery | None = None
    unreadable: str = ""
    verdicts: list[tuple[Alert, Verdict]] = field(default_factory=list)
    has_no_watch: bool = False
    sample: Any = None
    """The delivery of a generic source, to choose its paths from."""


def _judge(waiting: Sequence[Delivery]) -> int:
    numbers = [delivery.pk for delivery in waiting]
    Delivery.objects.filter(pk__in=numbers).update(tries=F("tries") + 1)
    readings = [_read(delivery) for delivery in waiting]
    with installation_lock():
        left = set(
            Delivery.objects.filter(pk__in=numbers, judged_at=None).values_list("pk", flat=True)
        )
        batch = Batch([reading for reading in readings if reading.delivery.pk in left])
        batch.judge()
    _keep_samples(readings)
    return len(left)


def _keep_samples(readings: Iterable[Reading]) -> None:
    """Keep the first delivery of a generic source, and later the last that was not understood."""
    samples = {one.delivery.source_id: one for one in readings if one.sample is not None}
    for source, reading in samples.items():
        rows = Source.objects.filter(pk=source)
        if not reading.unreadable:
            rows = rows.filter(sample__isnull=True)
        if rows.exists():
            rows.update(sample=redacted_data(reading.sample))


def _read(delivery: Delivery) -> Reading:
    source = delivery.source
    options = ParserOptions(service_label=source.service_label, paths=source.paths)
    sample = None
    try:
        body = json.loads(decrypt(bytes(delivery.encrypted_body), str(delivery)))
        if source.kind == SourceKind.GENERIC and not delivery.is_test:
            sample = body if delivery.size <= LONGEST_SAMPLE else None
        parsed = parse(source.kind, body, delivery.received_at, options)
    except (Unreadable, EncryptedWithAnotherKey, ValueError) as error:
        return Reading(delivery, unreadable=redacted(str(error)), sample=sample)
    alerts = tuple(_redacted(alert) for alert in parsed.alerts)
    group = _identifier(parsed.ended_group)
    return Reading(
        delivery, parsed=replace(parsed, alerts=alerts, ended_group=group), sample=sample
    )


def _redacted(alert: ParsedAlert) -> ParsedAlert:
    texts = {
        "service": alert.service,
        "summary": alert.summary,
        "detail": alert.detail,
        "labels": dict(alert.labels),
    }
    return replace(
        alert,
        **redacted_data(texts),
        fingerprint=_identifier(alert.fingerprint),
        group=_identifier(alert.group),
    )


def _identifier(text: str) -> str:
    """Return a sender's identifier, or its hash if it contains a secret."""
    return text if redacted(text) == text else hashlib.sha256(text.encode()).hexdigest()


class Batch:
    """Deliveries that are judged together. The caller holds the lock of the installation."""

    def __init__(self, readings: Sequence[Reading]) -> None:
        self.now = timezone.now()
        self.readings = readings
        self.watches = {watch.name: watch for watch in Watch.objects.all()}
        self.alerts = self._known_alerts()
        scopes = {f"watch:{watch.pk}" for watch in self.watches.values()}
        self.open = recorder.unresolved(*scopes) if readings else {}
        self.last = self._last_deliveries()
        self.lines: list[tuple[int, str]] = []
        self.touched: dict[tuple[int, str], Alert] = {}
        self.woken: dict[int, Woken] = {}

    def judge(self) -> None:
        for reading in self.readings:
            self._judge_delivery(reading)
        for watch in self._watches_of_batch():
            self._act(watch)
        if self.lines:
            recorder.note_repeats(self.lines)
        self._write_alerts()
        for reading in self.readings:
            self._write_delivery(reading)
        results = Counter((one.delivery.source.name, one.delivery.verdict) for one in self.readings)
        for (source, verdict), count in sorted(results.items()):
            MetricTotal.add(MetricTotal.Name.ALERTS, source, verdict, count=count)

    # What is known

    def _known_alerts(self) -> dict[tuple[int, str], Alert]:
        wanted, groups = Q(pk=None), Q(pk=None)
        by_source: defaultdict[int, set[str]] = defaultdict(set)
        for reading in self.readings:
            parsed = reading.parsed
            if parsed is None:
                continue
            by_source[reading.delivery.source_id] |= {one.fingerprint for one in parsed.alerts}
            if parsed.ended_group:
                groups |= Q(
                    source=reading.delivery.source_id, group=parsed.ended_group, state=FIRING
                )
        for source, fingerprints in by_source.items():
            wanted |= Q(source=source, fingerprint__in=fingerprints)
        rows = Alert.objects.filter(wanted | groups).select_related("incident", "watch", "source")
        return {(row.source_id, row.fingerprint): row for row in rows}

    def _last_deliveries(self) -> dict[int, tuple[str, datetime]]:
        """Return the identity and time of the last delivery of each source that was no replay."""
        last = {}
        for source in {reading.delivery.source_id for reading in self.readings}:
            judged = Delivery.objects.filter(source=source, judged_at__isnull=False, is_test=False)
            judged = judged.exclude(verdict=Outcome.REPLAY)
            found = judged.order_by("-pk").values_list("identity", "received_at").first()
            if found is not None:
                last[source] = found
        return last

    # One delivery

    def _judge_delivery(self, reading: Reading) -> None:
        delivery, parsed = reading.delivery, reading.parsed
        if parsed is None or delivery.is_test:
            return
        if parsed.alerts and all(one.is_test for one in parsed.alerts):
            return
        before = self.last.get(delivery.source_id)
        if is_replay(delivery.identity, delivery.received_at, before):
            delivery.verdict = Outcome.REPLAY
            return
        self.last[delivery.source_id] = (delivery.identity, delivery.received_at)
        routes = read_routes(delivery.source.routes)
        for parsed_alert in parsed.alerts:
            watch = self.watches.get(routed(parsed_alert.labels, routes)) or delivery.source.watch
            if watch is None:
                reading.has_no_watch = True
            elif not parsed_alert.is_test:
                self._judge_alert(reading, parsed_alert, watch)
        if parsed.ended_group:
            self._end_group(reading, parsed.ended_group)

    def _judge_alert(self, reading: Reading, sent: ParsedAlert, watch: Watch) -> None:
        delivery = reading.delivery
        key = (delivery.source_id, sent.fingerprint)
        known = self.alerts.get(key)
        cause = (f"watch:{watch.pk}", Incident.Kind.PROBLEM, one_spelling(sent.service))
        facts = _facts_of(known, is_pending=key in self.touched)
        verdict = judge(sent, facts, delivery.received_at, cause_is_open=cause in self.open)
        alert = known or Alert(
            source=delivery.source,
            fingerprint=sent.fingerprint,
            first_seen_at=delivery.received_at,
            times_seen=0,
            state=RESOLVED,
        )
        reading.verdicts.append((alert, verdict))
        if verdict in {Verdict.NOT_KNOWN, Verdict.STALE}:
            return
        self.alerts[key] = self.touched[key] = alert
        alert.watch, alert.group = watch, sent.group or alert.group
        alert.last_seen_at = delivery.received_at
        if verdict == Verdict.RESOLVED:
            alert.state, alert.resolved_at = RESOLVED, delivery.received_at
            return
        alert.state, alert.resolved_at = FIRING, None
        alert.times_seen += 1
        alert.starts_at = sent.starts_at
        alert.service, alert.severity = sent.service, sent.severity
        alert.summary, alert.detail = sent.summary, sent.detail
        alert.labels = dict(sent.labels)

    def _end_group(self, reading: Reading, group: str) -> None:
        source = reading.delivery.source_id
        for key, alert in self.alerts.items():
            if key[0] == source and alert.group == group and alert.state == FIRING:
                alert.state, alert.resolved_at = RESOLVED, reading.delivery.received_at
                self.touched[key] = alert
                reading.verdicts.append((alert, Verdict.RESOLVED))

    # All deliveries of a watch together

    def _watches_of_batch(self) -> list[Watch]:
        found = {alert.watch.pk: alert.watch for alert in self.touched.values() if alert.watch}
        return [found[number] for number in sorted(found)]

    def _act(self, watch: Watch) -> None:
        judged = self._last_verdicts(watch)
        firing = [(alert, verdict) for alert, verdict in judged if alert.state == FIRING]
        runs = [
            alert
            for alert, verdict in firing
            if starts_cycle(verdict, runs_again=alert.source.runs_again)
        ]
        self._wake(watch, runs)
        started = {id(alert) for alert in runs}
        for alert, verdict in firing:
            if id(alert) not in started:
                self._note(watch, alert, verdict)
        self._recover(watch, [alert for alert, _verdict in judged if alert.state == RESOLVED])

    def _last_verdicts(self, watch: Watch) -> list[tuple[Alert, Verdict]]:
        """Return one verdict on each alert of the batch: one that starts a cycle, or the last."""
        found: dict[int, tuple[Alert, Verdict]] = {}
        for reading in self.readings:
            for alert, verdict in reading.verdicts:
                if alert.watch_id != watch.pk or verdict in {Verdict.NOT_KNOWN, Verdict.STALE}:
                    continue
                before = found.get(id(alert))
                if before is None or not starts_cycle(before[1], runs_again=True):
                    found[id(alert)] = (alert, verdict)
        return list(found.values())

    def _wake(self, watch: Watch, alerts: Sequence[Alert]) -> None:
        """Start or extend a cycle for problems; those of a storm share one incident."""
        if not alerts:
            return
        scope = f"watch:{watch.pk}"
        new = {one_spelling(one.service) for one in alerts} - {
            cause for of, kind, cause in self.open if of == scope and kind == Incident.Kind.PROBLEM
        }
        lately = [
            incident
            for incident in self.open.values()
            if incident.scope == scope
            and incident.found_by == Incident.FoundBy.ALERT
            and self.now - incident.first_seen_at <= STORM_WINDOW
        ]
        if not is_storm(len(new), len(lately)):
            self._wake_for(watch, alerts, [])
            return
        own = [alert for alert in alerts if one_spelling(alert.service) not in new]
        rest = [alert for alert in alerts if one_spelling(alert.service) in new]
        if lately:
            self._join(lately[0], rest)
            if own:
                self._wake_for(watch, own, [])
            return
        lead = max(rest, key=lambda alert: alert.severity)
        self._wake_for(watch, [lead, *own], [one for one in rest if one is not lead])

    def _wake_for(self, watch: Watch, alerts: Sequence[Alert], members: Sequence[Alert]) -> None:
        facts = [
            replace(fact_of(alert), severity=self._severity(watch, alert, alerts))
            for alert in alerts[:MOST_FACTS]
        ]
        others = [*alerts[MOST_FACTS:], *members]
        if others:
            facts.append(storm_fact(alerts[0], others))
        woken = self.woken[watch.pk] = wake(watch, facts)
        by_cause = {incident.cause: incident for incident in woken.incidents}
        for incident in woken.incidents:
            self.open[incident.scope, incident.kind, incident.cause] = incident
        lead = by_cause.get(one_spelling(alerts[0].service))
        for alert in [*alerts, *members]:
            alert.incident = by_cause.get(one_spelling(alert.service)) or lead
            alert.noted_at = self.now

    def _severity(self, watch: Watch, alert: Alert, alerts: Iterable[Alert]) -> int:
        """Return the worst of the service: a milder alert does not make an incident milder."""
        cause = one_spelling(alert.service)
        there = self.open.get((f"watch:{watch.pk}", Incident.Kind.PROBLEM, cause))
        severities = [one.severity for one in alerts if one_spelling(one.service) == cause]
        return max([*severities, there.severity if there else alert.severity])

    def _join(self, lead: Incident, alerts: Sequence[Alert]) -> None:
        for alert in alerts:
            alert.incident, alert.noted_at = lead, self.now
        names = ", ".join(dict.fromkeys(alert.service for alert in alerts[:NAMED]))
        line = f"Alert storm: {len(alerts)} more alerts, of {names}"
        self.lines.append((lead.pk, cut(line, LONGEST_LINE)))

    def _note(self, watch: Watch, alert: Alert, verdict: Verdict) -> None:
        """Add a line to the history of the incident, not more often than people want to read."""
        key = (f"watch:{watch.pk}", Incident.Kind.PROBLEM, one_spelling(alert.service))
        incident = alert.incident or self.open.get(key)
        alert.incident = incident
        if incident is None:
            return
        if verdict == Verdict.REPEAT and self.now - alert.noted_at < NOTE_EVERY:
            return
        alert.noted_at = self.now
        line = f"{alert.source.name}: {alert.summary} ({verdict}, {alert.times_seen} times)"
        self.lines.append((incident.pk, cut(line, LONGEST_LINE)))

    def _recover(self, watch: Watch, alerts: Sequence[Alert]) -> None:
        """An incident seems recovered when the last of its alerts has ended."""
        ended: defaultdict[int, list[Alert]] = defaultdict(list)
        for alert in alerts:
            if alert.incident is not None and alert.incident.is_unresolved:
                ended[alert.incident.pk].append(alert)
        facts = []
        for number, members in ended.items():
            incident = members[0].incident
            assert incident is not None
            if self._still_fires(number):
                line = f"Resolved: {', '.join(one.summary for one in members[:NAMED])}"
                self.lines.append((incident.pk, cut(line, LONGEST_LINE)))
                continue
            facts.append(replace(fact_of(members[0]), is_failing=False, service=incident.cause))
        if facts:
            wake(watch, facts[:MOST_FACTS])

    def _still_fires(self, incident: int) -> bool:
        """Return True if another alert of the incident fires, in the database or in this batch."""
        here = {alert.pk: alert for alert in self.touched.values() if alert.pk}
        if any(
            alert.state == FIRING and alert.incident_id == incident
            for alert in self.touched.values()
        ):
            return True
        stored = Alert.objects.filter(incident=incident, state=FIRING)
        return stored.exclude(pk__in=here).exists()

    # What is stored

    def _write_alerts(self) -> None:
        Alert.objects.bulk_create(
            self.touched.values(),
            update_conflicts=True,
            unique_fields=["source", "fingerprint"],
            update_fields=WRITTEN,
            batch_size=AT_ONCE,
        )

    def _write_delivery(self, reading: Reading) -> None:
        delivery = reading.delivery
        alerts = reading.parsed.alerts if reading.parsed else ()
        delivery.alerts = len(alerts)
        delivery.content = [_kept(alert) for alert in alerts[:KEPT_ALERTS]]
        delivery.judged_at, delivery.encrypted_body = self.now, b""
        if not delivery.verdict:
            delivery.verdict, delivery.became, delivery.cycle = self._outcome(reading)
        delivery.save(
            update_fields=[
                *("alerts", "content", "judged_at", "encrypted_body"),
                *("verdict", "became", "cycle"),
            ]
        )

    def _outcome(self, reading: Reading) -> tuple[str, str, Cycle | None]:
        if reading.unreadable:
            return Outcome.UNREADABLE, reading.unreadable, None
        if not reading.verdicts:
            return self._outcome_without_verdict(reading)
        words = _words(verdict for _alert, verdict in reading.verdicts)
        runs_again = reading.delivery.source.runs_again
        wakers = [
            alert.watch_id
            for alert, verdict in reading.verdicts
            if starts_cycle(verdict, runs_again=runs_again)
        ]
        woken = next((self.woken[one] for one in wakers if one in self.woken), None)
        if woken is None:
            return Outcome.NOTED, words, None
        if woken.cycle is None:
            return Outcome.NOT_RUN, f"{words}. No cycle: {woken.why_not}", None
        return Outcome.RUN if woken.is_new else Outcome.COLLECTED, words, woken.cycle

    def _outcome_without_verdict(self, reading: Reading) -> tuple[str, str, None]:
        if reading.has_no_watch:
            return Outcome.NO_WATCH, "No route names a watch, and the source has none.", None
        alerts = reading.parsed.alerts if reading.parsed else ()
        if reading.delivery.is_test or alerts:
            return Outcome.TEST, "A test: it opens no incident.", None
        return Outcome.NOTED, "The end of a group that was not known", None


def _words(verdicts: Iterable[Verdict]) -> str:
    counts: defaultdict[str, int] = defaultdict(int)
    for verdict in verdicts:
        counts[verdict] += 1
    return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def _kept(alert: ParsedAlert) -> dict[str, Any]:
    return {
        "state": "firing" if alert.is_firing else "resolved",
        "service": alert.service,
        "summary": alert.summary,
        "labels": dict(alert.labels),
    }


def _facts_of(alert: Alert | None, *, is_pending: bool) -> KnownAlert | None:
    """Return what is known. `is_pending`: an earlier delivery of the batch opens its incident."""
    if alert is None:
        return None
    incident = alert.incident
    return KnownAlert(
        is_firing=alert.state == FIRING,
        severity=alert.severity,
        starts_at=alert.starts_at,
        resolved_at=alert.resolved_at,
        has_incident=incident is not None or is_pending,
        incident_ended_at=incident.resolved_at if incident else None,
    )


def fact_of(alert: Alert) -> Fact:
    began = alert.starts_at
    is_known = began is not None and began <= alert.last_seen_at
    labels = ", ".join(f"{name}={value}" for name, value in sorted(alert.labels.items()))
    said = "\n".join(filter(None, (alert.summary, alert.detail, labels)))
    return Fact(
        source=Cycle.Trigger.ALERT,
        name=one_line(alert.labels.get("alertname") or alert.summary, 120),
        service=alert.service,
        severity=alert.severity,
        at=alert.last_seen_at,
        since=began if is_known else alert.first_seen_at,
        output=said,
    )


def storm_fact(lead: Alert, others: Sequence[Alert]) -> Fact:
    """Return one fact for all other alerts of a storm, under the service of its lead."""
    lines = [f"{one.service}: {one.summary}" for one in others]
    return replace(
        fact_of(lead),
        name=f"storm of {len(others)} more alerts",
        severity=max(lead.severity, *(one.severity for one in others)),
        output="\n".join(lines),
    )
