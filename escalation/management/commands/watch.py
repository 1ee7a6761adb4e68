"""Manages watches."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder
from django.utils import timezone

from escalation.configuration.state import drift_of
from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import (
    NOTHING_WATCHED,
    account_named,
    terminal_user,
    watch_named,
)
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import Cell, Refused, TerminalCommand, refused_for, write_table
from escalation.queue import installation_lock
from escalation.run.limits_file import lowered_now
from escalation.run.manifest import (
    CurrentManifest,
    ManifestState,
    accept_first,
    accept_seen,
    manifest_of_watch,
)
from escalation.worker.schedules import ensure_default_watch, remove
from sessions_app import text
from sessions_app.access.roles import Right, may, note_changed, refusal
from sessions_app.history.autonomy import recorded_wishes, what_if
from sessions_app.models import Cycle, RateLimit, Watch
from sessions_app.models.autonomy import AutonomyLevel
from sessions_app.models.installation import moment_text
from sessions_app.models.watch import LIMITS_NAME, MANIFEST_NAME
from sessions_app.redaction.redact import redacted
from sessions_app.text import json_text
from sessions_app.tiers import LOWEST_TIER, tier_choices, tier_numbers

HEADINGS = ("watch", "rhythm", "autonomy", "next run", "directory")
CYCLES_SHOWN = 5


def list_row(watch: Watch) -> tuple[Cell | str, ...]:
    next_run = timezone.localtime(watch.next_run) if watch.next_run else None
    return (
        watch.name,
        Cell(watch.rhythm, "" if watch.enabled else "warn"),
        watch.autonomy_title,
        f"{next_run:%Y-%m-%d %H:%M}" if next_run else "",
        watch.workdir,
    )


def added_lines(watch: Watch) -> Iterator[str]:
    """Describe a new watch and the next steps."""
    yield f"The watch {watch.name} looks after {watch.workdir}."
    yield f"  autonomy      {watch.autonomy_title}"
    yield f"  manifest      {manifest_words(watch, manifest_of_watch(watch))}"
    if watch.enabled:
        yield f"  it runs       {watch.rhythm}, by itself"
    else:
        yield "  it runs       only when you ask: claudeops run_cycle --watch " + watch.name
        yield f"  switch it on  claudeops watch unpause {watch.name} ({watch.rhythm_when_on})"
    yield f"  change        claudeops watch autonomy {watch.name}"


def show_lines(watch: Watch) -> Iterator[str]:
    yield f"{watch.name}: {watch.rhythm}, in {watch.workdir}"
    yield f"  up to         Tier {watch.max_tier}{', dry run' if watch.dry_run else ''}"
    yield f"  autonomy      {watch.autonomy_title}"
    yield f"  approval      {_approval_words(watch)}"
    yield f"  restarts      {watch.restarts_allowed} of one service in {watch.restart_hours} h"
    yield (
        f"  redeployments {watch.redeployments_allowed} of one service "
        f"in {watch.redeployment_hours} h"
    )
    if watch.budget_day_usd is not None:
        yield f"  a day         {text.money(watch.budget_day_usd)} at most"
    if watch.ask:
        yield f"  asks before   {watch.ask}"
    if watch.hosts:
        yield f"  hosts         {' or '.join(watch.hosts.split())}"
    yield f"  manifest      {manifest_words(watch, manifest_of_watch(watch))}"
    yield from _configuration_lines(watch)
    yield from _lowered_lines(watch)
    yield f"  grants        {watch.grants or 'as the tiers have them'}"
    for tier, words in enumerate(_open_by_tier(watch), start=1):
        yield f"    Tier {tier}      {words}"
    if watch.next_run:
        yield f"  next run      {timezone.localtime(watch.next_run):%Y-%m-%d %H:%M}"
    if watch.is_backed_off:
        yield (
            f"  backed off    until {timezone.localtime(watch.backed_off_until):%Y-%m-%d %H:%M}, "
            f"after {watch.failures_in_a_row} failures in a row"
        )
    if clock := RateLimit.holding():
        yield f"  waits         {clock.sentence}"
    for number, line in enumerate(watch.instructions.splitlines()):
        yield f"  {'instructions' if number == 0 else '':13} {line}"
    yield "Last cycles:" if watch.cycles.exists() else "It has never run."
    for cycle in watch.cycles.all()[:CYCLES_SHOWN]:
        said = cycle.result_text
        when = timezone.localtime(cycle.created_at)
        yield f"  {cycle.pk:<6} {when:%Y-%m-%d %H:%M} {said}. {cycle.outcome_reason}".rstrip(". ")


def _configuration_lines(watch: Watch) -> Iterator[str]:
    """Compare a watch from git with its file; nothing for other watches."""
    drift = drift_of(watch)
    if drift is None:
        return
    by = f"{moment_text(drift.record.applied_at)}, by {drift.record.applied_by}"
    yield f"  configuration {drift.sentence} ({by})"
    yield from (f"    {redacted(line)}" for line in drift.lines)
    if drift.steps:
        yield f"    back to it  {drift.way_back}"


def _lowered_lines(watch: Watch) -> Iterator[str]:
    """Say what the file in the directory lowers; nothing without one."""
    if lowered := lowered_now(watch):
        why = f"not understood: {lowered.problem}" if lowered.problem else "lowers"
        yield f"  {LIMITS_NAME} in the directory {why}"
        yield from (f"    {line}" for line in lowered.lines)


def manifest_words(watch: Watch, current: CurrentManifest) -> str:
    """Describe the state of CLAUDE-OPS.md, and the command that accepts it."""
    on = current.accepted_at and f" on {timezone.localtime(current.accepted_at):%Y-%m-%d %H:%M}"
    accepted = f"accepted by {current.accepted_by}{on or ''}"
    how = f"claudeops watch accept {watch.name}"
    if not Path(watch.workdir).is_dir():
        return f"the directory cannot be read on this machine; {accepted}"
    match current.state:
        case ManifestState.ACCEPTED:
            return f"{MANIFEST_NAME}, {accepted}"
        case ManifestState.CHANGED:
            return f"{MANIFEST_NAME} has changed and counts as data ({accepted}): {how}"
        case ManifestState.FIRST:
            return f"nobody has accepted {MANIFEST_NAME}, so it counts as data: {how}"
        case ManifestState.MISSING if current.waits:
            return f"{MANIFEST_NAME} is gone ({accepted}, and still in force): {how}"
        case ManifestState.MISSING:
            return f"there is no {MANIFEST_NAME} in the directory"


def _approval_words(watch: Watch) -> str:
    tiers = " and ".join(f"Tier {tier}" for tier in sorted(watch.policy.approval_tiers))
    return f"{tiers} wait for a person" if tiers else "no tier waits for a person"


def autonomy_lines(watch: Watch) -> Iterator[str]:
    """List the autonomy levels, with what each other one would have done lately."""
    yield f"{watch.name} may do this by itself: {watch.autonomy_title}"
    record = recorded_wishes(watch)
    for step in AutonomyLevel:
        mark = "*" if step == watch.autonomy_level else " "
        yield f"{mark} {step.value:20} {step.meaning}"
        if step != watch.autonomy_level:
            yield f"  {'':20} {what_if(record, step).sentence}"
    yield f"Change it with: claudeops watch autonomy {watch.name} STEP"


def _open_by_tier(watch: Watch) -> Iterator[str]:
    """Yield the grants of the first tier, and the difference of each tier above."""
    from escalation.web.watches import open_at  # loads pages, which other subcommands skip

    before: tuple[str, ...] = ()
    for tier, _name in tier_choices():
        now = open_at(tier, watch.grants)
        opened = [word for word in now if word not in before]
        closed = [f"-{word}" for word in before if word not in now]
        if tier == LOWEST_TIER:
            yield " ".join(opened) or "none"
        else:
            yield " ".join([*(f"+{word}" for word in opened), *closed]) or "the same"
        before = now


def watch_as_data(watch: Watch) -> dict[str, Any]:
    return {
        "name": watch.name,
        "workdir": watch.workdir,
        "instructions": watch.instructions,
        "interval_minutes": None if watch.cron else watch.interval_minutes,
        "cron": watch.cron or None,
        "enabled": watch.enabled,
        "grants": watch.grants,
        "manifest": _manifest_as_data(watch),
        "configuration": _configuration_as_data(watch),
        "lowered": _lowered_as_data(watch),
        "hosts": watch.hosts.split(),
        "ask": watch.ask,
        "max_tier": watch.max_tier,
        "dry_run": watch.dry_run,
        "approval": sorted(watch.policy.approval_tiers),
        "step": watch.autonomy_level,
        "budget_day_usd": watch.budget_day_usd,
        "restarts": {"allowed": watch.restarts_allowed, "hours": watch.restart_hours},
        "redeployments": {
            "allowed": watch.redeployments_allowed,
            "hours": watch.redeployment_hours,
        },
        "next_run": watch.next_run,
        "failures_in_a_row": watch.failures_in_a_row,
        "backed_off_until": watch.backed_off_until,
        "created_at": watch.created_at,
        "last_cycles": [_cycle_as_data(cycle) for cycle in watch.cycles.all()[:CYCLES_SHOWN]],
    }


def _manifest_as_data(watch: Watch) -> dict[str, Any]:
    current, is_here = manifest_of_watch(watch), Path(watch.workdir).is_dir()
    return {
        "state": current.state if is_here else None,
        "waits": current.waits if is_here else watch.manifest_waits,
        "accepted_by": current.accepted_by or None,
        "accepted_at": current.accepted_at,
    }


def _configuration_as_data(watch: Watch) -> dict[str, Any] | None:
    drift = drift_of(watch)
    if drift is None:
        return None
    return {
        "file": drift.record.file,
        "applied_at": drift.record.applied_at,
        "applied_by": drift.record.applied_by,
        "in_step": not drift.steps,
        "drift": [redacted(line) for line in drift.lines],
    }


def _lowered_as_data(watch: Watch) -> dict[str, Any] | None:
    lowered = lowered_now(watch)
    return asdict(lowered) if lowered else None


def _cycle_as_data(cycle: Cycle) -> dict[str, Any]:
    return {
        "id": cycle.pk,
        "trigger": cycle.trigger,
        "state": cycle.state,
        "outcome": cycle.outcome or None,
        "outcome_reason": cycle.outcome_reason,
        "created_at": cycle.created_at,
        "finished_at": cycle.finished_at,
    }


NONE = "none"


class Rate(NamedTuple):
    """A number of changes within hours."""

    allowed: int
    hours: int


def add_settings(parser: ArgumentParser) -> None:
    parser.add_argument("--instructions", help="what Tier 1 looks at")
    parser.add_argument("--every", type=int, metavar="MINUTES", help="minutes between two cycles")
    parser.add_argument("--cron", help="a cron expression, in place of --every")
    parser.add_argument(
        "--grants",
        "--doors",
        help='grants of its sessions, like "write:/srv/app -ssh"; "" for the defaults',
    )
    parser.add_argument(
        "--hosts", help='where it runs: names or labels of hosts, like "lab nas"; "" for anywhere'
    )
    parser.add_argument("--max-tier", type=int, choices=tier_numbers())
    parser.add_argument("--dry-run", action=BooleanOptionalAction, help="report, change nothing")
    parser.add_argument(
        "--approval", metavar="TIERS", help="tiers that wait for a person, like 3 or 2,3; or none"
    )
    parser.add_argument(
        "--ask", help='commands that need approval, like "Bash(docker restart:*)"; "" for none'
    )
    parser.add_argument(
        "--budget-day",
        type=read_budget,
        metavar="USD",
        help="dollars that its sessions may cost in a day; none for the limit of the installation",
    )
    parser.add_argument(
        "--restarts", type=read_rate, metavar="N/Hh", help="of one service: 2/4h is two in 4 hours"
    )
    parser.add_argument(
        "--redeployments", type=read_rate, metavar="N/Hh", help="of one service, like 1/24h"
    )


def read_rate(text: str) -> Rate:
    """Read a rate like `2/4h` or `2/1d`; `0/4h` means never."""
    parts = re.fullmatch(r"\s*(\d{1,4})\s*/\s*(\d{1,4})\s*([hd])\s*", text.lower())
    hours = int(parts[2]) * (24 if parts[3] == "d" else 1) if parts else 0
    if parts is None or not 0 < hours <= 8760:
        raise ArgumentTypeError(f"{text!r} is not a rate: write 2/4h for two within 4 hours")
    return Rate(int(parts[1]), hours)


def read_budget(text: str) -> Decimal | str:
    """Read an amount from 0 on, or `none`."""
    if text.strip().lower() == NONE:
        return NONE
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount < 10**9:
        raise ArgumentTypeError(f"{text!r} is not an amount in dollars: write 2.50, 0 or none")
    return amount


def given_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that were given."""
    every = options["every"]
    workdir, approval = options["workdir"], options["approval"]
    fields = {
        "name": options.get("new_name"),
        "workdir": workdir and str(Path(workdir).expanduser().absolute()),
        "instructions": options["instructions"],
        "interval_minutes": every,
        "cron": "" if every is not None else options["cron"],
        "grants": options["grants"],
        "hosts": options["hosts"],
        "max_tier": options["max_tier"],
        "dry_run": options["dry_run"],
        "approval": "" if (approval or "").strip().lower() == NONE else approval,
        "ask": options["ask"],
        "enabled": options.get("enabled"),
        "budget_day_usd": options["budget_day"],
    }
    for option, kind in (("restarts", "restart"), ("redeployments", "redeployment")):
        if rate := options[option]:
            fields |= {f"{kind}s_allowed": rate.allowed, f"{kind}_hours": rate.hours}
    given = {field: value for field, value in fields.items() if value is not None}
    if given.get("budget_day_usd") == NONE:
        given["budget_day_usd"] = None
    return given


