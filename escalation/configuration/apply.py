"""Applies declarations in one transaction, by the functions that commands and pages use.

A plan is an application that is rolled back: it finds every mistake that the real one would, and
shows its effect.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import time, timedelta
from functools import partial
from graphlib import CycleError, TopologicalSorter
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db import DatabaseError, transaction
from django.db.models import Model
from django.utils import timezone

from escalation.alerts import sources
from escalation.alerts.sources import NewSource
from escalation.configuration import plan, state
from escalation.configuration.declaration import (
    NONE,
    SEVERITIES,
    ChannelDeclaration,
    MaintenanceDeclaration,
    ProbeDeclaration,
    RemedyDeclaration,
    SourceDeclaration,
    WatchDeclaration,
)
from escalation.configuration.files import Declaration, Declarations, Mistake, unknown_watches
from escalation.configuration.plan import Address, Kind, Step
from escalation.errors import OperationRefused
from escalation.notifications import sending
from escalation.notifications.sending import DeliveryResult
from escalation.probes import manage
from escalation.queue import installation_lock
from escalation.run import remedies
from escalation.run.manifest import accept_first
from escalation.worker import schedules
from sessions_app.access.roles import Right, note_added, note_changed, note_removed
from sessions_app.models import (
    AppliedDeclaration,
    Channel,
    Maintenance,
    Probe,
    Remedy,
    Source,
    Watch,
)
from sessions_app.models.autonomy import AutonomyLevel, written_tiers
from sessions_app.models.watch import (
    default_approval,
    default_dry_run,
    default_interval_minutes,
    default_max_tier,
)

OTHER_KEYS = {
    **{"workdir": "directory", "interval_minutes": "every", "budget_day_usd": "budgets"},
    **{"restarts_allowed": "restarts", "restart_hours": "restarts", "tier0_hours": "tier0"},
    **{"redeployments_allowed": "redeployments", "redeployment_hours": "redeployments"},
}
"""Keys of files for fields of other names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Actor:
    """Account that applies, for the log, and the name that is recorded."""

    name: str
    account: User | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    steps: tuple[Step, ...] = ()
    mistakes: tuple[Mistake, ...] = ()
    left: tuple[Address, ...] = ()
    """Declared before, in no file any more: removed with `--prune` only."""
    places: Mapping[Address, tuple[str, int]] = field(default_factory=dict)
    """File and line of each declaration."""
    new_sources: tuple[NewSource, ...] = field(default=(), repr=False)
    """Sources whose token or secret was made and is shown once."""
    is_applied: bool = False
    is_stale: bool = False
    """Nothing was applied, because another plan would have been carried out."""

    @property
    def digest(self) -> str:
        return plan.digest(self.steps)

    @property
    def summary(self) -> str:
        return plan.summary(self.steps)

    @property
    def rights(self) -> frozenset[Right]:
        """Rights that the steps take, as on pages."""
        keys = {Kind.SOURCE, Kind.CHANNEL}
        return frozenset(
            Right.MANAGE_KEYS if step.address.kind in keys else Right.CHANGE_WATCHES
            for step in self.steps
        )


class _RollBack(Exception):
    """Ends the transaction of a plan."""


def planned(found: Declarations, *, prune: bool) -> Outcome:
    """Return what applying would do, and every mistake. Changes nothing."""
    return _carry_out(found, by=Actor(name=""), prune=prune, expected=None, is_plan=True)


def apply(
    found: Declarations, *, by: Actor, prune: bool = False, expected: str | None = None
) -> Outcome:
    """Apply declarations in one transaction; nothing is applied if there is a mistake.

    `expected` is the digest of the plan that a person has seen: another plan is not carried out.
    """
    return _carry_out(found, by=by, prune=prune, expected=expected, is_plan=False)


