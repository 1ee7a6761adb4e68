"""Manages probes: looks at services that need no model."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from datetime import datetime
from typing import Any

from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import terminal_user, watch_named
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import ExitCode, Refused, TerminalCommand
from escalation.probes import manage, proposals
from escalation.probes.kinds import CommandSandboxPool, run_probe
from escalation.probes.results import Result
from escalation.probes.targets import OPTIONS
from sessions_app.models import Probe, Watch
from sessions_app.models.installation import moment_text
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean

NO_PROBE = (
    "There is no probe yet. Add one: claudeops probe add NAME --watch W --service S --http URL."
)
SHORT = 10
"""Characters of the key of a proposal that are enough to name it."""
TARGETS = {
    "http": "URL",
    "tcp": "HOST:PORT",
    "dns": "NAME",
    "command": "CMD",
    "file": "PATH",
    "disk": "PATH",
    "container": "NAME",
    "unit": "NAME",
}


class Command(TerminalCommand):
    help = (
        "Add, list, run, mute and remove probes, looks at services without a model, and accept "
        "proposed ones. Exit code 1 of `run` means that the probe failed."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list")
        listed.add_argument("--watch", help="only those of a watch")
        add = verbs.add_parser("add")
        add.add_argument("name")
        add.add_argument("--service", required=True, help="service of the watch")
        kinds = add.add_mutually_exclusive_group(required=True)
        for kind, meta in TARGETS.items():
            kinds.add_argument(f"--{kind}", metavar=meta)
        kinds.add_argument("--heartbeat", action="store_true", help="print an address to call")
        add.add_argument("--every", default="60s", help="interval, at least 5s (default 60s)")
        add.add_argument("--timeout", default="10s", help="time-out; grace of a heartbeat")
        add.add_argument("--fail-after", type=int, help="failures in a row until it is down")
        add.add_argument("--recover-after", type=int, help="good results in a row until it is up")
        add.add_argument(
            "--needs", action="append", default=[], help="probe whose failure explains this one's"
        )
        add.add_argument(
            "--option",
            action="append",
            default=[],
            metavar="NAME=VALUE",
            help=f"expectation; may be repeated: {', '.join(OPTIONS)}",
        )
        run = verbs.add_parser("run", help="run it here and now; changes no state")
        mute = verbs.add_parser("mute", help="let its failures start nothing for a time")
        mute.add_argument("--for", dest="duration", default="1h", help="like 30m; 0 ends a mute")
        remove = verbs.add_parser("remove")
        remove.add_argument("--no-input", action="store_true", help="do not ask first")
        proposed = verbs.add_parser("proposals", help="list the probes that are proposed")
        accept = verbs.add_parser("accept", help="add a proposed probe")
        dismiss = verbs.add_parser("dismiss", help="do not propose it again")
        for verb in (accept, dismiss):
            verb.add_argument("key", help="as `proposals` prints it")
            verb.add_argument("--no-input", action="store_true", help="do not ask first")
        for verb in (run, mute, remove):
            verb.add_argument("name")
        for verb in (add, proposed, accept, dismiss):
            verb.add_argument("--watch", required=True)
        for verb in (run, mute, remove):
            verb.add_argument("--watch", help="needed if several watches have such a probe")
        for verb in (listed, add, proposed, accept, dismiss, run, mute, remove):
            verb.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            self._do(options)
        except OperationRefused as refused:
            raise Refused(refused.code, str(refused)) from refused

    def _do(self, options: dict[str, Any]) -> None:
        match options["verb"]:
            case "list":
                self._list(options)
            case "add":
                self._show(_added(options), options)
            case "run":
                self._run(probe_named(options["name"], options["watch"]), options)
            case "mute":
                probe = probe_named(options["name"], options["watch"])
                self._show(manage.mute(probe, manage.seconds_in(options["duration"])), options)
            case "proposals":
                self._proposals(watch_named(options["watch"]), as_json=options["json"])
            case "accept" | "dismiss":
                self._decide(watch_named(options["watch"]), options)
            case "remove":
                self._remove(probe_named(options["name"], options["watch"]), options)

    def _list(self, options: dict[str, Any]) -> None:
        rows = Probe.objects.select_related("watch").order_by("watch__name", "name")
        if options["watch"]:
            rows = rows.filter(watch=watch_named(options["watch"]))
        if options["json"]:
            self.stdout.write_json([probe_as_data(probe) for probe in rows], indent=2)
        else:
            self.stdout.write("\n".join(map(probe_line, rows)) or NO_PROBE)

    def _show(self, probe: Probe, options: dict[str, Any]) -> None:
        if options["json"]:
            self.stdout.write_json(probe_as_data(probe), indent=2)
            return
        self.stdout.write(probe_line(probe))
        if options["verb"] == "add" and probe.kind == Probe.Kind.HEARTBEAT:
            self.stdout.write(
                f"Call it when the job has succeeded: {manage.heartbeat_address(probe)}\n"
                "Add /start before the job, /fail or its exit code after it; a body is kept."
            )

    def _proposals(self, watch: Watch, *, as_json: bool) -> None:
        found = proposals.offered(watch)
        if as_json:
            self.stdout.write_json([proposal_as_data(one) for one in found], indent=2)
            return
        for one in found:
            self.stdout.write(clean(f"{one.key[:SHORT]}  {one.service}: {one.kind} {one.target}"))
            self.stdout.write(clean(f"{'':{SHORT}}  {one.why or 'proposed by a report'}"))
        if found:
            self.stdout.write(f"Add one: claudeops probe accept KEY --watch {watch.name}")
        else:
            self.stdout.write(f"No probe is proposed for {watch.name}.")

    def _decide(self, watch: Watch, options: dict[str, Any]) -> None:
        found = [one for one in proposals.offered(watch) if one.key.startswith(options["key"])]
        if len(found) != 1 or len(options["key"]) < SHORT:
            raise Refused(
                RefusalCode.NOT_FOUND,
                f"{watch.name} has no proposal {options['key']}: see `claudeops probe proposals "
                f"--watch {watch.name}`.",
            )
        [one], is_accepted = found, options["verb"] == "accept"
        if is_accepted and not options["no_input"]:
            self.stdout.write(clean(f"{one.service}: {one.kind} {one.target}"))
            confirm_or_stop(self, "Add this probe? [y/N] ")
        if is_accepted:
            self._show(proposals.accept(watch, one.key, by=terminal_user()), options)
            return
        proposals.dismiss(watch, one.key, by=terminal_user())
        if options["json"]:
            self.stdout.write_json({**proposal_as_data(one), "dismissed": True}, indent=2)
        else:
            self.stdout.write(f"The probe of {one.service} is not proposed any more.")

    def _run(self, probe: Probe, options: dict[str, Any]) -> None:
        if probe.kind == Probe.Kind.HEARTBEAT:
            raise Refused(
                RefusalCode.INVALID_CHOICE,
                f"A heartbeat is called, not run. Its address: {manage.heartbeat_address(probe)}",
            )
        result = run_now(probe)
        if options["json"]:
            self.stdout.write_json(result_as_data(probe, result), indent=2)
        else:
            status = Probe.Status(result.status).label
            self.stdout.write(clean(f"{probe.name}: {status}: {redacted(result.output)}"))
        if not result.is_good:
            sys.exit(ExitCode.PERSON)

    def _remove(self, probe: Probe, options: dict[str, Any]) -> None:
        if not options["no_input"]:
            confirm_or_stop(self, f"Remove {probe.name} with its history? [y/N] ")
        data = probe_as_data(probe)
        manage.remove(probe)
        if options["json"]:
            self.stdout.write_json({**data, "removed": True}, indent=2)
        else:
            self.stdout.write(f"{probe.name} was removed.")


def run_now(probe: Probe) -> Result:
    pool = CommandSandboxPool()
    try:
        return asyncio.run(run_probe(probe, pool))
    finally:
        pool.close()


def probe_named(name: str, watch: str | None) -> Probe:
    rows = Probe.objects.select_related("watch").filter(name=name)
    if watch:
        rows = rows.filter(watch=watch_named(watch))
    found = list(rows[:2])
    if len(found) > 1:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS, f"Several watches have a probe {name}: add --watch."
        )
    if not found:
        raise Refused(
            RefusalCode.NOT_FOUND, f"There is no probe {name}. See `claudeops probe list`."
        )
    return found[0]


def _added(options: dict[str, Any]) -> Probe:
    kind = next((kind for kind in TARGETS if options[kind] is not None), Probe.Kind.HEARTBEAT)
    is_heartbeat = kind == Probe.Kind.HEARTBEAT
    pairs = [text.partition("=") for text in options["option"]]
    default = 1 if is_heartbeat else 2
    return manage.add(
        watch_named(options["watch"]),
        name=options["name"],
        service=options["service"],
        kind=kind,
        target="" if is_heartbeat else options[kind],
        interval_seconds=manage.seconds_in(options["every"]),
        timeout_seconds=manage.seconds_in(options["timeout"]),
        fail_after=default if options["fail_after"] is None else options["fail_after"],
        recover_after=default if options["recover_after"] is None else options["recover_after"],
        needs=options["needs"],
        options={name: value for name, _equals, value in pairs},
    )


def proposal_as_data(one: proposals.Proposed) -> dict[str, Any]:
    return {
        "key": one.key,
        "service": one.service,
        "kind": one.kind,
        "target": one.target,
        "why": one.why,
        "session": one.session,
    }


def iso(at: datetime | None) -> str | None:
    return at.isoformat() if at else None


def probe_line(probe: Probe) -> str:
    since = f" since {moment_text(probe.since)}" if probe.since else ""
    marks = [
        "flapping" if probe.is_flapping else "",
        f"muted until {moment_text(probe.muted_until)}" if probe.is_muted else "",
    ]
    told = f": {probe.last_output.splitlines()[0][:150]}" if probe.last_output.strip() else ""
    state = ", ".join(filter(None, (f"{probe.get_state_display()}{since}", *marks)))
    return clean(f"{probe.watch.name}/{probe.name} ({probe.kind}, {probe.service}) {state}{told}")


def probe_as_data(probe: Probe) -> dict[str, Any]:
    return {
        "watch": probe.watch.name,
        "service": probe.service,
        "name": probe.name,
        "kind": probe.kind,
        "target": probe.target,
        "options": probe.options,
        "every_seconds": probe.interval_seconds,
        "timeout_seconds": probe.timeout_seconds,
        "fail_after": probe.fail_after,
        "recover_after": probe.recover_after,
        "needs": [parent.name for parent in probe.needs.all()],
        "state": probe.state,
        "since": iso(probe.since),
        "failing_since": iso(probe.failing_since),
        "last_good_at": iso(probe.last_good_at),
        "last_run_at": iso(probe.last_run_at),
        "last_status": probe.last_status,
        "last_seconds": probe.last_seconds,
        "last_output": probe.last_output,
        "is_flapping": probe.is_flapping,
        "muted_until": iso(probe.muted_until),
        "address": manage.heartbeat_address(probe) if probe.kind == Probe.Kind.HEARTBEAT else None,
    }


def result_as_data(probe: Probe, result: Result) -> dict[str, Any]:
    return {
        "watch": probe.watch.name,
        "name": probe.name,
        "status": Probe.Status(result.status).name.lower(),
        "is_good": result.is_good,
        "seconds": result.seconds,
        "output": redacted(result.output),
        "figures": {
            name: {"value": figure.value, "unit": figure.unit}
            for name, figure in result.figures.items()
        },
    }
