"""The configuration in the database, in the words of the files; and its export as a file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import time
from decimal import Decimal
from typing import Any

import tomli_w
from django.db.models import Prefetch
from django.utils import timezone
from django.utils.crypto import salted_hmac

from escalation.alerts.decision import read_routes
from escalation.configuration import plan
from escalation.configuration.declaration import NONE, SEVERITIES
from escalation.configuration.plan import Action, Address, Kind, Secret, State, Step
from sessions_app.models import (
    AppliedDeclaration,
    Channel,
    Maintenance,
    Probe,
    Remedy,
    Source,
    Watch,
)
from sessions_app.models.autonomy import AutonomyLevel
from sessions_app.models.watch import read_ask_rules
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, address_of, secret_of
from sessions_app.redaction.redact import redacted

UNREADABLE = Secret("encrypted with another key")
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def fingerprint(secret: str) -> Secret:
    return Secret(salted_hmac("configuration", secret, algorithm="sha256").hexdigest())


def _set(words: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is not set."""
    return {name: value for name, value in words.items() if value not in (None, "", [], {})}


def duration(seconds: int) -> str:
    """Format a duration in the largest unit that divides it."""
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds and seconds % length == 0:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def watch_words(watch: Watch) -> dict[str, Any]:
    words = _set(
        {
            "directory": watch.workdir,
            "instructions": watch.instructions,
            "every": None if watch.cron else duration(watch.interval_minutes * 60),
            "cron": watch.cron,
            "enabled": watch.enabled,
            "hosts": watch.hosts.split(),
            "ask": list(read_ask_rules(watch.ask)),
            "grants": watch.grants.replace(",", " ").split(),
            "budgets": _budget_words(watch),
            "restarts": f"{watch.restarts_allowed}/{watch.restart_hours}h",
            "redeployments": f"{watch.redeployments_allowed}/{watch.redeployment_hours}h",
        }
    )
    # An empty `approval` is not the default.
    return {**words, **policy_words(watch)}


def policy_words(watch: Watch) -> dict[str, Any]:
    """Return the autonomy level, or the three settings if they are not exactly those of one."""
    for level in AutonomyLevel:
        if level.policy == watch.policy:
            return {"autonomy": level.value}
    policy = watch.policy
    approval = sorted(policy.approval_tiers)
    return {"max_tier": policy.max_tier, "dry_run": policy.dry_run, "approval": approval}


def _budget_words(watch: Watch) -> dict[str, Any]:
    day = watch.budget_day_usd
    return {} if day is None else {"day": f"{day.normalize():f}"}


def probe_words(probe: Probe) -> dict[str, Any]:
    is_heartbeat = probe.kind == Probe.Kind.HEARTBEAT
    return _set(
        {
            "service": probe.service,
            probe.kind: True if is_heartbeat else probe.target,
            "every": duration(probe.interval_seconds),
            "timeout": duration(probe.timeout_seconds),
            "fail_after": probe.fail_after,
            "recover_after": probe.recover_after,
            "needs": sorted(parent.name for parent in probe.needs.all()),
            "options": dict(probe.options),
        }
    )


def remedy_words(row: Remedy) -> dict[str, Any]:
    return _set(
        {
            "description": row.description,
            "command": list(row.command),
            "parameters": row.parameters.splitlines(),
            "kind": row.kind,
            "service": row.service,
            "tier": row.tier,
            "grants": row.grants.split(),
            "seconds": row.seconds,
            "probe": row.probe,
            "undo": row.undo,
            "tier0": row.tier0_hours,
            "enabled": row.enabled,
        }
    )


def maintenance_words(window: Maintenance) -> dict[str, Any]:
    assert window.ends_at is not None, "windows without an end are not declared"
    return _set(
        {
            "starts_at": timezone.localtime(window.starts_at),
            "for": duration(int((window.ends_at - window.starts_at).total_seconds())),
            "weekly": window.is_weekly or None,
            "service": window.service,
            "reason": window.reason,
        }
    )


def window_name(window: Maintenance) -> str:
    """Identify a window by what it covers; a weekly one by weekday and local time."""
    start = timezone.localtime(window.starts_at)
    assert window.ends_at is not None, "windows without an end are not declared"
    length = duration(int((window.ends_at - window.starts_at).total_seconds()))
    when = f"{start:%Y-%m-%d %H:%M:%S}"
    if window.is_weekly:
        when = f"every {WEEKDAYS[start.weekday()]} {start:%H:%M:%S}"
    return f"{when.removesuffix(':00')} for {length}" + (
        f" of {window.service}" if window.service else ""
    )