def _carry_out(
    found: Declarations, *, by: Actor, prune: bool, expected: str | None, is_plan: bool
) -> Outcome:
    known = Watch.objects.values_list("name", flat=True)
    mistakes = {*found.mistakes, *unknown_watches(found, known)}
    looks = _looks(found)  # takes time, so before the lock
    outcome = Outcome()
    try:
        with installation_lock():
            work = _Application(found, by, looks)
            before = state.current()
            work.run(prune=prune)
            steps = plan.with_made_secrets(
                plan.difference(before, state.current()), work.made_secrets
            )
            mistakes.update(work.mistakes)
            is_stale = expected is not None and plan.digest(steps) != expected
            outcome = Outcome(
                steps=steps,
                mistakes=tuple(sorted(mistakes)),
                left=tuple(work.left),
                places=work.places,
                new_sources=tuple(work.new_sources),
                is_applied=not (is_plan or mistakes or is_stale),
                is_stale=is_stale,
            )
            if not outcome.is_applied:
                raise _RollBack
            work.record()
    except _RollBack:
        pass
    return outcome


def _looks(found: Declarations) -> dict[str, DeliveryResult]:
    """Have new addresses of channels looked at, by name."""
    rows = {channel.name: channel for channel in Channel.objects.all()}
    looks = {}
    for channel in found.channels:
        address = found.secrets.get(channel.content.address, "")
        row = rows.get(channel.name)
        is_known = row is not None and state.address_print(row) == state.fingerprint(address)
        if address and not is_known and not sending.objection_to(address):
            looks[channel.name] = sending.look_at(address)
    return looks


