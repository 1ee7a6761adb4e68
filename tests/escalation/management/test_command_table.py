from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from escalation.management import commands
from escalation.management.command_line import BY_NAME, COMMANDS, GROUPS, in_group
from escalation.management.output import MEANINGS
from tests.devtools.management import commands as dev_commands
from tests.tables import each_row

MODULES = [
    module.name for path in (commands, dev_commands) for module in iter_modules(path.__path__)
]


def test_the_table_contains_exactly_our_commands():
    assert sorted(BY_NAME) == sorted(MODULES)


def test_no_command_is_listed_twice():
    assert len(BY_NAME) == len(COMMANDS)


def test_every_group_is_known_and_none_is_empty():
    assert {entry.group for entry in COMMANDS} == set(GROUPS)
    assert all(in_group(group) for group in GROUPS)


@each_row("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_summary_fits_on_a_line_and_every_exit_code_has_a_meaning(entry):
    assert 10 < len(entry.summary) < 70
    assert set(entry.exits) <= set(MEANINGS)
    assert {0, 2} <= set(entry.exits)


@each_row("name", MODULES)
def test_the_help_of_a_command_hides_options_of_django(name):
    command = import_module(BY_NAME[name].module).Command()

    shown = command.create_parser("claudeops", name).format_help()

    assert shown.startswith(f"usage: claudeops {name}")
    for option in ("--settings", "--pythonpath", "--traceback", "--verbosity", "--skip-checks"):
        assert option not in shown
