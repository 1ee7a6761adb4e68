"""Manages the remedies of a watch: commands and scripts that agents call by name."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.core.serializers.json import DjangoJSONEncoder

from escalation import tasks
from escalation.errors import OperationRefused, RefusalCode
from escalation.management.arguments import (
    account_named,
    incident_named,
    terminal_user,
    watch_named,
)
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import Cell, ExitCode, Refused, TerminalCommand, write_table
from escalation.queue import own_labels
from escalation.run import remedies
from escalation.run.remedies import RemedyState, state_of
from sessions_app.access.roles import Right, may, refusal
from sessions_app.models import Remedy, RemedyRun
from sessions_app.models.watch import may_run, read_host_words
from sessions_app.text import json_text, one_line

HEADINGS = ("remedy", "watch", "kind", "from", "state", "command")
RUN_HEADINGS = ("run", "watch", "call", "by", "result", "undo")
RUNS_SHOWN = 20
WIDTH = 60
NO_REMEDY = (
    "There is no remedy yet. Add one: claudeops remedy add NAME --watch WATCH --command COMMAND."
)


class Command(TerminalCommand):
    help = (
        "List, add, show, run, undo, accept, enable, disable and remove remedies: commands and "
        "scripts of yours that an agent calls by name."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list", help="list remedies, and which of them wait for you")
        listed.add_argument("--watch", help="only of this watch")
        add = verbs.add_parser(
            "add",
            help="declare a remedy",
            epilog="claudeops remedy add restart --watch shop --kind restart --grant docker "
            "--parameter 'service: service' --command 'docker restart {service}'",
        )
        self._add_declaration(add)
        for verb, text in (
            ("show", "show a remedy, and how its script differs from the accepted one"),
            ("accept", "accept the script of a remedy as it is now"),
            ("enable", "let agents use it again"),
            ("disable", "let no agent use it"),
            ("remove", "remove a remedy"),
        ):
            chosen = verbs.add_parser(verb, help=text)
            chosen.add_argument("name")
            chosen.add_argument("--watch", help="needed if several watches have that remedy")
            if verb in ("accept", "remove"):
                chosen.add_argument("--no-input", action="store_true", help="do not ask first")
        run = verbs.add_parser(
            "run", help="run a remedy yourself, here or with --queue by a worker"
        )
        run.add_argument("name")
        run.add_argument("arguments", nargs="*", help="the values of its parameters, in order")
        run.add_argument("--watch", help="needed if several watches have that remedy")
        run.add_argument("--incident", metavar="N", help="the incident that it is for")
        run.add_argument("--as", dest="account", metavar="NAME", help="the account that runs it")
        run.add_argument("--queue", action="store_true", help="let a worker run it")
        run.add_argument("--no-input", action="store_true", help="do not ask first")
        runs = verbs.add_parser("runs", help="list the last runs by people and by Tier 0")
        runs.add_argument("--watch", help="only of this watch")
        undo = verbs.add_parser("undo", help="run the remedy that undoes a run")
        undo.add_argument("run", metavar="N", type=int, help="number of the run")
        undo.add_argument("--as", dest="account", metavar="NAME", help="the account that runs it")
        undo.add_argument("--queue", action="store_true", help="let a worker run it")
        undo.add_argument("--no-input", action="store_true", help="do not ask first")
        for chosen in verbs.choices.values():
            chosen.add_argument("--json", action="store_true", help="print it as JSON")

    def _add_declaration(self, add: ArgumentParser) -> None:
        add.add_argument("name", help="a short name, such as restart")
        add.add_argument("--watch", required=True)
        add.add_argument("--description", default="", help="for the model: what it does, and when")
        add.add_argument(
            "--parameter",
            action="append",
            default=[],
            metavar="'NAME: TYPE'",
            help="`service: service`, `lines: integer 1..500`, `mode: one of soft hard`; in order",
        )
        add.add_argument("--kind", choices=Remedy.Kind.values, default=Remedy.Kind.OTHER)
        add.add_argument("--service", default="", help="the service that it concerns")
        add.add_argument("--tier", type=int, default=2, help="the lowest tier that may run it (2)")
        add.add_argument(
            "--grant", action="append", default=[], help="a grant of its sandbox; may be repeated"
        )
        add.add_argument("--seconds", type=int, default=60, help="its time limit (60)")
        add.add_argument("--probe", default="", help="the probe that proves that it helped")
        add.add_argument(
            "--tier0",
            type=int,
            metavar="HOURS",
            help="run it without a model when its probe fails, at most once in so many hours",
        )
        add.add_argument("--undo", default="", help="the remedy that undoes it")
        add.add_argument(
            "--command",
            required=True,
            help="program and arguments, such as 'docker restart {service}'; no shell reads it",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        as_json = options["json"]
        match options["verb"]:
            case "list":
                return self._list(options["watch"], as_json=as_json)
            case "runs":
                return self._runs(options["watch"], as_json=as_json)
            case "undo":
                return self._undo(options)
            case "add":
                row = _added(options)
            case verb:
                row = named(options["name"], options["watch"])
                if verb in ("remove", "run"):
                    return (self._remove if verb == "remove" else self._run)(row, options)
                self._act(verb, row, options)
        self._show(row, as_json=as_json)

    def _act(self, verb: str, row: Remedy, options: dict[str, Any]) -> None:
        if verb == "accept":
            self._accept(row, asked=not options["no_input"])
        elif verb in ("enable", "disable"):
            row.enabled = verb == "enable"
            row.save()

    def _accept(self, row: Remedy, *, asked: bool) -> None:
        state = state_of(row)
        if asked and state.difference:
            self.stdout.write("\n".join(state.difference))
            confirm_or_stop(self, f"Accept {row.script_path} as it is now? [y/N] ")
        try:
            remedies.accept(row, by=terminal_user(), token=state.token)
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused

    def _remove(self, row: Remedy, options: dict[str, Any]) -> None:
        if not options["no_input"]:
            confirm_or_stop(self, f"Remove the remedy {row.name} of {row.watch.name}? [y/N] ")
        data = {"name": row.name, "watch": row.watch.name, "removed": True}
        remedies.remove(row)
        said = json_text(data) if options["json"] else f"The remedy {row.name} was removed."
        self.stdout.write(said)

    def _run(self, row: Remedy, options: dict[str, Any]) -> None:
        account = _approver(options["account"])
        incident = incident_named(options["incident"]) if options["incident"] else None
        queued = options["queue"]
        if not queued:
            _require_own_host(row)
        try:
            call = remedies.call_of(row, options["arguments"])
            if not options["no_input"]:
                confirm_or_stop(self, f"Run `{shlex.join(call.argv)}`? [y/N] ")
            run = remedies.ask_to_run(
                row,
                options["arguments"],
                by=account,
                by_name=account.get_username(),
                incident=incident,
                in_foreground=not queued,
            )
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        self._finish(run, options)

    def _undo(self, options: dict[str, Any]) -> None:
        account, number = _approver(options["account"]), options["run"]
        rows = RemedyRun.objects.select_related("remedy", "watch", "incident")
        run = rows.filter(pk=number).first() if 0 < number < 2**63 else None
        if run is None:
            raise Refused(
                RefusalCode.NOT_FOUND, f"There is no run {number}. See `claudeops remedy runs`."
            )
        try:
            undo = remedies.undo_of(run)
            if not options["queue"]:
                _require_own_host(undo.remedy)
            if not options["no_input"]:
                confirm_or_stop(self, f"Undo `{run.call}` with `{undo.call}`? [y/N] ")
            undoing = remedies.ask_to_undo(
                run,
                by=account,
                by_name=account.get_username(),
                in_foreground=not options["queue"],
            )
        except OperationRefused as refused:
            raise Refused(refused.code, refused) from refused
        self._finish(undoing, options)

    def _finish(self, run: RemedyRun, options: dict[str, Any]) -> None:
        """Run it here unless a worker does, and print the result."""
        if not options["queue"]:
            tasks.run_remedy(run.pk)
            run.refresh_from_db()
        self._say(run, as_json=options["json"])

    def _runs(self, watch: str | None, *, as_json: bool) -> None:
        rows = RemedyRun.objects.with_undo().select_related("watch")
        if watch:
            rows = rows.filter(watch=watch_named(watch))
        shown = list(rows[:RUNS_SHOWN])
        if as_json:
            data = [run_as_data(run) for run in shown]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        elif shown:
            write_table(self, RUN_HEADINGS, [_run_row(run) for run in shown])
        else:
            self.stdout.write("Nobody has run a remedy yet.")

    def _say(self, run: RemedyRun, *, as_json: bool) -> None:
        if as_json:
            data = run_as_data(run)
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        else:
            self.stdout.write(f"{run.output.rstrip()}\n" if run.output else "", ending="")
            self.stdout.write(f"{run.call}: {run.result}")
            if run.undo_name and run.undoes_id is None:
                self.stdout.write(f"Undo it: claudeops remedy undo {run.pk}")
        if run.state == RemedyRun.State.REFUSED:
            sys.exit(ExitCode.REFUSED)
        if run.state == RemedyRun.State.FAILED or run.proof == RemedyRun.Proof.NO_HELP:
            sys.exit(ExitCode.PERSON)

    def _list(self, watch: str | None, *, as_json: bool) -> None:
        rows = Remedy.objects.select_related("watch", "script").order_by("watch__name", "name")
        if watch:
            rows = rows.filter(watch=watch_named(watch))
        found = [(row, state_of(row)) for row in rows]
        if as_json:
            data = [as_data(row, state) for row, state in found]
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
        elif found:
            write_table(self, HEADINGS, [_table_row(row, state) for row, state in found])
        else:
            self.stdout.write(NO_REMEDY)

    def _show(self, row: Remedy, *, as_json: bool) -> None:
        state = state_of(row)
        if as_json:
            data = {**as_data(row, state), "difference": list(state.difference)}
            self.stdout.write(json_text(data, cls=DjangoJSONEncoder, indent=2))
            return
        self.stdout.write(f"The remedy {row.name} of {row.watch.name}: {row.description}")
        self.stdout.write(f"  called as     remedy {row.usage}")
        self.stdout.write(f"  runs          {row.command_text}")
        grants = row.grants or "no grant"
        self.stdout.write(
            f"  as            {row.get_kind_display()}, from Tier {row.tier}, {grants}, "
            f"at most {row.seconds} s"
        )
        self.stdout.write(f"  state         {_state(row, state)}")
        if row.script_path and row.accepted_at:
            self.stdout.write(f"  accepted by   {row.accepted_by}")
        for name, value in (("proved by", row.probe), ("undone by", row.undo)):
            if value:
                self.stdout.write(f"  {name:13} {value}")
        if state.difference:
            self.stdout.write("\n".join(state.difference))


def _approver(name: str | None) -> User:
    account = account_named(name)
    if not may(account, Right.APPROVE):
        raise Refused(RefusalCode.NOT_PERMITTED, refusal(account, Right.APPROVE))
    return account


def _require_own_host(row: Remedy) -> None:
    if not may_run(read_host_words(row.watch.hosts), own_labels()):
        raise Refused(
            RefusalCode.OTHER_HOST,
            f"The watch {row.watch.name} runs on other hosts: let one run it with --queue.",
        )


def _run_row(run: RemedyRun) -> tuple[Cell | str, ...]:
    who = "Tier 0" if run.trigger == RemedyRun.Trigger.PROBE else run.by_name
    undone = run.undo_state == RemedyRun.State.SUCCEEDED
    undo = "undone" if undone else run.undo_name
    return (str(run.pk), run.watch.name, run.call, who, run.result, undo)


def _added(options: dict[str, Any]) -> Remedy:
    try:
        words = shlex.split(options["command"])
    except ValueError as problem:
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS, f"command: {problem}. Close every quote."
        ) from problem
    row = Remedy(
        watch=watch_named(options["watch"]),
        name=options["name"],
        description=options["description"],
        command=words,
        parameters="\n".join(options["parameter"]),
        kind=options["kind"],
        service=options["service"],
        tier=options["tier"],
        grants=" ".join(options["grant"]),
        seconds=options["seconds"],
        probe=options["probe"],
        undo=options["undo"],
        tier0_hours=options["tier0"],
    )
    try:
        remedies.save(row, by=terminal_user())
    except ValidationError as error:
        fields = error.message_dict.items()
        problems = [
            message if field == "__all__" else f"{field}: {message}"
            for field, messages in fields
            for message in messages
        ]
        raise Refused(RefusalCode.INVALID_ARGUMENTS, "\n".join(problems)) from error
    return row


def named(name: str, watch: str | None) -> Remedy:
    """Return the remedy of a name; refuse if there is none, or one in each of several watches."""
    rows = Remedy.objects.select_related("watch", "script")
    if watch:
        rows = rows.filter(watch=watch_named(watch))
    found = list(rows.filter(name=name))
    if len(found) == 1:
        return found[0]
    if found:
        watches = ", ".join(row.watch.name for row in found)
        raise Refused(
            RefusalCode.INVALID_ARGUMENTS,
            f"Several watches have a remedy {name}: {watches}. Name one with --watch.",
        )
    names = ", ".join(row.name for row in rows)
    raise Refused(
        RefusalCode.NOT_FOUND,
        f"There is no remedy {name}. Remedies: {names}." if names else NO_REMEDY,
    )


def run_as_data(run: RemedyRun) -> dict[str, Any]:
    return {
        "id": run.pk,
        "remedy": run.name,
        "watch": run.watch.name,
        "arguments": run.arguments,
        "incident": run.incident_id,
        "by": run.by_name or None,
        "undo": run.undo_name or None,
        "undoes": run.undoes_id,
        "state": run.state,
        "asked_at": run.asked_at,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "exit_code": run.exit_code,
        "why": run.why or None,
        "proof": run.proof or None,
        "output": run.output,
    }


def _state(row: Remedy, state: RemedyState) -> str:
    if not row.enabled:
        return "disabled"
    return f"waits for you: {state.waits}" if state.waits else "ready"


def _table_row(row: Remedy, state: RemedyState) -> tuple[Cell | str, ...]:
    return (
        row.usage,
        row.watch.name,
        row.get_kind_display(),
        f"Tier {row.tier}",
        Cell(_state(row, state), "bad" if state.waits and row.enabled else ""),
        one_line(row.command_text, WIDTH),
    )


def as_data(row: Remedy, state: RemedyState) -> dict[str, Any]:
    return {
        "name": row.name,
        "watch": row.watch.name,
        "description": row.description,
        "command": row.command,
        "parameters": [str(parameter) for parameter in row.declared_parameters],
        "kind": row.kind,
        "service": row.service or None,
        "tier": row.tier,
        "grants": row.grants.split(),
        "seconds": row.seconds,
        "probe": row.probe or None,
        "undo": row.undo or None,
        "tier0_hours": row.tier0_hours,
        "enabled": row.enabled,
        "waits": state.waits or None,
        "script": row.script_path or None,
        "digest": row.script.digest if row.script else None,
        "accepted_by": row.accepted_by or None,
        "accepted_at": row.accepted_at,
    }
