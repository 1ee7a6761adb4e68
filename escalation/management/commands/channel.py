"""Manages notification channels."""

from __future__ import annotations

import getpass
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.exceptions import ValidationError

from escalation.errors import RefusalCode
from escalation.management.arguments import watch_named
from escalation.management.commands.run_cycle import confirm_or_stop
from escalation.management.output import Refused, TerminalCommand, waiting
from escalation.notifications import sending
from escalation.queue import installation_lock
from sessions_app.models import Channel, Incident, Watch

NO_CHANNEL = "There is no channel yet. Add one: claudeops channel add NAME."
SEVERITIES = {severity.label: severity.value for severity in Incident.Severity}


class Command(TerminalCommand):
    help = (
        "List, add, test, enable, disable and remove notification channels. The address is asked "
        "for or read from standard input, and never shown again."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        listed = verbs.add_parser("list")
        listed.add_argument("--json", action="store_true", help="print it as JSON")
        add = verbs.add_parser("add", help="its address is asked for, or read from standard input")
        add.add_argument("name")
        add.add_argument("--from", dest="least", choices=SEVERITIES, default="warning")
        add.add_argument(
            "--watch", action="append", default=[], help="only of this watch; may be repeated"
        )
        add.add_argument(
            "--quiet", metavar="22:00-07:00", help="send only critical ones, local time"
        )
        add.add_argument("--digest", metavar="08:00", help="time of the daily digest, local time")
        for verb in ("test", "enable", "disable"):
            verbs.add_parser(verb).add_argument("name")
        remove = verbs.add_parser("remove")
        remove.add_argument("name")
        remove.add_argument("--no-input", action="store_true", help="do not ask first")

    def handle(self, *args: Any, **options: Any) -> None:
        match options["verb"]:
            case "list" if options["json"]:
                rows = [channel_as_data(channel) for channel in Channel.objects.all()]
                self.stdout.write_json(rows, indent=2)
            case "list":
                lines = [_line(channel) for channel in Channel.objects.all()]
                self.stdout.write("\n".join(lines) or NO_CHANNEL)
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
        channel = Channel(
            name=options["name"],
            least_severity=SEVERITIES[options["least"]],
            quiet_from=begin.strip() or None,
            quiet_until=end.strip() or None,
            digest_at=options["digest"],
        )
        watches = [watch_named(name).pk for name in options["watch"]]
        if bool(begin.strip()) != bool(end.strip()):
            raise Refused(
                RefusalCode.INVALID_ARGUMENTS, "Quiet hours are written like 22:00-07:00."
            )
        _require_valid(channel)
        if objection := sending.set_address(channel, _address()):
            raise Refused(RefusalCode.INVALID_ARGUMENTS, objection)
        with installation_lock():
            _require_valid(channel)  # the name may have been taken meanwhile
            channel.save()
            channel.watches.set(Watch.objects.filter(pk__in=watches))
        self.stdout.write(f"{_line(channel)}\nTry it: claudeops channel test {channel.name}")

    def _test(self, channel: Channel) -> None:
        with waiting(self.stderr, f"Sending a test to {channel.name}"):
            answer = sending.send_test(channel)
        if not answer.ok:
            raise Refused(
                RefusalCode.NOT_DELIVERED, f"The test did not reach {channel.name}. {answer.error}"
            )
        self.stdout.write(f"The test was sent to {channel.name}.")

    def _switch(self, channel: Channel, *, enabled: bool) -> None:
        left = sending.set_enabled(channel, enabled=enabled)
        rest = "" if enabled else f" {left} waiting messages are not sent."
        self.stdout.write(f"{channel.name} is {'on' if enabled else 'off'}.{rest}")

    def _remove(self, channel: Channel, *, asked: bool) -> None:
        if asked:
            confirm_or_stop(self, f"Remove {channel.name}, its address and its messages? [y/N] ")
        sending.remove(channel)
        self.stdout.write(f"{channel.name} was removed.")


def _require_valid(channel: Channel) -> None:
    try:
        channel.full_clean(exclude=["encrypted_address"])
    except ValidationError as error:
        raise Refused(RefusalCode.INVALID_ARGUMENTS, " ".join(error.messages)) from error


def _address() -> str:
    """Read the address, which must not be in a command line: other users could read it there."""
    if sys.stdin.isatty():
        return getpass.getpass("Address (not shown): ").strip()
    return sys.stdin.readline().strip()


def _named(name: str) -> Channel:
    channel = Channel.objects.filter(name=name).first()
    if channel is None:
        names = ", ".join(Channel.objects.values_list("name", flat=True))
        raise Refused(
            RefusalCode.NOT_FOUND,
            f"There is no channel {name}. Channels: {names}." if names else NO_CHANNEL,
        )
    return channel


def channel_as_data(channel: Channel) -> dict[str, Any]:
    """Return what may be shown of a channel: its address is a secret."""
    return {
        "name": channel.name,
        "service": channel.service,
        "enabled": channel.enabled,
        "least_severity": channel.get_least_severity_display(),
        "failures_in_a_row": channel.failures_in_a_row,
        "last_error": channel.last_error or None,
    }


def _line(channel: Channel) -> str:
    state = "on" if channel.enabled else "off"
    failed = f", failed {channel.failures_in_a_row}×: {channel.last_error}"
    return (
        f"{channel.name}: {channel.service}, {state}, from {channel.get_least_severity_display()}"
        f"{failed if channel.failures_in_a_row else ''}"
    )
