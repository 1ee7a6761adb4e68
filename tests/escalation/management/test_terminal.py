"""No command writes control sequences to a terminal."""

from __future__ import annotations

import io
import json
import re
from importlib import import_module
from pkgutil import iter_modules

import pytest
from django.core.management import CommandError, call_command

from escalation.management import commands
from escalation.management.output import PlainOutput, TerminalCommand
from tests.escalation.rows import HEALTHY
from tests.factories import SessionFactory, WatchFactory
from tests.tables import each_row

HOSTILE = "\x1b]0;owned\x07 \x9b2J \u202ekcatta \x1b[1A"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@each_row("name", [module.name for module in iter_modules(commands.__path__)])
def test_every_command_writes_through_the_plain_output(name):
    command = import_module(f"escalation.management.commands.{name}").Command()

    assert isinstance(command, TerminalCommand)
    assert isinstance(command.stdout, PlainOutput)
    assert isinstance(command.stderr, PlainOutput)


def output_of(*arguments: object) -> str:
    out = io.StringIO()
    call_command(*map(str, arguments), stdout=out, stderr=out)
    return out.getvalue()


@pytest.mark.django_db
@pytest.mark.parametrize("options", [[], ["--json"]])
def test_commands_that_show_records_print_no_control_characters(options):
    session = SessionFactory(error=HOSTILE, report={"summary": HOSTILE}, request=HOSTILE)
    watch = WatchFactory(name="shop", instructions=HOSTILE)

    said = [
        output_of("session", "show", session.pk, *options),
        output_of("chain", session.pk, *options),
        output_of("watch", "show", watch.name, *options),
    ]

    assert not RAW.search("".join(said))
    assert all("202e" in text.lower() for text in said)


@pytest.mark.django_db
def test_a_foreground_run_prints_no_control_characters(fake_cli, workdir):
    watch = WatchFactory(workdir=str(workdir))
    fake_cli.then(f"init(); say({HOSTILE!r}); result({HEALTHY!r})")
    out = io.StringIO()

    with pytest.raises(SystemExit):
        call_command("run_cycle", "--watch", watch.name, stdout=out, stderr=out)

    assert "␛]0;owned" in out.getvalue()
    assert not RAW.search(out.getvalue())


@pytest.mark.django_db
def test_a_refusal_prints_no_control_characters(capsys):
    from django.core.management import execute_from_command_line

    with pytest.raises((SystemExit, CommandError)):
        execute_from_command_line(["manage.py", "watch", "show", f"lab{HOSTILE}"])

    assert not RAW.search(capsys.readouterr().err)


def test_secrets_are_redacted_and_json_stays_valid():
    out = io.StringIO()

    PlainOutput(out).write_json(
        {
            "password": 12345678,
            "text": 'token="hunter22"',
            "rows": [{"command": "docker login -u a -p b", "expect": "deny"}],
        }
    )

    assert json.loads(out.getvalue()) == {
        "password": "[redacted: password]",
        "text": 'token="[redacted: token]"',
        "rows": [{"command": "docker login -u a -p [redacted: password]", "expect": "deny"}],
    }
