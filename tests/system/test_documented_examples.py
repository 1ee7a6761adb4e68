"""The examples of the handbook, typed as printed, in one scratch installation for each page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import Example, Typed, example_in, handbook, name_of
from tests.system.conftest import PROJECT, Installation
from tests.tables import each_row

ANYTHING = "…"
LONGEST_SECONDS = 100
# Their examples take hosts, a service manager or a proxy, and are tried where those are.
TRIED_ELSEWHERE = {
    "README.md": "tests/system/test_up.py",
    "docs/architecture.md": "tests/test_structure.py",
    "docs/deploy/README.md": "tests/system/test_proxy.py",
    "docs/hosts.md": "tests/system/test_three_hosts.py",
    "docs/mcp.md": "tests/real_cli/test_mcp.py",
    "docs/metrics.md": "tests/escalation/web/test_metrics.py",
    "docs/scale.md": "tests/measure_record.py",
    "docs/telemetry.md": "tests/real_cli/test_telemetry.py",
}
# A newcomer has set nothing.
NOT_A_NEWCOMERS = (
    *("CLAUDEOPS_WORKDIR", "CLAUDEOPS_MAX_TIER", "CLAUDEOPS_DRY_RUN", "CLAUDEOPS_REQUIRE_APPROVAL"),
)
EXAMPLES = {name_of(page): example_in(page.read_text()) for page in handbook()}
TYPED = {name: example for name, example in EXAMPLES.items() if example.typed}


def test_every_page_has_an_example():
    without = EXAMPLES.keys() - TYPED.keys()

    assert without <= TRIED_ELSEWHERE.keys()
    assert all((PROJECT / test).is_file() for test in TRIED_ELSEWHERE.values())


@pytest.fixture
def terminal(migrated: Installation, tmp_path: Path) -> Installation:
    """A person's, in an empty directory with the settings' file in it."""
    here = tmp_path / "here"
    (here / "bin").mkdir(parents=True)
    program = here / "bin" / "claudeops"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m escalation.management "$@"\n')
    program.chmod(0o755)
    (here / ".env").touch(0o600)
    for name in NOT_A_NEWCOMERS:
        del migrated.environment[name]
    migrated.environment |= {
        "PATH": f"{program.parent}{os.pathsep}{migrated.environment['PATH']}",
        "PYTHONPATH": str(PROJECT),
        "CLAUDEOPS_ENV_FILE": str(here / ".env"),
    }
    return migrated


def here(terminal: Installation) -> Path:
    return Path(terminal.environment["CLAUDEOPS_ENV_FILE"]).parent


def write_files(example: Example, directory: Path) -> None:
    for name, content in example.files:
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)


def type_it(typed: Typed, terminal: Installation) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/bash", "-c", typed.line],
        cwd=here(terminal),
        env=terminal.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LONGEST_SECONDS,
        check=False,
    )


def is_as_shown(printed: str, shown: tuple[str, ...]) -> bool:
    """All of it in that order, with anything where an ellipsis stands; nothing shown asks nothing.

    How wide a table's columns are is not the example's to say.
    """
    lines = [".*".join(map(_words, line.split(ANYTHING))) for line in shown]
    return not shown or re.search(r"\s*".join(lines), printed, re.DOTALL) is not None


def _words(text: str) -> str:
    inner = r"\s+".join(map(re.escape, text.split()))
    return f"{_space(text[:1])}{inner}{_space(text[-1:])}"


def _space(edge: str) -> str:
    return r"\s*" if edge.isspace() else ""


@pytest.mark.parametrize("name", TYPED)
def test_the_examples_of_a_page_print_what_it_shows(name, terminal):
    write_files(TYPED[name], here(terminal))
    went_otherwise = []

    for typed in TYPED[name].typed:
        done = type_it(typed, terminal)
        if done.returncode != typed.exit_code or not is_as_shown(done.stdout, typed.printed):
            went_otherwise.append(f"$ {typed.line}\n{done.stdout}(exit code {done.returncode})")

    assert "\n".join(went_otherwise) == ""


@each_row(
    ("shown", "fits"),
    [
        ((), True),
        (("sandbox …",), True),
        (("sandbox bubblewrap 0.8",), True),
        (("…", "key proxy"), True),
        (("verdict …", "key proxy"), True),
        (("key proxy", "sandbox …"), False),
        (("verdict …", "login …"), False),
        (("sandbox", "key …"), False),
        (("sandbox.bubblewrap",), False),
    ],
)
def test_shown_lines_are_compared_with_printed_lines(shown, fits):
    printed = "verdict     ready\nsandbox     bubblewrap 0.8\nkey         proxy\n"

    assert is_as_shown(printed, shown) is fits


def test_an_example_is_parsed_into_files_and_commands():
    text = "\n".join(
        (
            *("```toml a/mine.toml", "title = 'x'", "```", ""),
            *("```console", "$ claudeops restore x  # exit code 2", "no …"),
            *("$ claudeops watch add shop . \\", "    --every 5", "```", ""),
            *("```sh", "$ not typed", "```", ""),
        )
    )

    assert example_in(text) == Example(
        files=(("a/mine.toml", "title = 'x'\n"),),
        typed=(
            Typed("claudeops restore x  # exit code 2", ("no …",), 2),
            Typed("claudeops watch add shop .  --every 5", (), 0),
        ),
    )
