"""The rooms of the record: models <- archive and reading <- pages, and no way back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

APP = Path(__file__).resolve().parents[2] / "sessions_app"
ROOMS = ("models", "access", "archive", "reading", "pages")
MAY_IMPORT = {
    "models": set[str](),
    "access": {"models"},
    # Text is made storable and showable in one place, so the archive may read.
    "archive": {"models", "reading"},
    "reading": {"models"},
    "pages": {"models", "reading", "archive", "access"},
}


def name_of(path: Path) -> str:
    parts = path.relative_to(APP.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in APP.rglob("*.py") if "migrations" not in path.parts}


def imports_when_run(tree: ast.AST) -> Iterator[str]:
    """The names behind every import, except those that only a type checker follows."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        yield from imports_when_run(node)


def imported_by(module: str) -> set[str]:
    """The modules of this app that a module needs: the longest name that is one."""
    found = set()
    for name in imports_when_run(ast.parse(MODULES[module].read_text())):
        target = name if name in MODULES else name.rpartition(".")[0]
        if target in MODULES and target != module:
            found.add(target)
    return found


def room_of(module: str) -> str:
    return module.split(".")[1] if module.count(".") else ""


def test_the_rooms_are_those_that_are_on_disk():
    packages = {path.parent.name for path in APP.glob("*/__init__.py")}

    assert packages - {"admin", "migrations", "templatetags"} == set(ROOMS)


def test_the_imports_are_found():
    """Without this, a reader that finds nothing would keep every rule."""
    assert "sessions_app.reading.chain" in imported_by("sessions_app.pages.dashboard")
    assert "sessions_app.reading.formatting" in imported_by("sessions_app.templatetags.ops_format")


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in ROOMS])
def test_a_room_imports_only_what_is_below_it(module):
    room = room_of(module)
    others = {room_of(name) for name in imported_by(module)} - {room}

    assert others <= MAY_IMPORT[room]


def test_the_actor_needs_no_page():
    """What may be done with a session is known to the models; pages only offer it."""
    actor = [path for path in (APP.parent / "escalation").rglob("*.py") if "web" not in path.parts]
    named = {path.name: path.read_text() for path in actor}

    assert [name for name, text in named.items() if "sessions_app.pages" in text] == []


def test_no_module_needs_itself_by_a_detour():
    order = TopologicalSorter({module: imported_by(module) for module in MODULES})

    assert set(order.static_order()) == set(MODULES)


def test_the_rooms_have_an_order():
    assert list(TopologicalSorter(MAY_IMPORT).static_order())[-1] == "pages"
