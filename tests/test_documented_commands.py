"""Tests that the parsers accept every command in the README and in `docs`."""

from __future__ import annotations

import re
from argparse import SUPPRESS, Action, ArgumentParser, _SubParsersAction
from importlib import import_module
from pathlib import Path

from django.core.management import CommandError, get_commands, load_command_class

from escalation.drills.scenario import scenario_names
from escalation.management.command_line import BY_NAME, COMMANDS, PLURALS, Entry, current_spelling
from escalation.management.output import MEANINGS
from tests.documents import ROOT, Command, commands_in, example_in, handbook, name_of
from tests.tables import each_row

REFERENCE = ROOT / "docs" / "commands.md"
INCOMPLETE = "the following arguments are required"


def parser_of(name: str) -> ArgumentParser:
    command = import_module(BY_NAME[name].module).Command()
    return command.create_parser("claudeops", name)


def objection_to(command: Command) -> str:
    """Return the error of the program; empty if it would run."""
    name, *words = current_spelling(command.words)
    if name in BY_NAME:
        parser = parser_of(name)
    elif command.program == "manage.py" and name in get_commands():
        parser = load_command_class(get_commands()[name], name).create_parser("manage.py", name)
    elif name in ("help", "__version"):
        return ""
    else:
        return f"{command.program} has no command {name!r}"
    try:
        given = parser.parse_args(words)
    except CommandError as refusal:
        is_beginning = command.in_a_sentence and INCOMPLETE in str(refusal)
        return "" if is_beginning else str(refusal)
    return objection_to_scenario(getattr(given, "scenario", None))


def objection_to_scenario(name: str | None) -> str:
    """Ours, one that a page of the handbook writes down, or a word in capitals for any."""
    own = {
        Path(file).stem for page in handbook() for file, _text in example_in(page.read_text()).files
    }
    is_known = not name or name.isupper() or name in {*scenario_names(), *own}
    return "" if is_known else f"there is no scenario {name!r}"


@each_row("page", handbook(), ids=name_of)
def test_every_command_of_a_page_is_accepted(page):
    wrong = {one.text: objection_to(one) for one in commands_in(page.read_text())}

    assert {text: said for text, said in wrong.items() if said} == {}


def test_every_plural_is_a_list():
    for plural, words in PLURALS.items():
        assert current_spelling([plural, "--json"]) == [*words.split(), "--json"]
        parser_of(words.split()[0]).parse_args([*words.split()[1:], "--json"])


def test_the_commands_of_the_handbook_are_found():
    found = [one for page in handbook() for one in commands_in(page.read_text())]

    assert len(found) > 80
    assert {one.words[0] for one in found if not one.in_a_sentence} >= {"watch", "drill", "backup"}


@each_row(
    ("text", "expected"),
    [
        ("    claudeops nonsense\n", "has no command 'nonsense'"),
        ("    claudeops watch ad shop /srv\n", "invalid choice: 'ad'"),
        ("    .venv/bin/claudeops status --jason\n", "unrecognized arguments: --jason"),
        ("    claudeops watch add shop\n", "arguments are required: workdir"),
        ("    claudeops run_cycle --tier 4\n", "invalid choice: 4"),
        ("    sudo -u ops env A=b /opt/bin/claudeops statu\n", "has no command 'statu'"),
        ("    manage.py migrat\n", "has no command 'migrat'"),
        ("```console\n$ claudeops drill nonsense\n```\n", "there is no scenario 'nonsense'"),
        ("say `claudeops backup --to x y`", "unrecognized arguments: --to"),
        ("    cat x | claudeops channel ad phone\n", "invalid choice: 'ad'"),
        ("    claudeops pause 'half a quote\n", "unrecognized arguments: a quote"),
        ("    claudeops watch edit shop \\\n        --nonsense\n", "unrecognized arguments"),
    ],
)
def test_an_invalid_command_is_reported(text, expected):
    [command] = commands_in(text)

    assert expected in objection_to(command)


@each_row(
    "text",
    [
        "say `claudeops approval`, or `watch unpause shop`",
        "    source <(claudeops completion bash)\n",
        "    python manage.py check --database default\n",
        "    claudeops run-cycle --watch shop   # it's a cycle\n",
        "```console\n$ claudeops status  # exit code 1\nclaudeops nonsense\n```\n",
        "```sh\nclaudeops status\n```\n```sudoers\nclaudeops ALL=(root) ALL\n```\n",
    ],
)
def test_a_valid_command_is_accepted(text):
    assert [objection_to(one) for one in commands_in(text)] == [""]


# The table of all commands.


def rows() -> dict[str, str]:
    """The row of each command, by its name."""
    lines = REFERENCE.read_text().splitlines()
    found = [(re.match(r"\| `claudeops (\w+)", line), line) for line in lines]
    return {match[1]: line for match, line in found if match}


def test_the_reference_has_every_command_with_its_exit_codes():
    shown = {name: line.rstrip("| ").rpartition("|")[2].strip() for name, line in rows().items()}

    assert shown == {entry.name: " ".join(map(str, entry.exits)) for entry in COMMANDS}


@each_row("entry", COMMANDS, ids=lambda entry: entry.name)
def test_the_row_of_a_command_has_its_verbs_and_options(entry: Entry):
    """The row may name only some options of a command with verbs."""
    outline = rows()[entry.name].split("`")[1].replace(r"\|", "|")
    parser = parser_of(entry.name)
    verbs = verbs_of(parser)
    named = set(re.findall(r"(?<![\w-])--?[a-z][a-z-]*", outline))
    known = options_of(parser).union(*map(options_of, verbs.values()))

    assert named <= known
    if not verbs:
        assert [
            action.dest for action in options(parser) if not named & set(action.option_strings)
        ] == []
    for verb in verbs:
        assert verb in re.split(r"[ |]", outline)


def verbs_of(parser: ArgumentParser) -> dict[str, ArgumentParser]:
    """The verbs of a command by name, without old spellings."""
    actions = [one for one in parser._actions if isinstance(one, _SubParsersAction)]
    by_parser = (
        {inner: name for name, inner in reversed(actions[0].choices.items())} if actions else {}
    )
    return {name: inner for inner, name in by_parser.items()}


def options(parser: ArgumentParser) -> list[Action]:
    """Return the options that the help shows."""
    return [
        action
        for action in parser._actions
        if action.option_strings and action.help != SUPPRESS and action.dest != "help"
    ]


def options_of(parser: ArgumentParser) -> set[str]:
    return {spelling for action in options(parser) for spelling in action.option_strings}


def test_the_reference_has_every_exit_code_with_its_meaning():
    text = REFERENCE.read_text()

    assert [
        row for code, said in MEANINGS.items() if (row := f"| {code} | {said} |") not in text
    ] == []
