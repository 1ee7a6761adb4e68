"""Who may know whom, read from the imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from escalation import agent
from tests.test_conventions import PACKAGES, ROOT, modules, name_of

AGENT = "escalation.agent"
REHEARSAL = "escalation.rehearsal"
# Where the program is entered: these put the rooms together.
ENTRY_POINTS = ("admin.py", "apps.py", "checks.py", "tasks.py", "urls.py", "management")


def in_room(path: Path, room: str) -> bool:
    return path.is_relative_to(ROOT / room.replace(".", "/"))


def is_entry_point(path: Path) -> bool:
    return path.is_relative_to(ROOT / "escalation") and (
        path.relative_to(ROOT / "escalation").parts[0] in ENTRY_POINTS
    )


def names_imported_by(path: Path) -> Iterator[str]:
    """With what is taken out of a module: `from escalation import agent` is `escalation.agent`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} imports by a relative path"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_of(name: str, room: str) -> bool:
    return name == room or name.startswith(f"{room}.")


OUTSIDE_AGENT = [path for path in modules(*PACKAGES) if not in_room(path, AGENT)]
OUTSIDE_REHEARSAL = [
    path for path in modules(*PACKAGES) if not in_room(path, REHEARSAL) and not is_entry_point(path)
]


@pytest.mark.parametrize("path", OUTSIDE_AGENT, ids=name_of)
def test_the_agents_cli_is_known_by_its_public_names_alone(path):
    public = {f"{AGENT}.{name}" for name in agent.__all__}

    private = [name for name in names_imported_by(path) if is_of(name, AGENT)]
    assert [name for name in private if name not in public] == []


def test_every_public_name_of_the_agent_is_there_and_used():
    used = {name for path in OUTSIDE_AGENT for name in names_imported_by(path)}

    assert [name for name in agent.__all__ if not hasattr(agent, name)] == []
    assert [name for name in agent.__all__ if f"{AGENT}.{name}" not in used] == []


@pytest.mark.parametrize("path", OUTSIDE_REHEARSAL, ids=name_of)
def test_nothing_that_acts_on_real_systems_knows_about_rehearsals(path):
    assert [name for name in names_imported_by(path) if is_of(name, REHEARSAL)] == []


@pytest.mark.parametrize(
    "path", [path for path in modules("escalation") if in_room(path, AGENT)], ids=name_of
)
def test_the_agents_room_stands_on_the_base_alone(path):
    allowed = (AGENT, "escalation.errors", "escalation.tiers", "escalation.report")
    ours = [name for name in names_imported_by(path) if is_of(name, "escalation")]

    assert [name for name in ours if not any(is_of(name, room) for room in allowed)] == []
