"""Who is told: list, add, test, enable, disable and remove targets."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError

from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.refusal import Refused
from escalation.management.terminal import TerminalCommand
from escalation.word import targets
from sessions_app.models import Incident, Target, Watch

NOBODY = "Nobody is told anything yet. Make a target with `claudeops target add NAME`."
SEVERITIES = {severity.label: severity.value for severity in Incident.Severity}


class Command(TerminalCommand):
    help = (
        "List, add, test, enable, disable and remove targets: where word goes when something "
        "happens. An address is asked for, or read from standard input; it is never shown again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        verbs.add_parser("list")
        add = verbs.add_parser("add", help="its address is asked for, or read from standard input")
        add.add_argument("name")
        add.add_argument("--from", dest="least", choices=SEVERITIES, default="warning")
        add.add_argument(
            "--watch", action="append", default=[], help="only of this one; may repeat"
        )
        add.add_argument("--quiet", metavar="22:00-07:00", help="only what is critical, local time")
        add.add_argument(
            "--digest", metavar="08:00", help="when the daily digest comes, local time"
        )
        for verb in ("test", "enable", "disable"):
            verbs.add_parser(verb).add_argument("name")
        remove = verbs.add_parser("remove")
        remove.add_argument("name")
        remove.add_argument("--no-input", action="store_true", help="do not ask first")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list":
                lines = [_line(target) for target in Target.objects.all()]
                self.stdout.write("\n".join(lines) or NOBODY)
            case "add":
                self._add(options)
            case "test":
                self._test(_named(options["name"]))
            case "remove":
                self._remove(_named(options["name"]), asked=not options["no_input"])
            case verb:
                self._switch(_named(options["name"]), enabled=verb == "enable")

    def _add(self, options: dict[str, Any]) -> None:
        begin, _, end = (options["quiet"] or "").partition("-")
        target = Target(
            name=options["name"],
            least_severity=SEVERITIES[options["least"]],
            quiet_from=begin.strip() or None,
            quiet_until=end.strip() or None,
            digest_at=options["digest"],
        )
        watches = [_watch(name) for name in options["watch"]]
        if bool(begin.strip()) != bool(end.strip()):
            raise Refused("Quiet hours are written like 22:00-07:00.")
        try:
            target.full_clean(exclude=["sealed_address"])
        except ValidationError as error:
            raise Refused(" ".join(error.messages)) from error
        if objection := targets.set_address(target, _address()):
            raise Refused(objection)
        target.save()
        target.watches.set(watches)
        self.stdout.write(f"{_line(target)}\nTry it: claudeops target test {target.name}")

    def _test(self, target: Target) -> None:
        answer = targets.send_test(target)
        if not answer.ok:
            raise Refused(f"The test did not reach {target.name}. {answer.said}")
        self.stdout.write(f"The test was sent to {target.name}.")

    def _switch(self, target: Target, *, enabled: bool) -> None:
        left = targets.set_enabled(target, enabled=enabled)
        rest = "" if enabled else f" {left} waiting messages are not sent."
        self.stdout.write(f"{target.name} is {'on' if enabled else 'off'}.{rest}")

    def _remove(self, target: Target, *, asked: bool) -> None:
        if asked:
            confirm_or_stop(self, f"Remove {target.name}, its address and its messages? [y/N] ")
        target.delete()
        self.stdout.write(f"{target.name} is removed.")


def _address() -> str:
    """Not on the command line, where everybody on the machine and every history would read it."""
    if sys.stdin.isatty():
        return getpass.getpass("Address (not shown): ").strip()
    return sys.stdin.readline().strip()


def _named(name: str) -> Target:
    target = Target.objects.filter(name=name).first()
    if target is None:
        names = ", ".join(Target.objects.values_list("name", flat=True))
        raise Refused(f"There is no target {name}. There is: {names}." if names else NOBODY)
    return target


def _watch(name: str) -> Watch:
    watch = Watch.objects.filter(name=name).first()
    if watch is None:
        raise Refused(f"There is no watch {name}: `claudeops watch list` names them.")
    return watch


def _line(target: Target) -> str:
    state = "on" if target.enabled else "off"
    failed = f", failed {target.failures_in_a_row}×: {target.last_error}"
    return (
        f"{target.name}: {target.service}, {state}, from {target.get_least_severity_display()}"
        f"{failed if target.failures_in_a_row else ''}"
    )
