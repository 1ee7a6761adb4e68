"""Parsers of deliveries, one for each kind of source: pure functions from JSON to alerts.

A sender may leave out, rename or mistype any field. A parser takes what it finds, and raises
`Unreadable` only if nothing in the delivery tells a problem. All text is as the sender wrote it:
the caller redacts it before it is stored.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from sessions_app.models import Incident
from sessions_app.models.alert import SourceKind
from sessions_app.text import one_line

Severity = Incident.Severity

LONGEST_LABEL, LONGEST_SUMMARY, LONGEST_DETAIL, MOST_LABELS = 300, 300, 2_000, 64
LONGEST_FINGERPRINT, LONGEST_SERVICE = 255, 200
MOST_ALERTS = 10_000
DEEPEST_JSON = 32

CRITICAL_WORDS = frozenset(
    [
        "critical",
        "crit",
        "error",
        "err",
        "fatal",
        "emergency",
        "emerg",
        "alert",
        "page",
        "disaster",
        "high",
        "major",
        "p1",
        "sev1",
    ]
)
NOTICE_WORDS = frozenset(
    ["info", "information", "informational", "notice", "low", "none", "debug", "ok", "p4", "p5"]
)
SERVICE_LABELS = (
    *("service", "service_name", "app", "app_kubernetes_io_name", "container", "container_name"),
    *("deployment", "statefulset", "unit", "name", "job", "instance", "alertname"),
)
"""Labels that may name the service, the most telling first."""


class Unreadable(ValueError):
    """Raised for a delivery that tells no problem; the message says what is missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedAlert:
    """One problem in a delivery, in the same form for every sender."""

    fingerprint: str
    is_firing: bool
    service: str
    summary: str
    severity: int = Severity.WARNING
    detail: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    group: str = ""
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    is_test: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ParsedDelivery:
    alerts: tuple[ParsedAlert, ...]
    ended_group: str = ""
    """Group whose last problem has ended, also those that a truncated delivery did not name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParserOptions:
    """Settings of a source that its deliveries are read with."""

    service_label: str = ""
    paths: Mapping[str, str] = field(default_factory=dict)
    """For the kind `generic`: the dotted path of each field."""


def parse(
    kind: str, body: Any, now: datetime, options: ParserOptions | None = None
) -> ParsedDelivery:
    """Return the alerts of a delivery. Raise Unreadable if it has none."""
    parsed = PARSERS[SourceKind(kind)](body, now, options or ParserOptions())
    if not parsed.alerts and not parsed.ended_group:
        raise Unreadable("the delivery names no alert")
    return parsed


def read_json(raw: bytes) -> Any:
    """Return the parsed body. Raise Unreadable if it is no JSON or is nested too deeply."""
    try:
        body = json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise Unreadable("the body is not UTF-8") from error
    except RecursionError as error:
        raise Unreadable(TOO_DEEP) from error
    except ValueError as error:
        raise Unreadable(f"the body is not JSON: {error}") from error
    if _is_deeper(body, DEEPEST_JSON):
        raise Unreadable(TOO_DEEP)
    return body


TOO_DEEP = f"the JSON is nested deeper than {DEEPEST_JSON} levels"


def _is_deeper(body: Any, limit: int) -> bool:
    level = _containers([body])
    for _depth in range(limit):
        if not level:
            return False
        children = (one.values() if isinstance(one, dict) else one for one in level)
        level = [child for some in children for child in _containers(some)]
    return bool(level)


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, dict | list)]


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


# Alertmanager and Grafana


def parse_alertmanager(body: Any, now: datetime, options: ParserOptions) -> ParsedDelivery:
    """Parse version 4 of Alertmanager's webhook, which Grafana sends too.

    `truncatedAlerts` counts members of the group that `max_alerts` left out. They are never named,
    neither firing nor resolved: one alert stands for them, and ends with the group.
    """
    group = _required_mapping(body)
    if "alerts" not in group and "state" in group and ("ruleId" in group or "ruleName" in group):
        return parse_grafana_legacy(group, options)
    if not isinstance(group.get("alerts"), list):
        raise Unreadable("there is no list `alerts`: is this an Alertmanager webhook?")
    key = _text(group.get("groupKey"), LONGEST_FINGERPRINT)
    has_ended = _text(group.get("status")) == "resolved"
    common = _labels(group.get("commonLabels"))
    members = _mappings(group["alerts"])
    alerts = [
        _labelled_alert(
            one,
            group=key,
            is_firing=_text(one.get("status") or group.get("status")) != "resolved",
            common=common,
            annotations={
                **_labels(group.get("commonAnnotations")),
                **_labels(one.get("annotations")),
            },
            options=options,
        )
        for one in members
    ]
    cut_off = _number(group.get("truncatedAlerts"))
    if cut_off > 0 and not has_ended:
        alerts.append(_cut_off_members(key, cut_off, group, common, options))
    return ParsedDelivery(alerts=_without_doubles(alerts), ended_group=key if has_ended else "")


def _cut_off_members(
    key: str,
    count: int,
    group: Mapping[str, Any],
    common: Mapping[str, str],
    options: ParserOptions,
) -> ParsedAlert:
    labels = {**common, **_labels(group.get("groupLabels"))}
    return ParsedAlert(
        fingerprint=_hashed({"group": key, "part": "truncated"}),
        is_firing=True,
        service=_service_of(labels, options) or "alerts",
        severity=severity_of(labels.get("severity")),
        summary=f"{count} more alerts of this group were cut off by the sender",
        labels=labels,
        group=key,
    )


def _labelled_alert(
    one: Mapping[str, Any],
    *,
    group: str,
    is_firing: bool,
    common: Mapping[str, str],
    annotations: Mapping[str, str],
    options: ParserOptions,
) -> ParsedAlert:
    labels = {**common, **_labels(one.get("labels"))}
    name = labels.get("alertname", "")
    summary = annotations.get("summary") or annotations.get("title") or annotations.get("message")
    given = _text(one.get("fingerprint"), LONGEST_FINGERPRINT)
    return ParsedAlert(
        fingerprint=given or _hashed(labels or {"summary": summary or "", "group": group}),
        is_firing=is_firing,
        service=_service_of(labels, options) or "alerts",
        severity=severity_of(labels.get("severity") or labels.get("priority")),
        summary=_one_line(summary or name or "an alert without a name"),
        detail=_detail(annotations),
        labels=labels,
        group=group,
        starts_at=_moment(one.get("startsAt")),
        ends_at=_moment(one.get("endsAt")),
        is_test=name == "TestAlert" and labels.get("instance") == "Grafana",
    )


def parse_grafana_legacy(group: Mapping[str, Any], options: ParserOptions) -> ParsedDelivery:
    """Parse a delivery of Grafana's alerting before version 9."""
    state, tags = _text(group.get("state")), _labels(group.get("tags"))
    rule = group.get("ruleId") or group.get("ruleName")
    name = _text(group.get("ruleName")) or _text(group.get("title"))
    if not rule and not name:
        raise Unreadable("there is neither `ruleId` nor `ruleName`")
    labels = {"alertname": name, **tags}
    alert = ParsedAlert(
        fingerprint=f"rule:{_text(rule)}"[:LONGEST_FINGERPRINT],
        is_firing=state not in {"ok", "paused", "pending"},
        service=_service_of(tags, options) or _service(name),
        severity=severity_of(tags.get("severity")),
        summary=_one_line(_text(group.get("title")) or name),
        detail=_text(group.get("message"), LONGEST_DETAIL),
        labels=labels,
        is_test=_text(group.get("title")).startswith("[Alerting] Test notification"),
    )
    return ParsedDelivery(alerts=(alert,))


