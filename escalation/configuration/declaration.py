"""Format of configuration files: what a file may declare, in the words of commands and pages.

The same models validate files and make the JSON Schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

from escalation.probes.targets import OPTIONS
from sessions_app.models import Incident, Probe, Remedy
from sessions_app.models.alert import SourceKind
from sessions_app.models.autonomy import AutonomyLevel

FILE_NAME = "claude-ops.toml"
NONE = "none"
PROBE_KINDS = tuple(kind for kind in Probe.Kind.values if kind != Probe.Kind.HEARTBEAT)
SEVERITIES = {str(severity.label): severity.value for severity in Incident.Severity}
LARGEST_AMOUNT = Decimal(10**9)


def _among(values: Sequence[str]) -> tuple[Any, Any]:
    """Return a validator and a schema for one of some words."""
    values = [str(value) for value in values]

    def check(value: str) -> str:
        if value not in values:
            near = get_close_matches(value, values, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(values)}"
            raise ValueError(f"{value!r} is not a choice: {hint}")
        return value

    return AfterValidator(check), WithJsonSchema({"type": "string", "enum": list(values)})


def _amount(value: object) -> Decimal:
    is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    amount = Decimal(str(value)) if is_number else Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount < LARGEST_AMOUNT:
        raise ValueError("write an amount in dollars, like 2.50")
    return amount


Duration = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,6}(s|m|h|d)$")]
Rate = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,4}/[0-9]{1,4}(h|d)$")]
Reference = Annotated[
    str,
    StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$"),
    Field(description="Reference to a secret: env:NAME or file:/PATH."),
]
ReferenceOrNone = Annotated[
    str, StringConstraints(pattern=r"^(none|env:[A-Za-z_][A-Za-z0-9_]*|file:/.+)$")
]
ClockTime = Annotated[str, StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]
QuietHours = Annotated[
    str,
    StringConstraints(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9]$"),
]
Amount = Annotated[
    Decimal, BeforeValidator(_amount), WithJsonSchema({"type": "number", "minimum": 0})
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Moment = Annotated[datetime, WithJsonSchema({"type": "string", "format": "date-time"})]

PATTERNS = {
    Duration: "a duration like 30s, 5m, 2h or 1d",
    Rate: "a rate like 2/4h: two within 4 hours",
    Reference: "env:NAME or file:/PATH, because secrets are never written here",
    ReferenceOrNone: "none, env:NAME or file:/PATH, because secrets are never written here",
    ClockTime: "a time of day like 08:00",
    QuietHours: "hours like 22:00-07:00",
}
WORDS_OF_PATTERNS = {
    next(one.pattern for one in get_args(kind) if isinstance(one, StringConstraints)): words
    for kind, words in PATTERNS.items()
}


class Declared(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Budgets(Declared):
    day: Amount | None = Field(
        None,
        description="Dollars that the watch may spend in a day. Left out: the limit of the "
        "installation (CLAUDEOPS_BUDGET_WATCH_DAY).",
    )


class ProbeDeclaration(Declared):
    service: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="Service of the watch that it looks at."
    )
    http: str | None = Field(None, description="Address that must answer.")
    tcp: str | None = Field(None, description="HOST:PORT that must accept connections.")
    dns: str | None = Field(None, description="Name that must resolve.")
    command: str | None = Field(None, description="Command with the exit codes of Nagios.")
    file: str | None = Field(None, description="Path of a file.")
    disk: str | None = Field(None, description="Path on a disk.")
    container: str | None = Field(None, description="Name of a container.")
    unit: str | None = Field(None, description="Name of a systemd unit.")
    heartbeat: bool = Field(False, description="True: a job calls an address.")
    every: Duration = Field("60s", description="Interval.")
    timeout: Duration = Field("10s", description="Time-out; grace of a heartbeat.")
    fail_after: int | None = Field(
        None, ge=1, le=100, description="Failures in a row until it is down (2; heartbeat 1)."
    )
    recover_after: int | None = Field(
        None, ge=1, le=100, description="Good results in a row until it is up (2; heartbeat 1)."
    )
    needs: list[str] = Field([], description="Probes whose failure explains this one's.")
    options: dict[str, str | int] = Field({}, description=f"Expectations: {', '.join(OPTIONS)}.")

    @property
    def kind(self) -> str:
        kinds = [kind for kind in PROBE_KINDS if getattr(self, kind) is not None]
        return kinds[0] if kinds else Probe.Kind.HEARTBEAT.value

    @property
    def target(self) -> str:
        return "" if self.heartbeat else str(getattr(self, self.kind))

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        given = [kind for kind in PROBE_KINDS if getattr(self, kind) is not None]
        if len(given) + self.heartbeat != 1:
            raise ValueError(f"give one of {', '.join(PROBE_KINDS)}, or heartbeat = true")
        return self


class RemedyDeclaration(Declared):
    command: str | list[str] = Field(
        description="Program and arguments, like ['docker', 'restart', '{service}']."
    )
    description: str = Field(description="For the model: what it does, and when to use it.")
    parameters: list[str] = Field([], description="Like 'service: service'; in order.")
    kind: Annotated[str, *_among(Remedy.Kind.values)] = "other"
    service: str = Field("", description="Service that it concerns, if no parameter names it.")
    tier: int = Field(2, description="The lowest tier that may run it.")
    grants: list[str] = Field([], description="Grants of its sandbox.")
    seconds: int = Field(60, description="Time limit.")
    probe: str = Field("", description="Probe that proves that it helped.")
    undo: str = Field("", description="Remedy that undoes it.")
    tier0: int | None = Field(
        None,
        description="Run it without a model when its probe fails, at most once in so many hours.",
    )
    enabled: bool | None = Field(None, description="Left out: as it is; new ones are enabled.")


class MaintenanceDeclaration(Declared):
    starts_at: Moment = Field(description="Start; without an offset in local time.")
    duration: Duration = Field(alias="for", description="Length of the window.")
    weekly: bool = Field(False, description="Repeat every week at the same local time.")
    service: str = Field("", description="Only this service; left out: the whole watch.")
    reason: str = Field("", max_length=200)


class WatchDeclaration(Declared):
    directory: Annotated[str, StringConstraints(min_length=1)] = Field(
        description="Directory that the CLI works in."
    )
    instructions: str = Field("", description="What Tier 1 looks at.")
    every: Duration | None = Field(None, description="Interval, in whole minutes.")
    cron: str | None = Field(None, description="Cron expression, in place of every.")
    enabled: bool | None = Field(
        None,
        description="Run on schedule. Left out: as it is, and off for a new watch.",
    )
    hosts: list[str] = Field([], description="Names or labels of hosts; empty: any host.")
    autonomy: Annotated[str, *_among(list(AutonomyLevel))] | None = Field(
        None, description="Autonomy level, in place of max_tier, dry_run and approval."
    )
    max_tier: int | None = Field(None, description="No tier above it starts.")
    dry_run: bool | None = Field(None, description="Report, change nothing.")
    approval: list[int] | None = Field(None, description="Tiers that wait for a person.")
    ask: list[str] = Field([], description="Commands that need approval: Bash(docker restart:*).")
    grants: list[str] = Field([], description="Grants besides those of the tiers, like -ssh.")
    budgets: Budgets = Field(Budgets(day=None), description="What its sessions may cost.")
    restarts: Rate = Field("2/4h", description="Restarts of one service.")
    redeployments: Rate = Field("1/24h", description="Redeployments of one service.")
    probes: dict[Name, ProbeDeclaration] = Field({}, description="Looks without a model, by name.")
    remedies: dict[Name, RemedyDeclaration] = Field({}, description="Remedies, by name.")
    maintenance: list[MaintenanceDeclaration] = Field(
        [], description="Windows in which failures are expected."
    )

    @model_validator(mode="after")
    def _says_nothing_twice(self) -> Self:
        if self.every is not None and self.cron:
            raise ValueError("every, cron: a watch has one schedule. Give one of the two")
        by_hand = (self.max_tier, self.dry_run, self.approval)
        if self.autonomy is not None and any(value is not None for value in by_hand):
            raise ValueError(
                "autonomy stands for max_tier, dry_run and approval: give the level or the three"
            )
        return self


class Route(Declared):
    label: Annotated[str, StringConstraints(pattern=r"^[^\s=]+$")]
    value: Annotated[str, StringConstraints(pattern=r"^\S+$")]
    watch: Name


class SourceDeclaration(Declared):
    kind: Annotated[str, *_among(SourceKind.values)]
    watch: str | None = Field(None, description="Watch of the alerts that no route matches.")
    routes: list[Route] = Field([], description="Watch of the alerts with a label.")
    service_label: str = Field("", description="Label that names the service.")
    paths: dict[str, str] = Field({}, description="Kind generic: where a field is.")
    new_only: bool = Field(False, description="Only new problems start a cycle.")
    token: Reference | None = Field(
        None, description="Token of its address. Left out: made, and shown once."
    )
    secret: ReferenceOrNone | None = Field(
        None, description="Secret of its sender, or none. Left out: made, and shown once."
    )
    enabled: bool | None = Field(None, description="Left out: as it is; new ones are enabled.")

    @model_validator(mode="after")
    def _belongs_to_a_watch(self) -> Self:
        if self.watch is None and not self.routes:
            raise ValueError("say which watch the alerts belong to: watch, or routes")
        return self


class ChannelDeclaration(Declared):
    address: Reference
    least: Annotated[str, *_among(list(SEVERITIES))] = Field(
        "warning", alias="from", description="Least severity that is sent."
    )
    watches: list[str] = Field([], description="Only of these watches; empty: all.")
    quiet: QuietHours | None = Field(
        None, description="Send only critical ones, like 22:00-07:00, local time."
    )
    digest: ClockTime | None = Field(None, description="Time of the daily digest, local time.")
    digest_when_quiet: bool = Field(False, description="Send the digest even if it is empty.")
    owner: str | None = Field(None, description="Account that alone reads the channel.")
    enabled: bool | None = Field(None, description="Left out: as it is; new ones are enabled.")


class Document(Declared):
    """Content of one file."""

    model_config = ConfigDict(title="Configuration of Claude Ops")

    watches: dict[Name, WatchDeclaration] = Field({}, description="Watches, by name.")
    sources: dict[Name, SourceDeclaration] = Field({}, description="Sources of alerts, by name.")
    channels: dict[Name, ChannelDeclaration] = Field(
        {}, description="Notification channels, by name."
    )


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a file, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Document.model_json_schema(),
    }


Place = tuple[str | int, ...]
"""Keys and positions that lead to a value in a file."""


def mistakes_in(
    content: dict[str, Any], kind: type[Declared] = Document
) -> list[tuple[Place, str]]:
    """Return every mistake in the content of a file, with its place."""
    found = [(place, REDACTED) for place in _redacted_in(content)]
    try:
        kind.model_validate(content)
    except ValidationError as error:
        found += [
            (_without_types(one["loc"], content), _words(one, kind)) for one in error.errors()
        ]
    return list(dict.fromkeys(found))


REDACTED = "a secret was redacted here by `claudeops export`: write the value again"


def _redacted_in(value: object, place: Place = ()) -> Iterator[Place]:
    if isinstance(value, str) and "[redacted: " in value:
        yield place
    pairs: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = enumerate(value)
    for key, inner in pairs:
        yield from _redacted_in(inner, (*place, key))


def _without_types(place: Place, content: Any) -> Place:
    """Leave out what pydantic adds to a place, such as the member of a union that was tried."""
    kept: list[str | int] = []
    for part in place:
        if isinstance(content, dict) and (part in content or part == place[-1]):
            content = content.get(part)
        elif isinstance(content, list) and isinstance(part, int) and part < len(content):
            content = content[part]
        else:
            continue
        kept.append(part)
    return tuple(kept)


def _words(error: Any, kind: type[Declared]) -> str:
    place, context = error["loc"], error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown(place, kind)
        case "missing":
            return "is missing"
        case "string_pattern_mismatch" if context["pattern"] in WORDS_OF_PATTERNS:
            return f"write {WORDS_OF_PATTERNS[context['pattern']]}"
        case "value_error":
            return str(context["error"])
        case _:
            said = str(error["msg"])
            return f"{said[:1].lower()}{said[1:]}"


def _unknown(place: Place, kind: type[Declared]) -> str:
    name, known = str(place[-1]), names_at(place[:-1], kind)
    if kind is Document and place == ("watch",):
        return (
            "a table [watch] lowers what an agent may do, in the directory of its watch. "
            "Declare a watch as [watches.NAME]"
        )
    near = get_close_matches(name, known, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(known)}"
    return f"unknown key {name}: {hint}"


def names_at(place: Iterable[str | int], kind: type[BaseModel] = Document) -> list[str]:
    """Return the keys that a table may have."""
    is_key = False
    for part in place:
        if is_key:  # name in a table of tables, or position in an array
            is_key = False
            continue
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        if part not in fields:
            continue
        annotation = fields[str(part)].annotation
        kind = _model_in(annotation) or kind
        is_key = get_origin(annotation) in (dict, list)
    return [field.alias or name for name, field in kind.model_fields.items()]


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