OPTIONS_OF_FIELDS = {"name": "name", "workdir": "workdir", "interval_minutes": "--every"}


class Command(TerminalCommand):
    help = (
        "List, show, add, edit, remove, pause and unpause watches, set their autonomy, and accept "
        "their manifests."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listing = verbs.add_parser("list", help="all watches")
        listing.add_argument("--json", action="store_true")
        show = verbs.add_parser("show", help="all about a watch, with its last cycles")
        show.add_argument("name")
        show.add_argument("--json", action="store_true")
        add = verbs.add_parser("add", help="add a watch of a directory")
        add.add_argument("name")
        add.add_argument("workdir", help="the directory that the CLI works in")
        add_settings(add)
        _add_switch(add)
        edit = verbs.add_parser("edit", help="change the given settings")
        edit.add_argument("name")
        edit.add_argument("--name", dest="new_name", metavar="NAME", help="the new name")
        edit.add_argument("--workdir", help="the directory that the CLI works in")
        add_settings(edit)
        _add_switch(edit)
        remove = verbs.add_parser("remove", help="remove a watch; its record stays")
        remove.add_argument("name")
        remove.add_argument("--no-input", action="store_true", help="do not ask first")
        accept = verbs.add_parser("accept", help=f"show how {MANIFEST_NAME} changed, and accept it")
        accept.add_argument("name")
        accept.add_argument("--no-input", action="store_true", help="do not ask first")
        accept.add_argument("--as", metavar="USER", help="the account that accepts it")
        autonomy = verbs.add_parser("autonomy", help="show or set how far it may go by itself")
        autonomy.add_argument("name")
        autonomy.add_argument("step", nargs="?", choices=[step.value for step in AutonomyLevel])
        for verb in ("pause", "unpause"):
            verbs.add_parser(verb, help=f"{verb} its schedule").add_argument("name")

    def handle(self, *args: Any, **options: Any) -> None:
        ensure_default_watch()
        match options["verb"]:
            case "list":
                self._list(as_json=options["json"])
            case "show":
                self._show(watch_named(options["name"]), as_json=options["json"])
            case "add":
                self._add(options)
            case "edit":
                self._edit(watch_named(options["name"]), options)
            case "remove":
                self._remove(watch_named(options["name"]), asked=not options["no_input"])
            case "accept":
                self._accept(watch_named(options["name"]), options)
            case "autonomy":
                self._autonomy(watch_named(options["name"]), options["step"])
            case "pause":
                self._set_enabled(options["name"], enabled=False)
            case "unpause":
                self._set_enabled(options["name"], enabled=True)

    def _list(self, *, as_json: bool) -> None:
        watches = Watch.objects.select_related("schedule")
        if as_json:
            data = [watch_as_data(watch) for watch in watches]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
            return
        write_table(self, HEADINGS, [list_row(watch) for watch in watches])
        if not watches:
            self.stdout.write(NOTHING_WATCHED)

    def _show(self, watch: Watch, *, as_json: bool) -> None:
        if as_json:
            data = watch_as_data(watch)
            text = json_text(data, cls=DjangoJSONEncoder, indent=2)
        else:
            text = "\n".join(show_lines(watch))
        self.stdout.write(text)

    def _add(self, options: dict[str, Any]) -> None:
        watch = Watch(name=options["name"])
        _apply(watch, options)
        watch.save()
        accept_first(watch, by=terminal_user())
        self.stdout.write("\n".join(added_lines(watch)))

    def _edit(self, watch: Watch, options: dict[str, Any]) -> None:
        workdir, changed = watch.workdir, _apply(watch, options)
        if not changed:
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS,
                "Say what to change, for example --every 30 or --no-dry-run.",
            )
        watch.save(update_fields=changed)
        accept_first(watch, by=terminal_user(), moved=watch.workdir != workdir)
        self.stdout.write("\n".join(show_lines(watch)))

    def _remove(self, watch: Watch, *, asked: bool) -> None:
        count = watch.cycles.count()
        if asked:
            confirm_or_stop(
                self, f"Remove the watch {watch.name}? Its {count} cycles stay on record. [y/N] "
            )
        try:
            remove(watch)
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        self.stdout.write(f"The watch {watch.name} was removed. Its {count} cycles stay on record.")

    def _accept(self, watch: Watch, options: dict[str, Any]) -> None:
        account, current = account_named(options["as"]), manifest_of_watch(watch)
        if not may(account, Right.CHANGE_WATCHES):
            raise Refused(RefusalCode.NOT_PERMITTED, refusal(account, Right.CHANGE_WATCHES))
        if not current.waits or not Path(watch.workdir).is_dir():
            raise Refused(
                RefusalCode.NOT_FOUND,
                f"There is nothing to accept: {manifest_words(watch, current)}.",
            )
        self.stdout.write("\n".join(current.difference) or "Only redacted secrets differ.")
        if not options["no_input"]:
            confirm_or_stop(self, f"Accept {MANIFEST_NAME} of {watch.name}? [y/N] ")
        try:
            with installation_lock():
                accept_seen(watch, seen=current.token, by=account.get_username())
                note_changed(account, watch, f"Accepted {MANIFEST_NAME}.")
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        self.stdout.write(manifest_words(watch, manifest_of_watch(watch)))

    def _autonomy(self, watch: Watch, step: str | None) -> None:
        if step is not None:
            watch.set_autonomy_level(AutonomyLevel(step))
            watch.save(update_fields=list(Watch.AUTONOMY_FIELDS))
        self.stdout.write("\n".join(autonomy_lines(watch)))

    def _set_enabled(self, name: str, *, enabled: bool) -> None:
        watch = watch_named(name)
        watch.enabled = enabled
        watch.save(update_fields=["enabled"])
        self.stdout.write(f"The watch {name} is {'on: ' + watch.rhythm if enabled else 'paused'}.")


def _add_switch(parser: ArgumentParser) -> None:
    switch = parser.add_mutually_exclusive_group()
    switch.add_argument("--enable", dest="enabled", action="store_true", default=None)
    switch.add_argument("--disable", dest="enabled", action="store_false", default=None)


def _apply(watch: Watch, options: dict[str, Any]) -> list[str]:
    """Set the given fields, refuse what is not valid, and return the names of the fields."""
    changed = given_fields(options)
    for field, value in changed.items():
        setattr(watch, field, value)
    if wrong := [*_contradictions(options), *_objections(watch)]:
        raise refused_for(RefusalCode.INVALID_ARGUMENTS, wrong)
    return list(changed)


def _contradictions(options: dict[str, Any]) -> Iterator[str]:
    if options["every"] is not None and options["cron"]:
        yield "--every, --cron: a watch has one rhythm. Give one of the two."


def _objections(watch: Watch) -> Iterator[str]:
    """Yield all validation errors, each with its option."""
    try:
        watch.full_clean()
    except ValidationError as error:
        for field, messages in error.message_dict.items():
            option = OPTIONS_OF_FIELDS.get(field, f"--{field.replace('_', '-')}")
            yield f"{option}: {' '.join(messages)}"