def source_words(source: Source) -> dict[str, Any]:
    routes = [
        {"label": label, "value": value, "watch": watch}
        for label, value, watch in read_routes(source.routes)
    ]
    return _set(
        {
            "kind": source.kind,
            "watch": source.watch.name if source.watch else None,
            "routes": routes,
            "service_label": source.service_label,
            "paths": dict(source.paths),
            "new_only": not source.runs_again,
            "token": fingerprint(source.token_hash),
            "secret": _secret_words(source),
            "enabled": source.enabled,
        }
    )


def _secret_words(source: Source) -> Secret | str:
    if not bytes(source.encrypted_secret):
        return NONE
    try:
        return fingerprint(secret_of(source))
    except EncryptedWithAnotherKey:
        return UNREADABLE


def channel_words(channel: Channel) -> dict[str, Any]:
    severity = next(word for word, value in SEVERITIES.items() if value == channel.least_severity)
    quiet = ""
    if channel.quiet_from is not None and channel.quiet_until is not None:
        quiet = f"{_clock(channel.quiet_from)}-{_clock(channel.quiet_until)}"
    return _set(
        {
            "address": address_print(channel),
            "from": severity,
            "watches": sorted(watch.name for watch in channel.watches.all()),
            "quiet": quiet,
            "digest": _clock(channel.digest_at) if channel.digest_at is not None else None,
            "digest_when_quiet": channel.digest_when_quiet,
            "owner": channel.owner.get_username() if channel.owner else None,
            "enabled": channel.enabled,
        }
    )


def _clock(at: time) -> str:
    return at.strftime("%H:%M")


def address_print(channel: Channel) -> Secret:
    try:
        return fingerprint(address_of(channel))
    except EncryptedWithAnotherKey:
        return UNREADABLE


def current(watch: str | None = None) -> dict[Address, dict[str, Any]]:
    """Read what is configured: of everything, or of one watch with what is part of it."""
    found = dict(_of_watches(watch))
    if watch is None:
        for source in Source.objects.select_related("watch"):
            found[Address(kind=Kind.SOURCE, name=source.name)] = source_words(source)
        channels = Channel.objects.select_related("owner").prefetch_related("watches")
        for channel in channels:
            found[Address(kind=Kind.CHANNEL, name=channel.name)] = channel_words(channel)
    return found


def _of_watches(name: str | None) -> Iterator[tuple[Address, dict[str, Any]]]:
    rows = Watch.objects.prefetch_related(
        "probes__needs",
        "remedies",
        Prefetch("maintenance", Maintenance.objects.exclude(ends_at=None), to_attr="ending"),
    )
    for watch in rows if name is None else rows.filter(name=name):
        yield Address(kind=Kind.WATCH, name=watch.name), watch_words(watch)
        for probe in watch.probes.all():
            yield Address(kind=Kind.PROBE, name=probe.name, watch=watch.name), probe_words(probe)
        for row in watch.remedies.all():
            yield Address(kind=Kind.REMEDY, name=row.name, watch=watch.name), remedy_words(row)
        for window in watch.ending:
            if window.is_weekly or not _has_ended(window):
                address = Address(kind=Kind.MAINTENANCE, name=window_name(window), watch=watch.name)
                yield address, compared_window(window)


def _has_ended(window: Maintenance) -> bool:
    return window.ends_at is not None and window.ends_at <= timezone.now()


def compared_window(window: Maintenance) -> dict[str, Any]:
    """Return the words of a window that its name does not tell yet."""
    return _set({"weekly": window.is_weekly or None, "reason": window.reason})


# A watch beside the file that it came from.


@dataclass(frozen=True, kw_only=True, slots=True)
class Drift:
    """The file that a watch came from, and what was changed since."""

    record: AppliedDeclaration
    steps: tuple[Step, ...]

    @property
    def sentence(self) -> str:
        """State in one line, for pages and terminals."""
        state = "in step with" if not self.steps else "changed since it was applied from"
        return f"from git, {state} {self.record.file}"

    @property
    def lines(self) -> list[str]:
        """Changes since, one on each line: what the file says, and what is there now."""
        return [line for step in self.steps for line in _lines(step)]

    @property
    def way_back(self) -> str:
        """Command that takes the changes back."""
        prune = any(step.action == Action.ADD for step in self.steps)
        return f"claudeops apply {shlex.quote(self.record.file)}{' --prune' if prune else ''}"