class _Application:
    """One pass over all declarations, within the transaction of its caller."""

    def __init__(self, found: Declarations, by: Actor, looks: Mapping[str, DeliveryResult]) -> None:
        self.found, self.by, self.looks = found, by, looks
        self.mistakes: list[Mistake] = []
        self.left: list[Address] = []
        self.places: dict[Address, tuple[str, int]] = {}
        self.new_sources: list[NewSource] = []
        self.made_secrets: set[tuple[Address, str]] = set()
        self.watches: dict[str, Watch] = {}
        self._prunes = False

    def run(self, *, prune: bool) -> None:
        self._prunes = prune
        for watch in self.found.watches:
            with self._reporting(watch):
                self._watch(watch)
            if watch.name not in self.watches:
                self._stand_in(watch)
        for watch in self.found.watches:
            if row := self.watches.get(watch.name):
                self._probes(watch, row)
                self._remedies(watch, row)
                self._maintenance(watch, row)
        for source in self.found.sources:
            with self._reporting(source):
                self._source(source)
        for channel in self.found.channels:
            with self._reporting(channel):
                self._channel(channel)
        self._rest()

    # Mistakes and the log

    @contextmanager
    def _reporting(self, declaration: Declaration[Any], *place: str | int) -> Iterator[None]:
        """Turn a refusal into mistakes with their lines; the others are looked at as well."""
        try:
            with transaction.atomic():
                yield
        except ValidationError as error:
            for name, messages in _by_key(error).items():
                self._mistake(declaration, " ".join(messages), *place, *filter(None, [name]))
        except (OperationRefused, DatabaseError) as refused:
            self._mistake(declaration, str(refused), *place)

    def _mistake(self, declaration: Declaration[Any], words: str, *place: str | int) -> None:
        self.mistakes.append(declaration.mistake(words.strip().rstrip("."), *place))

    def _place(self, address: Address, declaration: Declaration[Any], *place: str | int) -> None:
        self.places[address] = (declaration.file, declaration.line_of(*place))

    def _note(self, row: Model, *, is_new: bool, file: str) -> None:
        if self.by.account is None:
            return
        if is_new:
            note_added(self.by.account, row)
        else:
            note_changed(self.by.account, row, f"Applied from {file}.")

    def _remove(self, address: Address, row: Model, remove: Callable[[], object]) -> None:
        """Remove a row with `--prune`, else list it."""
        if not self._prunes:
            self.left.append(address)
            return
        try:
            with transaction.atomic():
                if self.by.account is not None:
                    note_removed(self.by.account, row)
                remove()
        except OperationRefused as refused:
            self.mistakes.append(Mistake(self.found.root, 1, f"{address}: {refused}"))

    # Watches, and what is part of them

    def _put(
        self,
        row: Model,
        act: Callable[[], object],
        words_of: Callable[[Any], Mapping[str, Any]],
        file: str,
    ) -> None:
        """Store a row, unless that changes nothing."""
        is_new = row.pk is None
        before = {} if is_new else words_of(row)
        try:
            with transaction.atomic():
                act()
                if not is_new and words_of(row) == before:
                    raise _RollBack
                self._note(row, is_new=is_new, file=file)
        except _RollBack:
            pass

    def _watch(self, watch: Declaration[WatchDeclaration]) -> None:
        self._place(Address(kind=Kind.WATCH, name=watch.name), watch)
        row = Watch.objects.filter(name=watch.name).first() or Watch(name=watch.name)
        is_new, workdir = row.pk is None, row.workdir

        def act() -> None:
            _set_watch(row, watch.content)
            row.full_clean()
            row.save()
            accept_first(row, by=self.by.name, moved=not is_new and row.workdir != workdir)

        self._put(row, act, state.watch_words, watch.file)
        self.watches[watch.name] = row

    def _stand_in(self, watch: Declaration[WatchDeclaration]) -> None:
        """Store a watch that was refused, so that what is part of it is looked at too.

        The transaction is rolled back because of the mistake.
        """
        row = Watch.objects.filter(name=watch.name).first()
        if row is None:
            row = Watch(name=watch.name, workdir=watch.content.directory[:1000])
            with self._reporting(watch):
                row.save()
        if row.pk is not None:
            self.watches[watch.name] = row

    def _probes(self, watch: Declaration[WatchDeclaration], row: Watch) -> None:
        declared = watch.content.probes
        needs = {name: [*filter(declared.get, probe.needs)] for name, probe in declared.items()}
        try:
            names = list(TopologicalSorter(needs).static_order())
        except CycleError as error:
            words = f"probes need each other: {', '.join(error.args[1])}"
            self._mistake(watch, words, "probes", error.args[1][0], "needs")
            return
        for name in names:
            with self._reporting(watch, "probes", name):
                self._probe(watch, row, name, declared[name])
        for probe in row.probes.exclude(name__in=declared):
            self._remove(
                Address(kind=Kind.PROBE, name=probe.name, watch=watch.name),
                probe,
                partial(manage.remove, probe),
            )

    def _probe(
        self,
        watch: Declaration[WatchDeclaration],
        row: Watch,
        name: str,
        declared: ProbeDeclaration,
    ) -> None:
        self._place(Address(kind=Kind.PROBE, name=name, watch=watch.name), watch, "probes", name)
        probe = Probe.objects.filter(watch=row, name=name).first() or Probe(watch=row, name=name)
        default = 1 if declared.heartbeat else 2
        act = partial(
            manage.change,
            probe,
            needs=declared.needs,
            options=declared.options,
            service=declared.service,
            kind=declared.kind,
            target=declared.target,
            interval_seconds=manage.seconds_in(declared.every),
            timeout_seconds=manage.seconds_in(declared.timeout),
            fail_after=declared.fail_after or default,
            recover_after=declared.recover_after or default,
        )
        self._put(probe, act, state.probe_words, watch.file)

    def _remedies(self, watch: Declaration[WatchDeclaration], row: Watch) -> None:
        for name, declared in watch.content.remedies.items():
            with self._reporting(watch, "remedies", name):
                self._remedy(watch, row, name, declared)
        for remedy in row.remedies.exclude(name__in=watch.content.remedies):
            self._remove(
                Address(kind=Kind.REMEDY, name=remedy.name, watch=watch.name),
                remedy,
                partial(remedies.remove, remedy),
            )

    def _remedy(
        self,
        watch: Declaration[WatchDeclaration],
        row: Watch,
        name: str,
        declared: RemedyDeclaration,
    ) -> None:
        address = Address(kind=Kind.REMEDY, name=name, watch=watch.name)
        self._place(address, watch, "remedies", name)
        found = Remedy.objects.select_related("script").filter(watch=row, name=name).first()
        remedy = found or Remedy(watch=row, name=name)

        def act() -> None:
            _set_remedy(remedy, declared)
            remedies.save(remedy, by=self.by.name)

        self._put(remedy, act, state.remedy_words, watch.file)

    def _maintenance(self, watch: Declaration[WatchDeclaration], row: Watch) -> None:
        windows = Maintenance.objects.filter(watch=row).exclude(ends_at=None)
        rows = {state.window_name(window): window for window in windows}
        names = set()
        for number, declared in enumerate(watch.content.maintenance):
            with self._reporting(watch, "maintenance", number):
                window = _window(row, declared)
                window.full_clean(exclude=["watch"])
                name = state.window_name(window)
                if name in names:
                    self._mistake(
                        watch, f"the window {name} is declared twice", "maintenance", number
                    )
                names.add(name)
                address = Address(kind=Kind.MAINTENANCE, name=name, watch=watch.name)
                self._place(address, watch, "maintenance", number)
                self._window(rows.get(name), window, watch.file)
        for name, window in rows.items():
            if window.is_weekly and name not in names:
                address = Address(kind=Kind.MAINTENANCE, name=name, watch=watch.name)
                self._remove(address, window, window.delete)

    def _window(self, found: Maintenance | None, declared: Maintenance, file: str) -> None:
        if found is None:
            if declared.is_weekly or declared.ends_at > timezone.now():  # type: ignore[operator]
                assert declared.ends_at is not None
                window = manage.start_maintenance(
                    declared.watch,
                    service=declared.service,
                    seconds=int((declared.ends_at - declared.starts_at).total_seconds()),
                    is_weekly=declared.is_weekly,
                    reason=declared.reason,
                    by=self.by.account,
                    starts_at=declared.starts_at,
                )
                self._note(window, is_new=True, file=file)
        elif found.reason != declared.reason:
            found.reason = declared.reason
            found.save(update_fields=["reason"])
            self._note(found, is_new=False, file=file)

    # Sources and channels

    def _source(self, source: Declaration[SourceDeclaration]) -> None:
        self._place(Address(kind=Kind.SOURCE, name=source.name), source)
        declared, secrets = source.content, self.found.secrets
        row = Source.objects.filter(name=source.name).first()
        if row is not None and row.kind != declared.kind:
            raise ValidationError(
                {"kind": "The kind of a source cannot change. Declare one of another name."}
            )
        row = row or Source(name=source.name, kind=declared.kind)
        is_new = row.pk is None
        if not _are_known(filter(None, [declared.watch, *(r.watch for r in declared.routes)])):
            return  # reported where it is named
        given: dict[str, Any] = {
            "with_secret": declared.secret != NONE,
            "token": secrets.get(declared.token or "", ""),
            "secret": secrets.get(declared.secret or "", ""),
        }

        def act() -> None:
            _set_source(row, declared)
            if not is_new:
                sources.change(row, **given)
                return
            made = sources.add(row, **given)
            missing = [name for name in ("token", "secret") if not getattr(declared, name)]
            address = Address(kind=Kind.SOURCE, name=source.name)
            self.made_secrets.update((address, name) for name in missing)
            if missing:
                self.new_sources.append(made)

        self._put(row, act, state.source_words, source.file)

    def _channel(self, channel: Declaration[ChannelDeclaration]) -> None:
        self._place(Address(kind=Kind.CHANNEL, name=channel.name), channel)
        row = Channel.objects.filter(name=channel.name).first() or Channel(name=channel.name)
        if (address := self.found.secrets.get(channel.content.address)) is None:
            return  # reported where it was read
        if not _are_known(channel.content.watches):
            return

        def act() -> None:
            _set_channel(row, channel.content)
            row.full_clean(exclude=["encrypted_address"])
            is_known = row.pk and state.address_print(row) == state.fingerprint(address)
            look = self.looks.get(channel.name)
            if not is_known and (objection := sending.set_address(row, address, look)):
                raise ValidationError({"address": objection})
            row.save()
            row.watches.set(Watch.objects.filter(name__in=channel.content.watches))
            if not row.enabled:
                sending.set_enabled(row, enabled=False)

        self._put(row, act, state.channel_words, channel.file)

    # What files declared before, and the record

    def _rest(self) -> None:
        """Remove what files of the same place declared, and none declares now."""
        models = {Kind.CHANNEL: Channel, Kind.SOURCE: Source, Kind.WATCH: Watch}
        removers: dict[Kind, Callable[[Any], object]] = {
            Kind.CHANNEL: sending.remove,
            Kind.SOURCE: sources.remove,
            Kind.WATCH: schedules.remove,
        }
        declared = {(address.kind, address.name) for address in self.places}
        for record in AppliedDeclaration.objects.all():
            kind = Kind(record.kind)
            if (kind, record.name) in declared or not self._is_inside(record.file):
                continue
            row = models[kind]._default_manager.filter(name=record.name).first()
            if row is None:
                if self._prunes:
                    record.delete()
                continue
            address = Address(kind=kind, name=record.name)
            self._remove(address, row, partial(_both, partial(removers[kind], row), record.delete))

    def _is_inside(self, file: str) -> bool:
        root = self.found.root
        return file == root or file.startswith(root.rstrip(os.sep) + os.sep)

    def record(self) -> None:
        """Record what was declared, for the drift that pages show. Same again changes nothing."""
        now = state.current()
        for kind, declarations in (
            (Kind.WATCH, self.found.watches),
            (Kind.SOURCE, self.found.sources),
            (Kind.CHANNEL, self.found.channels),
        ):
            for declaration in declarations:
                words = self._words(declaration, now) if kind == Kind.WATCH else []
                self._record(kind, declaration.name, declaration.file, words)

    def _record(self, kind: Kind, name: str, file: str, words: list[dict[str, Any]]) -> None:
        found = AppliedDeclaration.objects.filter(kind=kind, name=name).first()
        if found is not None and (found.file, found.words) == (file, words):
            return
        AppliedDeclaration.objects.update_or_create(
            kind=kind,
            name=name,
            defaults={
                "file": file,
                "words": words,
                "applied_at": timezone.now(),
                "applied_by": self.by.name,
            },
        )

    def _words(self, watch: Declaration[Any], now: plan.State) -> list[dict[str, Any]]:
        kept = {}
        for address in self.places:
            if watch.name not in (address.watch, address.name if not address.watch else ""):
                continue
            if address not in now or address.kind in (Kind.SOURCE, Kind.CHANNEL):
                continue
            words = dict(now[address])
            if not self._says_enabled(watch, address):
                words.pop("enabled", None)
            kept[address] = words
        return plan.stored(kept)

    def _says_enabled(self, watch: Declaration[Any], address: Address) -> bool:
        if address.kind == Kind.REMEDY:
            return watch.content.remedies[address.name].enabled is not None
        return address.kind != Kind.WATCH or watch.content.enabled is not None