def parse_alertmanager_api(body: Any, now: datetime, options: ParserOptions) -> ParsedDelivery:
    """Parse a request to `POST /api/v2/alerts`, as Prometheus sends it to an Alertmanager.

    An alert has ended if its `endsAt` is not in the future. Prometheus sets it some minutes ahead
    while the alert fires, and sends the alert again before that.
    """
    if not isinstance(body, list):
        raise Unreadable("the body is not a list of alerts")
    alerts = []
    for one in _mappings(body):
        ends = _moment(one.get("endsAt"))
        if not _labels(one.get("labels")):
            continue
        alerts.append(
            _labelled_alert(
                {**one, "fingerprint": ""},
                group="",
                is_firing=ends is None or ends > now,
                common={},
                annotations=_labels(one.get("annotations")),
                options=options,
            )
        )
    return ParsedDelivery(alerts=_without_doubles(alerts))


# Uptime Kuma

KUMA_DOWN, KUMA_UP, KUMA_PENDING, KUMA_MAINTENANCE = 0, 1, 2, 3


def parse_uptime_kuma(body: Any, now: datetime, options: ParserOptions) -> ParsedDelivery:
    """Parse a webhook of Uptime Kuma.

    A test and the notice of a certificate that expires have neither monitor nor heartbeat. Pending
    and maintenance are no change of a problem.
    """
    message = _required_mapping(body)
    monitor, beat = _mapping(message.get("monitor")), _mapping(message.get("heartbeat"))
    text = _text(message.get("msg"), LONGEST_DETAIL)
    if not monitor and not beat:
        return ParsedDelivery(alerts=(_kuma_message(text),))
    status = _number(beat.get("status"), default=-1)
    if status in {KUMA_PENDING, KUMA_MAINTENANCE}:
        raise Unreadable("a monitor is pending or in maintenance, which is no problem")
    if status not in {KUMA_DOWN, KUMA_UP}:
        raise Unreadable("`heartbeat.status` is neither 0 (down) nor 1 (up)")
    number = _text(monitor.get("id")) or _text(beat.get("monitorID"))
    name = _text(monitor.get("name")) or (f"monitor {number}" if number else "")
    if not name:
        raise Unreadable("there is neither `monitor.id` nor `monitor.name`")
    labels = {
        key: _text(value, LONGEST_LABEL)
        for key, value in (
            ("monitor", name),
            ("type", monitor.get("type")),
            ("url", monitor.get("url")),
            ("hostname", monitor.get("hostname")),
            ("port", monitor.get("port")),
        )
        if value not in (None, "", "https://", "http://")
    }
    tags = {
        _text(tag.get("name"), LONGEST_LABEL): _text(tag.get("value"), LONGEST_LABEL)
        for tag in _mappings(monitor.get("tags"))
        if _text(tag.get("name"))
    }
    alert = ParsedAlert(
        fingerprint=f"monitor:{number or name}"[:LONGEST_FINGERPRINT],
        is_firing=status == KUMA_DOWN,
        service=_service_of(tags, options, only=("service",)) or _service(name),
        severity=severity_of(tags.get("severity"), default=Severity.CRITICAL),
        summary=_one_line(f"{name}: {_text(beat.get('msg')) or text or 'down'}"),
        detail=text,
        labels={**labels, **tags},
        starts_at=_moment(beat.get("time")),
    )
    return ParsedDelivery(alerts=(alert,))


