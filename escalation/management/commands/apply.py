"""Applies configuration files: watches, probes, remedies, sources and channels."""

from __future__ import annotations

import json
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from escalation.configuration import plan
from escalation.configuration.apply import Actor, Outcome, apply, planned
from escalation.configuration.declaration import schema
from escalation.configuration.files import Declarations, read
from escalation.configuration.plan import Action, Secret, Step
from escalation.errors import RefusalCode
from escalation.management.arguments import account_named, terminal_user
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import ExitCode, Refused, TerminalCommand
from sessions_app.access.roles import may, refusal

VERSION = 1
"""Version of what `--json` prints."""
LONGEST_VALUE = 300


class Command(TerminalCommand):
    help = (
        "Apply a configuration file, or all *.toml of a directory: shows what would change, asks, "
        "and applies it in one transaction. Exit code 1 of --plan means that something differs."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", nargs="?", help="a file, or a directory of files *.toml")
        parser.add_argument("--plan", action="store_true", help="only show what would change")
        parser.add_argument(
            "--prune", action="store_true", help="remove what no file declares any more"
        )
        parser.add_argument("--yes", action="store_true", help="do not ask first")
        parser.add_argument("--json", action="store_true", help="print the plan as JSON")
        parser.add_argument("--as", metavar="USER", help="the account that applies it")
        parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a file")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["schema"]:
            self.stdout.write(json.dumps(schema(), indent=2))
            return
        if options["path"] is None:
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS,
                "Give a file or a directory: claudeops apply /etc/claudeops.d.",
            )
        found = read(Path(options["path"]).expanduser().absolute())
        outcome = planned(found, prune=options["prune"])
        if options["plan"] or outcome.mistakes:
            self._end(outcome, options)
            return
        if not options["json"]:
            self._show(outcome)
        # Without a step there is nothing to ask; where it is declared now may still be recorded.
        if outcome.steps and not options["yes"]:
            if options["json"]:
                raise Refused(
                    RefusalCode.INVALID_ARGUMENTS,
                    "With --json give --plan to see the plan, or --yes to apply it.",
                )
            confirm_or_stop(self, "Apply this? [y/N] ")
        self._apply(found, outcome, options)

    def _end(self, outcome: Outcome, options: dict[str, Any]) -> None:
        """End without applying, after a plan or mistakes."""
        if outcome.mistakes:
            if options["json"]:
                self.stdout.write_json(as_data(outcome), indent=2)
            raise Refused(RefusalCode.CONFIGURATION, mistakes_text(outcome))
        if options["json"]:
            self.stdout.write_json(as_data(outcome), indent=2)
        else:
            self._show(outcome)
        if outcome.steps:
            sys.exit(ExitCode.PERSON)

    def _actor(self, options: dict[str, Any], outcome: Outcome) -> Actor:
        if options["as"] is None and not User.objects.exists():
            return Actor(name=terminal_user())
        account = account_named(options["as"])
        for right in sorted(outcome.rights):
            if not may(account, right):
                raise Refused(RefusalCode.NOT_PERMITTED, refusal(account, right))
        return Actor(name=account.get_username(), account=account)

    def _apply(self, found: Declarations, shown: Outcome, options: dict[str, Any]) -> None:
        by = self._actor(options, shown)
        done = apply(found, by=by, prune=options["prune"], expected=shown.digest)
        if done.is_stale or done.mistakes:
            if options["json"]:
                self.stdout.write_json(as_data(done), indent=2)
            else:
                self._show(done)
            raise Refused(
                RefusalCode.CONFIGURATION,
                mistakes_text(done)
                or "Nothing was applied: the configuration has changed since the plan was shown. "
                "This is the new plan; run the command again to apply it.",
            )
        if options["json"]:
            self.stdout.write_json(as_data(done), indent=2)
        elif done.steps:
            self.stdout.write(self.style.SUCCESS(f"Applied by {by.name}: {done.summary}."))
        for made in done.new_sources:
            secret = f"\nSecret:  {made.secret}" if made.secret else ""
            self.stderr.write_secret(
                f"The source {made.source.name} is new. This is not shown again:\n"
                f"Address: {made.address}{secret}"
            )

    def _show(self, outcome: Outcome) -> None:
        styles = {
            Action.ADD: self.style.SUCCESS,
            Action.CHANGE: self.style.WARNING,
            Action.REMOVE: self.style.ERROR,
        }
        for step in outcome.steps:
            for line in step_lines(step):
                self.stdout.write(line, styles[step.action])
        self.stdout.write(ending(outcome))


