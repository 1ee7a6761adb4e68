from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from escalation.management import commands
from escalation.management.command_table import BY_NAME, COMMANDS, GROUPS, in_group
from escalation.management.exit_codes import MEANINGS

ROOT = Path(__file__).resolve().parents[3]
MODULES = [module.name for module in iter_modules(commands.__path__)]


def test_every_command_of_ours_has_a_group_and_none_is_only_in_the_table():
    assert sorted(BY_NAME) == sorted(MODULES)


def test_no_command_stands_twice():
    assert len(BY_NAME) == len(COMMANDS)


def test_every_group_is_known_and_none_is_empty():
    assert {entry.group for entry in COMMANDS} == set(GROUPS)
    assert all(in_group(group) for group in GROUPS)


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_summary_fits_on_a_line_and_every_exit_code_has_a_meaning(entry):
    assert 10 < len(entry.summary) < 70
    assert set(entry.exits) <= set(MEANINGS)
    assert {0, 2} <= set(entry.exits)


@pytest.mark.parametrize("name", MODULES)
def test_the_help_of_a_command_shows_nothing_of_djangos(name):
    command = import_module(f"escalation.management.commands.{name}").Command()

    shown = command.create_parser("claudeops", name).format_help()

    assert shown.startswith(f"usage: claudeops {name}")
    for option in ("--settings", "--pythonpath", "--traceback", "--verbosity", "--skip-checks"):
        assert option not in shown


def rows_of_the_readme() -> dict[str, str]:
    """The exit codes that the README gives each command: the last cell of its row."""
    lines = (ROOT / "README.md").read_text().splitlines()
    rows = [re.match(r"\| `claudeops (\w+)", line) for line in lines]
    return {
        found[1]: line.rstrip("| ").rpartition("|")[2].strip()
        for found, line in zip(rows, lines, strict=True)
        if found
    }


def test_the_readme_has_every_command_with_its_exit_codes():
    expected = {entry.name: " ".join(map(str, entry.exits)) for entry in COMMANDS}

    assert rows_of_the_readme() == expected