def _are_known(names: Iterable[str]) -> bool:
    wanted = set(names)
    return Watch.objects.filter(name__in=wanted).count() == len(wanted)


def _both(first: Callable[[], object], second: Callable[[], object]) -> None:
    first()
    second()


def _by_key(error: ValidationError) -> dict[str, list[str]]:
    """Return the messages by the keys of files; those of no key under an empty name."""
    if not hasattr(error, "error_dict"):
        return {"": error.messages}
    found: dict[str, list[str]] = {}
    for name, messages in error.message_dict.items():
        key = "" if name == "__all__" else OTHER_KEYS.get(name, name)
        found.setdefault(key, []).extend(messages)
    return found


def _set_watch(row: Watch, declared: WatchDeclaration) -> None:
    """Set every field; what is left out has its default, except `enabled`."""
    row.workdir, row.instructions = declared.directory, declared.instructions
    row.interval_minutes = default_interval_minutes()
    if declared.every is not None:
        seconds = manage.seconds_in(declared.every)
        if seconds < 60 or seconds % 60:
            raise ValidationError({"every": "Give whole minutes, like 30m."})
        row.interval_minutes = seconds // 60
    row.cron = declared.cron or ""
    row.hosts = " ".join(declared.hosts)
    row.ask, row.grants = " ".join(declared.ask), " ".join(declared.grants)
    if declared.autonomy is not None:
        row.set_autonomy_level(AutonomyLevel(declared.autonomy))
    else:
        row.max_tier = default_max_tier() if declared.max_tier is None else declared.max_tier
        row.dry_run = default_dry_run() if declared.dry_run is None else declared.dry_run
        tiers = declared.approval
        row.approval = default_approval() if tiers is None else written_tiers(frozenset(tiers))
    row.budget_day_usd = declared.budgets.day
    row.restarts_allowed, row.restart_hours = _rate("restarts", declared.restarts)
    row.redeployments_allowed, row.redeployment_hours = _rate(
        "redeployments", declared.redeployments
    )
    if declared.enabled is not None:
        row.enabled = declared.enabled