def _lines(step: Step) -> Iterator[str]:
    if step.action == Action.ADD:
        yield f"{step.address} was added"
    elif step.action == Action.REMOVE:
        yield f"{step.address} was removed"
    for one in step.fields if step.action == Action.CHANGE else ():
        before, after = plan.value_text(one.before), plan.value_text(one.after)
        yield f"{step.address}, {one.name}: {before} → {after}"


def drift_of(watch: Watch) -> Drift | None:
    """Compare a watch with the file that it was applied from; None if from no file."""
    record = AppliedDeclaration.objects.filter(kind=Kind.WATCH, name=watch.name).first()
    if record is None:
        return None
    now = current(watch.name)
    applied = {
        address: words
        for address, words in plan.read_stored(record.words).items()
        if not _is_over(address, words, now)
    }
    compared = {
        address: words
        for address, words in now.items()
        if address in applied or not is_single(address, words)
    }
    return Drift(record=record, steps=plan.drift(applied, compared))


def is_single(address: Address, words: Mapping[str, Any]) -> bool:
    """Return True for a window that happens once: started by a person, it is no drift."""
    return address.kind == Kind.MAINTENANCE and not words.get("weekly")


def _is_over(address: Address, words: Mapping[str, Any], now: State) -> bool:
    return is_single(address, words) and address not in now


# Export

TABLES = {
    Kind.WATCH: "watches",
    Kind.PROBE: "probes",
    Kind.REMEDY: "remedies",
    Kind.SOURCE: "sources",
    Kind.CHANNEL: "channels",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    text: str
    references: Mapping[str, str]
    """What each reference in place of a secret stands for."""
    hidden: tuple[str, ...]
    """Values that hold a secret, which is redacted: they must be corrected before they apply."""


def export(watch: str | None = None) -> Export:
    """Write what is configured as the text of a file, with references in place of secrets."""
    content: dict[str, Any] = {}
    references: dict[str, str] = {}
    hidden: list[str] = []
    for address, words in current(watch).items():
        if address.kind == Kind.MAINTENANCE:
            continue
        inside = content.setdefault("watches", {})[address.watch] if address.watch else content
        table = inside.setdefault(TABLES[address.kind], {})
        table[address.name] = safe = {}
        for name, value in words.items():
            safe[name] = _without_secrets(_exported(address, name, value, references))
            if not isinstance(value, Secret) and _without_secrets(value) != value:
                hidden.append(f"{name} of the {address}")
    for window in Maintenance.objects.exclude(ends_at=None).select_related("watch").order_by("pk"):
        table = content.get("watches", {}).get(window.watch.name)
        if table is not None and (window.is_weekly or not _has_ended(window)):
            table.setdefault("maintenance", []).append(maintenance_words(window))
    head = HEAD if not references else f"{HEAD}{REFERENCES}"
    text = head + tomli_w.dumps(content, multiline_strings=True)
    return Export(text=text, references=references, hidden=tuple(hidden))


HEAD = "# Configuration of Claude Ops, by `claudeops export`. See `claudeops apply --help`.\n"
REFERENCES = (
    "# Secrets are not in this file: set the variables behind `env:`, or name a `file:/PATH`.\n"
)


def _exported(address: Address, name: str, value: Any, references: dict[str, str]) -> Any:
    if isinstance(value, Secret):
        return _reference(address, name, references)
    if name == "budgets":
        return {"day": Decimal(value["day"])}
    return value


def _without_secrets(value: Any) -> Any:
    """Redact texts one by one: the name of a key says nothing about a reference."""
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, list):
        return [_without_secrets(one) for one in value]
    if isinstance(value, dict):
        return {name: _without_secrets(one) for name, one in value.items()}
    return value


def _reference(address: Address, name: str, references: dict[str, str]) -> str:
    """Return a variable for a secret that is not used for another one."""
    plain = re.sub(r"[^A-Z0-9]+", "_", f"{address.kind}_{address.name}_{name}".upper()).strip("_")
    variable, number = plain, 1
    while variable in references:
        number += 1
        variable = f"{plain}_{number}"
    references[variable] = f"the {name} of the {address.kind} {address.name}"
    return f"env:{variable}"