def _kuma_message(text: str) -> ParsedAlert:
    if not text:
        raise Unreadable("there is neither `monitor` nor `msg`")
    # "[web][https://web.example] tls certificate web.example will be expired in 7 days"
    is_certificate = "certificate" in text.lower()
    name = text.partition("]")[0].lstrip("[") if text.startswith("[") else ""
    return ParsedAlert(
        fingerprint=_hashed({"certificate": name or text}),
        is_firing=True,
        service=_service(name) or "certificate",
        summary=_one_line(text),
        detail=text,
        is_test=not is_certificate,
    )


# healthchecks


def parse_healthchecks(body: Any, now: datetime, options: ParserOptions) -> ParsedDelivery:
    """Parse the template that `claudeops source add --kind healthchecks` prints."""
    check = _required_mapping(body)
    code, name = _text(check.get("code")), _text(check.get("name"))
    status = _text(check.get("status")).lower()
    if not code and not name:
        raise Unreadable("there is neither `code` nor `name`: paste the template of this source")
    if status not in {"up", "down"}:
        raise Unreadable("`status` is neither `up` nor `down`")
    tags = _text(check.get("tags"), LONGEST_LABEL)
    labels = {"check": name, "tags": tags, "exit_status": _text(check.get("exit_status"))}
    last = _text(check.get("body"), LONGEST_DETAIL)
    alert = ParsedAlert(
        fingerprint=f"check:{code or name}"[:LONGEST_FINGERPRINT],
        is_firing=status == "down",
        service=_service(name or code),
        summary=_one_line(f"{name or code} is {status}"),
        detail=last,
        labels={key: value for key, value in labels.items() if value},
        starts_at=_moment(check.get("now")),
        is_test=name == "TEST",
    )
    return ParsedDelivery(alerts=(alert,))


