"""Proposes probes: from the compose file, from what Tier 1 listed, and from reports.

Nothing runs a proposal. A person accepts it as it is shown, and then it is a probe like any other.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.utils import timezone

from escalation.agent.stream import tool_calls
from escalation.errors import OperationRefused, RefusalCode
from escalation.probes import manage
from escalation.probes.targets import BadTarget, check_target
from escalation.queue import installation_lock
from sessions_app.history.services import one_spelling
from sessions_app.models import (
    Incident,
    Probe,
    ProbeProposal,
    ServiceState,
    Session,
    SessionEvent,
    Watch,
)
from sessions_app.redaction.redact import redacted
from sessions_app.text import as_text, mapping
from sessions_app.tiers import LOWEST_TIER

Kind, State = Probe.Kind, ProbeProposal.State
COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
LONGEST_FILE, LONGEST_OUTPUT = 64_000, 40_000
MOST_SHOWN, MOST_EVENTS = 20, 1_000
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposed:
    """A probe that a person may accept."""

    service: str
    kind: str
    target: str
    why: str
    session: int | None = None
    """Session whose report proposed it; None for what Claude Ops read itself."""

    @property
    def key(self) -> str:
        return ProbeProposal.key_of(self.service, self.kind, self.target)

    @property
    def kind_name(self) -> str:
        return str(Kind(self.kind).label)

    @property
    def name(self) -> str:
        """Name of the probe that it becomes, unless that is taken."""
        plain = re.sub("[^a-z0-9]+", "-", f"{self.service} {self.kind}".lower()).strip("-")
        return plain[:90] or self.kind


# From the compose file.

PORT = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:]+\]|[0-9.]+):)?(?P<port>\d+):(?P<inner>\d+)(?:/tcp)?")
OWN_URL = re.compile(r"(https?)://(?:localhost|127\.0\.0\.1)(?::(\d+))?(/[^\s\"'|;&)]*)?")
EVERYWHERE = frozenset({"", "*", "0.0.0.0", "::", "[::]", "0"})  # noqa: S104


def from_compose(text: str, file: str, directory: str) -> tuple[Proposed, ...]:
    """Return a probe for each service of a compose file: its health check by HTTP, else its
    published port, else its container. Pure.
    """
    try:
        document = mapping(yaml.load(text, Loader=Loader))  # noqa: S506 (a safe loader)
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        return ()
    project = as_text(document.get("name")) or directory
    project = re.sub("[^a-z0-9_-]", "", project.lower()).lstrip("_-")
    found = []
    for name, body in mapping(document.get("services")).items():
        service = mapping(body)
        if isinstance(name, str) and not service.get("profiles"):
            found.append(_of_service(name, service, file, project))
    return tuple(filter(None, found))


def _of_service(name: str, body: Mapping[str, Any], file: str, project: str) -> Proposed | None:
    ports = tuple(_published(body.get("ports")))
    if address := _health_address(body, ports):
        why = f"{file} checks its health there"
        return Proposed(service=name, kind=Kind.HTTP, target=address, why=why)
    if ports:
        host, port, _inner = ports[0]
        why = f"{file} publishes its port"
        return Proposed(service=name, kind=Kind.TCP, target=f"{host}:{port}", why=why)
    container = as_text(body.get("container_name")) or f"{project}-{name}-1"
    why = f"{file} has it, and publishes no port of it"
    if not project or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", container):
        return None
    return Proposed(service=name, kind=Kind.CONTAINER, target=container, why=why)


def _published(ports: Any) -> Iterator[tuple[str, int, int]]:
    """Return host, port and port of the container of what is published by TCP."""
    for entry in ports if isinstance(ports, list) else ():
        if isinstance(entry, Mapping):
            published, inner = (as_text(str(entry.get(key))) for key in ("published", "target"))
            if entry.get("protocol", "tcp") != "tcp":
                continue
            entry = f"{entry.get('host_ip') or '0.0.0.0'}:{published}:{inner}"  # noqa: S104
        found = PORT.fullmatch(entry) if isinstance(entry, str) else None
        if found and 0 < int(found["port"]) < 65536:
            host = found["host"] or ""
            yield _reachable(host), int(found["port"]), int(found["inner"])


def _reachable(host: str) -> str:
    return "127.0.0.1" if host in EVERYWHERE else host


def _health_address(body: Mapping[str, Any], ports: Sequence[tuple[str, int, int]]) -> str:
    test = mapping(body.get("healthcheck")).get("test")
    words = " ".join(map(str, test)) if isinstance(test, list) else as_text(test)
    found = OWN_URL.search(words)
    if found is None:
        return ""
    inner = int(found[2] or (443 if found[1] == "https" else 80))
    for host, port, behind in ports:
        if behind == inner:
            return f"{found[1]}://{host}:{port}{found[3] or '/'}"
    return ""


def read_compose(watch: Watch) -> tuple[Proposed, ...]:
    """Read the compose file in the working directory. Agents may write there: no link is followed,
    and a pipe does not block.
    """
    workdir = Path(watch.workdir)
    for name in COMPOSE_FILES:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(workdir / name, flags)
        except (OSError, ValueError):
            continue
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                raw = os.read(descriptor, LONGEST_FILE + 1)
                text = raw.decode(errors="replace") if len(raw) <= LONGEST_FILE else ""
                return from_compose(text, name, workdir.name)
        finally:
            os.close(descriptor)
    return ()


# From the output of what Tier 1 ran.

LISTENING = (
    # ss -ltnp
    re.compile(
        r"^(?:tcp\s+)?LISTEN\s+\d+\s+\d+\s+(?P<host>\S+):(?P<port>\d+)\s+\S+"
        r'(?:\s+users:\(\("(?P<name>[^"]+)")?',
        re.MULTILINE,
    ),
    # netstat -ltnp
    re.compile(
        r"^tcp6?\s+\d+\s+\d+\s+(?P<host>\S+):(?P<port>\d+)\s+\S+\s+LISTEN(?:\s+\d+/(?P<name>\S+))?",
        re.MULTILINE,
    ),
)
UNIT = re.compile(
    r"^\W{0,3}(?P<unit>[A-Za-z0-9@_.\\-]+\.service)\s+loaded\s+(?:active|failed)\s", re.MULTILINE
)
STATUS_OF_UNIT = re.compile(r"^\W{0,3}(?P<unit>[A-Za-z0-9@_.\\-]+\.service) - ", re.MULTILINE)
CONTAINERS = re.compile(r"^CONTAINER ID\s.*\sNAMES\s*$", re.MULTILINE)


def from_listed(outputs: Iterable[str], services: Collection[str]) -> tuple[Proposed, ...]:
    """Return probes for the listening ports, units and containers in the output of commands that
    belong to services of the watch. Pure.
    """
    found: dict[str, Proposed] = {}
    texts = [text[:LONGEST_OUTPUT] for text in outputs]
    for kind, target, name, why in (
        *(one for text in texts for one in _ports(text)),
        *(one for text in texts for one in _units(text)),
        *(one for text in texts for one in _containers(text)),
    ):
        service = _service_named(name, services)
        if service and service not in found:
            found[service] = Proposed(service=service, kind=kind, target=target, why=why)
    return tuple(found.values())


def _ports(text: str) -> Iterator[tuple[str, str, str, str]]:
    for pattern in LISTENING:
        for one in pattern.finditer(text):
            host = one["host"].partition("%")[0]
            if one["name"] and 0 < int(one["port"]) < 65536:
                target = f"{_reachable(host)}:{one['port']}"
                yield Kind.TCP, target, one["name"], "Tier 1 saw that it listens there"


def _units(text: str) -> Iterator[tuple[str, str, str, str]]:
    for pattern in (UNIT, STATUS_OF_UNIT):
        for one in pattern.finditer(text):
            unit = one["unit"]
            yield Kind.UNIT, unit, unit.removesuffix(".service"), "Tier 1 saw this unit"


def _containers(text: str) -> Iterator[tuple[str, str, str, str]]:
    if CONTAINERS.search(text):
        for line in text.splitlines():
            words = line.split()
            if len(words) > 4 and re.fullmatch("[0-9a-f]{12}", words[0]):
                yield Kind.CONTAINER, words[-1], words[-1], "Tier 1 saw this container"


def _service_named(name: str, services: Collection[str]) -> str:
    """Return the service that a process, unit or container belongs to, or an empty string."""
    wanted = one_spelling(name)
    parts = set(re.split(r"[-_.@]", wanted))
    by_spelling = {one_spelling(service): service for service in services}
    if wanted in by_spelling:
        return by_spelling[wanted]
    return next((service for short, service in by_spelling.items() if short in parts), "")


def _outputs_of_tier_1(watch: Watch) -> list[str]:
    """Return the output of the commands of the last Tier 1 session with a report."""
    sessions = Session.objects.filter(watch=watch, tier=LOWEST_TIER, report__isnull=False)
    last = sessions.order_by("-pk").values("pk")[:1]
    events = SessionEvent.objects.filter(session__in=last, source=SessionEvent.Source.STREAM)
    payloads = events.order_by("sequence").values_list("payload", flat=True)[:MOST_EVENTS]
    return [call.output for call in tool_calls(payloads) if call.name == "Bash"]


# What a person is offered, accepts and dismisses.


def offered(watch: Watch) -> tuple[Proposed, ...]:
    """Return the proposals for a watch that nobody has decided on, those of reports first."""
    rows = list(ProbeProposal.objects.filter(watch=watch)[:500])
    probes = set(Probe.objects.filter(watch=watch).values_list("service", "kind", "target"))
    services = list(ServiceState.objects.filter(watch=watch).values_list("name", flat=True)[:500])
    outputs = _outputs_of_tier_1(watch) if services else []
    return choose(
        reported=_reported(row for row in rows if row.state == State.OPEN),
        read=(*read_compose(watch), *from_listed(outputs, services)),
        decided={row.key for row in rows if row.state != State.OPEN},
        probes=probes,
    )


def choose(
    *,
    reported: Sequence[Proposed],
    read: Sequence[Proposed],
    decided: Collection[str],
    probes: Collection[tuple[str, str, str]],
) -> tuple[Proposed, ...]:
    """Leave out what cannot be a probe, exists or was decided, and what was read of a service that
    has a probe or another proposal. Pure.
    """
    there = {(kind, target) for _service, kind, target in probes}
    covered = {one_spelling(service) for service, _kind, _target in probes}
    found: dict[tuple[str, str], Proposed] = {}
    for one in (*reported, *read):
        spelling, place = one_spelling(one.service), (one.kind, one.target)
        if one.session is None and spelling in covered:
            continue
        if one.key in decided or place in there or place in found or not _is_possible(one):
            continue
        found[place] = one
        covered.add(spelling)
    return tuple(found.values())[:MOST_SHOWN]


def _is_possible(one: Proposed) -> bool:
    try:
        check_target(one.kind, one.target)
    except BadTarget:
        return False
    is_whole = one.target.isprintable() and redacted(one.target) == one.target
    return (
        is_whole and one.kind != Kind.HEARTBEAT and len(one.target) <= ProbeProposal.LONGEST_TARGET
    )


def _reported(rows: Iterable[ProbeProposal]) -> tuple[Proposed, ...]:
    """Return what reports proposed; after a fix not before the fix is verified."""
    rows = list(rows)
    if not rows:
        return ()
    unresolved = {
        (session, one_spelling(cause))
        for session, cause in Incident.objects.filter(
            cycles__sessions__in=[row.session_id for row in rows if row.session_id],
            state__in=Incident.UNRESOLVED_STATES,
        ).values_list("cycles__sessions", "cause")
    }
    return tuple(
        Proposed(
            service=row.service,
            kind=row.kind,
            target=row.target,
            why=row.why,
            session=row.session_id or 0,
        )
        for row in rows
        if (row.session_id, one_spelling(row.service)) not in unresolved
    )


def accept(watch: Watch, key: str, *, by: str) -> Probe:
    """Make a proposal a probe. Raise OperationRefused if it is not offered any more."""
    with installation_lock():
        found = _offered(watch, key)
        taken = set(Probe.objects.filter(watch=watch).values_list("name", flat=True))
        names = (found.name, *(f"{found.name}-{number}" for number in range(2, 1_000)))
        probe = manage.add(
            watch,
            name=next(name for name in names if name not in taken),
            service=found.service,
            kind=found.kind,
            target=found.target,
        )
        _decide(watch, found, State.ACCEPTED, by)
    return probe


def dismiss(watch: Watch, key: str, *, by: str) -> Proposed:
    """Do not propose it again. Raise OperationRefused if it is not offered any more."""
    with installation_lock():
        found = _offered(watch, key)
        _decide(watch, found, State.DISMISSED, by)
    return found


def _offered(watch: Watch, key: str) -> Proposed:
    found = next((one for one in offered(watch) if one.key == key), None)
    if found is None or not Watch.objects.filter(pk=watch.pk).exists():
        raise OperationRefused(
            RefusalCode.NOT_FOUND,
            f"{watch.name} has no such proposal any more: it was decided, or what it followed "
            "from has changed.",
        )
    return found


def _decide(watch: Watch, found: Proposed, state: str, by: str) -> None:
    decision = {"state": state, "decided_by": by, "decided_at": timezone.now()}
    ProbeProposal.objects.update_or_create(
        watch=watch,
        key=found.key,
        defaults=decision,
        create_defaults={
            **decision,
            "service": found.service,
            "kind": found.kind,
            "target": found.target,
            "why": found.why,
        },
    )