def _rate(name: str, text: str) -> tuple[int, int]:
    allowed, hours = text[:-1].split("/")
    length = int(hours) * (24 if text.endswith("d") else 1)
    if not 0 < length <= 8760:
        raise ValidationError({name: "The hours of a rate are between 1 hour and a year."})
    return int(allowed), length


def _set_remedy(row: Remedy, declared: RemedyDeclaration) -> None:
    row.command = declared.command
    if isinstance(declared.command, str):
        try:
            row.command = shlex.split(declared.command)
        except ValueError as problem:
            raise ValidationError({"command": f"{problem}. Close every quote."}) from problem
    row.description, row.parameters = declared.description, "\n".join(declared.parameters)
    row.kind, row.service, row.tier = declared.kind, declared.service, declared.tier
    row.grants, row.seconds = " ".join(declared.grants), declared.seconds
    row.probe, row.undo, row.tier0_hours = declared.probe, declared.undo, declared.tier0
    if declared.enabled is not None:
        row.enabled = declared.enabled


def _window(watch: Watch, declared: MaintenanceDeclaration) -> Maintenance:
    start = declared.starts_at
    if timezone.is_naive(start):
        start = timezone.make_aware(start)
    length = timedelta(seconds=manage.seconds_in(declared.duration))
    return Maintenance(
        watch=watch,
        service=declared.service.strip(),
        starts_at=start,
        ends_at=start + length,
        is_weekly=declared.weekly,
        reason=declared.reason.strip(),
    )


def _set_source(row: Source, declared: SourceDeclaration) -> None:
    row.watch = Watch.objects.filter(name=declared.watch).first() if declared.watch else None
    row.routes = "\n".join(
        f"{route.label}={route.value} {route.watch}" for route in declared.routes
    )
    row.service_label, row.paths = declared.service_label, dict(declared.paths)
    row.runs_again = not declared.new_only
    if declared.enabled is not None:
        row.enabled = declared.enabled


def _set_channel(row: Channel, declared: ChannelDeclaration) -> None:
    row.least_severity = SEVERITIES[declared.least]
    begin, _dash, end = (declared.quiet or "").partition("-")
    row.quiet_from, row.quiet_until = _clock(begin), _clock(end)
    row.digest_at, row.digest_when_quiet = _clock(declared.digest), declared.digest_when_quiet
    row.owner = None
    if declared.owner is not None:
        row.owner = User.objects.filter(username=declared.owner).first()
        if row.owner is None:
            raise ValidationError({"owner": f"There is no account {declared.owner}."})
    if declared.enabled is not None:
        row.enabled = declared.enabled


def _clock(text: str | None) -> time | None:
    return time.fromisoformat(text) if text else None