# PagerDuty Events v2

PAGERDUTY_ACTIONS = frozenset({"trigger", "acknowledge", "resolve"})


def parse_pagerduty(body: Any, now: datetime, options: ParserOptions) -> ParsedDelivery:
    """Parse an event of PagerDuty's Events API, version 2."""
    event = _required_mapping(body)
    action, key = _text(event.get("event_action")), _text(event.get("dedup_key"))
    payload = _mapping(event.get("payload"))
    if action not in PAGERDUTY_ACTIONS:
        raise Unreadable("`event_action` is neither trigger, acknowledge nor resolve")
    if action == "acknowledge":
        raise Unreadable("an acknowledgement is no change of a problem")
    details = payload.get("custom_details")
    known = {name: payload.get(name) for name in ("component", "group", "class", "source")}
    labels = {**_labels(details), **_labels(known)}
    summary = _text(payload.get("summary"))
    if not key and not summary:
        raise Unreadable("there is neither `dedup_key` nor `payload.summary`")
    component = _text(payload.get("component")) or _text(payload.get("source"))
    alert = ParsedAlert(
        fingerprint=(key or _hashed({"summary": summary, **labels}))[:LONGEST_FINGERPRINT],
        is_firing=action == "trigger",
        service=_service_of(labels, options, only=("service",)) or _service(component) or "alerts",
        severity=severity_of(payload.get("severity")),
        summary=_one_line(summary or key),
        detail=_text(details if isinstance(details, str) else "", LONGEST_DETAIL),
        labels=labels,
        starts_at=_moment(payload.get("timestamp")),
    )
    return ParsedDelivery(alerts=(alert,))


# Any JSON, by paths

GENERIC_PATHS = {
    "alerts": "",
    "fingerprint": "id",
    "state": "status",
    "service": "service",
    "severity": "severity",
    "summary": "message",
    "starts": "",
    "ends": "",
}
"""The fields of a generic delivery, with the path that is read unless the source names another."""
RESOLVED_WORDS = frozenset(
    [
        "resolved",
        "resolve",
        "ok",
        "up",
        "recovered",
        "recovery",
        "normal",
        "cleared",
        "clear",
        "closed",
        "healthy",
        "good",
        "1",
        "true",
        "success",
        "inactive",
    ]
)


def parse_generic(body: Any, now: datetime, options: ParserOptions) -> ParsedDelivery:
    """Parse any JSON by the paths of the source; `alerts` may lead to a list of problems."""
    paths = {**GENERIC_PATHS, **options.paths}
    found = at_path(body, paths["alerts"]) if paths["alerts"] else body
    members = _mappings(found if isinstance(found, list) else [found])
    alerts = [alert for one in members if (alert := _generic(one, paths, options)) is not None]
    return ParsedDelivery(alerts=_without_doubles(alerts))


def _generic(
    one: Mapping[str, Any], paths: Mapping[str, str], options: ParserOptions
) -> ParsedAlert | None:
    read = {name: _text(at_path(one, path)) for name, path in paths.items() if path}
    labels = {**_labels(one), **_labels(one.get("labels"))}
    summary, service = read.get("summary", ""), read.get("service", "")
    name = service or summary
    key = read.get("fingerprint") or (_hashed({"of": name}) if name else "")
    if not key:
        return None
    ends = _moment(read.get("ends"))
    return ParsedAlert(
        fingerprint=key[:LONGEST_FINGERPRINT],
        is_firing=read.get("state", "").strip().lower() not in RESOLVED_WORDS,
        service=_service(service) or _service_of(labels, options) or "alerts",
        severity=severity_of(read.get("severity")),
        summary=_one_line(summary or service or key),
        labels=labels,
        starts_at=_moment(read.get("starts")),
        ends_at=ends,
    )