APPLIER = "CLAUDEOPS_APPLY"


def apply_at_start(command: TerminalCommand) -> None:
    """Apply what the setting CLAUDEOPS_APPLY names, and say what was done.

    Several processes may start at once: one applies, the others find nothing that differs.
    Refuse the start, with all mistakes, if something cannot be applied. Nothing is removed.
    """
    if not settings.CLAUDEOPS_APPLY:
        return
    path = Path(settings.CLAUDEOPS_APPLY).expanduser().absolute()
    administrators = User.objects.filter(is_superuser=True, is_active=True).order_by("pk")
    done = apply(read(path), by=Actor(name=APPLIER, account=administrators.first()))
    if done.mistakes:
        raise Refused(RefusalCode.CONFIGURATION, f"{APPLIER}={path}\n{mistakes_text(done)}")
    for step in done.steps:
        command.stdout.write(f"{step.action.sign} {step.address}")
    said = done.summary if done.steps else "nothing differs"
    command.stdout.write(f"Applied {path}: {said}.")
    for address in done.left:
        command.stdout.write(f"Not declared in {path}: {address}. It stays.")
    for made in done.new_sources:
        command.stdout.write(
            f"The source {made.source.name} has a new address. Show one with `claudeops source "
            f"renew {made.source.name}`, or declare its token and secret as references."
        )
    command.stdout.flush()


def step_lines(step: Step) -> Iterator[str]:
    yield f"{step.action.sign} {step.address}"
    for change in step.fields:
        after = _short(change.after)
        if step.action == Action.ADD:
            yield f"    {change.name} = {after}"
        else:
            yield f"    {change.name}: {_short(change.before)} → {after}"


def _short(value: Any) -> str:
    text = plan.value_text(value)
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


def ending(outcome: Outcome) -> str:
    lines = []
    if outcome.left:
        lines.append("In no file any more, or never in one; --prune removes them:")
        lines += [f"    {address}" for address in outcome.left]
    lines.append(f"Plan: {outcome.summary}." if outcome.steps else "Nothing differs.")
    return "\n".join(lines)


def mistakes_text(outcome: Outcome) -> str:
    if not outcome.mistakes:
        return ""
    count = len(outcome.mistakes)
    head = "1 mistake" if count == 1 else f"{count} mistakes"
    return "\n".join([*map(str, outcome.mistakes), f"Nothing was applied: {head}."])


def as_data(outcome: Outcome) -> dict[str, Any]:
    return {
        "version": VERSION,
        "applied": outcome.is_applied,
        "stale": outcome.is_stale,
        "steps": [_step_as_data(step, outcome) for step in outcome.steps],
        "left": [str(address) for address in outcome.left],
        "mistakes": [
            {"file": one.file, "line": one.line, "message": one.message} for one in outcome.mistakes
        ],
    }


def _step_as_data(step: Step, outcome: Outcome) -> dict[str, Any]:
    file, line = outcome.places.get(step.address, (None, None))
    return {
        "action": step.action,
        "kind": step.address.kind,
        "name": step.address.name,
        "watch": step.address.watch or None,
        "file": file,
        "line": line,
        "fields": [
            {"name": one.name, "before": _plain(one.before), "after": _plain(one.after)}
            for one in step.fields
        ],
    }


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Secret) else value