def at_path(value: Any, path: str) -> Any:
    """Return the value at a dotted path like `data.items.0.name`, or None."""
    for part in path.split(".") if path else ():
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


Parser = Callable[[Any, datetime, ParserOptions], ParsedDelivery]
PARSERS: Mapping[SourceKind, Parser] = {
    SourceKind.ALERTMANAGER: parse_alertmanager,
    SourceKind.GRAFANA: parse_alertmanager,
    SourceKind.UPTIME_KUMA: parse_uptime_kuma,
    SourceKind.HEALTHCHECKS: parse_healthchecks,
    SourceKind.GENERIC: parse_generic,
    SourceKind.PAGERDUTY: parse_pagerduty,
    SourceKind.ALERTMANAGER_API: parse_alertmanager_api,
}


# Values from outside


def severity_of(word: Any, default: int = Severity.WARNING) -> int:
    """Return the severity that a sender's word means."""
    text = _text(word).strip().lower()
    if not text:
        return default
    if text in CRITICAL_WORDS:
        return Severity.CRITICAL
    return Severity.NOTICE if text in NOTICE_WORDS else Severity.WARNING


def _service_of(
    labels: Mapping[str, str], options: ParserOptions, only: Iterable[str] = SERVICE_LABELS
) -> str:
    names = (options.service_label, *only) if options.service_label else only
    return next((_service(labels[name]) for name in names if _service(labels.get(name, ""))), "")


def _service(text: str) -> str:
    """Return the name of a service; `#` begins the causes that are no services."""
    return one_line(text, LONGEST_SERVICE).strip().lstrip("#").strip()


def _required_mapping(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise Unreadable("the body is not a JSON object")
    return body


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _mappings(value: Any) -> list[dict[str, Any]]:
    members = value if isinstance(value, list) else []
    if len(members) > MOST_ALERTS:
        raise Unreadable(f"there are more than {MOST_ALERTS:,} alerts in one delivery")
    return [one for one in members if isinstance(one, dict)]


def _labels(value: Any) -> dict[str, str]:
    """Return the plain values of a mapping, as text; the first `MOST_LABELS` of them."""
    plain = (
        (_text(name, LONGEST_LABEL), _text(one, LONGEST_LABEL))
        for name, one in _mapping(value).items()
        if isinstance(one, str | int | float | bool)
    )
    return dict([(name, one) for name, one in plain if name][:MOST_LABELS])


def _text(value: Any, longest: int = LONGEST_SUMMARY) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value[:longest]
    if isinstance(value, int | float):
        return str(value)[:longest]
    return ""


def _one_line(text: str) -> str:
    return one_line(text, LONGEST_SUMMARY)


def _number(value: Any, default: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return default
    try:
        return int(value)
    except (ValueError, OverflowError):
        return default


def _moment(value: Any) -> datetime | None:
    """Return the time; None for one that is missing, wrong, or Go's zero time."""
    if not isinstance(value, str) or not value:
        return None
    try:
        moment = parse_datetime(value.strip())
    except ValueError:
        return None
    if moment is None or moment.year <= 1970:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _detail(annotations: Mapping[str, str]) -> str:
    first = annotations.get("description") or annotations.get("message") or ""
    rest = [
        f"{name}: {text}"
        for name, text in annotations.items()
        if name not in {"description", "summary"} and text != first
    ]
    return "\n".join(line for line in (first, *rest) if line)[:LONGEST_DETAIL]


def _hashed(labels: Mapping[str, str]) -> str:
    return hashlib.sha256(json.dumps(dict(labels), sort_keys=True).encode()).hexdigest()[:32]


def _without_doubles(alerts: Iterable[ParsedAlert]) -> tuple[ParsedAlert, ...]:
    """Keep one of each fingerprint, the last that the sender wrote."""
    return tuple({alert.fingerprint: alert for alert in alerts}.values())
