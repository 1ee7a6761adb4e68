"""The rooms of this code and who may enter which: read from the imports, drawn in the documents."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain, pairwise
from pathlib import Path

import pytest

from escalation import agent

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("claudeops", "sessions_app", "escalation")

# The arrows of the graph. A room may import from itself and from every room that its arrows reach.
ENTRY_POINTS = "entry points"
ARROWS: dict[str, tuple[str, ...]] = {
    # what happened, and the pages that show it
    "models": (),
    "reading": ("models",),
    "archive": ("reading",),
    "access": ("models",),
    "pages": ("archive", "access"),
    # what to do next
    "base": (),
    "queue": ("reading",),
    "agent": ("base", "reading"),
    "gate": ("base",),
    "rooms": ("agent", "gate"),
    "gateway": ("agent",),
    "continuity": ("agent", "archive"),
    "word": ("reading",),
    "incidents": ("base", "queue", "word"),
    "policy": ("base", "word"),
    "approvals": ("base", "access", "queue", "word"),
    "next_step": ("continuity", "queue", "incidents", "policy", "approvals"),
    "run": ("next_step", "rooms", "gateway"),
    "recovery": ("run",),
    "host": ("recovery",),
    "web": ("host", "pages"),
    "rehearsal": ("web",),
    ENTRY_POINTS: ("rehearsal",),
    # wiring
    "claudeops": ("base", "access"),
}


def reached_from(room: str) -> set[str]:
    return {room}.union(*(reached_from(other) for other in ARROWS[room]))


# The modules that lie beside the rooms, and the folders that Django wants to have its own names.
PLACES = {
    "escalation.errors": "base",
    "escalation.report": "base",
    "escalation.tiers": "base",
    "escalation.admin": ENTRY_POINTS,
    "escalation.apps": ENTRY_POINTS,
    "escalation.checks": ENTRY_POINTS,
    "escalation.management": ENTRY_POINTS,
    "escalation.tasks": ENTRY_POINTS,
    "escalation.templatetags": "web",
    "escalation.urls": ENTRY_POINTS,
    "sessions_app.admin": ENTRY_POINTS,
    "sessions_app.apps": ENTRY_POINTS,
    "sessions_app.urls": "pages",
    "sessions_app.templatetags": "pages",
    "sessions_app.migrations": "models",
}


@dataclass(frozen=True, order=True)
class Import:
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"

    @property
    def rooms(self) -> tuple[str, str]:
        return room_of(self.importer), room_of(self.imported)


def room_of(module: str) -> str:
    """The room in which a module lies: its folder, unless the table of places says otherwise."""
    package, _dot, rest = module.partition(".")
    if package == "claudeops":
        return package
    name = rest.partition(".")[0]
    return PLACES.get(f"{package}.{name}", name)


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def our_modules() -> dict[str, Path]:
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {module_name(path): path for path in paths}


MODULES = our_modules()


def imports_of(module: str, source: str) -> Iterator[Import]:
    """Every import of ours, wherever it stands: in a function, for the type checker, by name."""
    for node in ast.walk(ast.parse(source)):
        for name in named_by(node, module):
            if name.partition(".")[0] in PACKAGES:
                yield Import(module, name)


def named_by(node: ast.AST, module: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        origin = ".".join(part for part in (parent_of(module, node.level), node.module) if part)
        return [f"{origin}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Call) and is_import_by_name(node):
        return [word.value for word in node.args if is_text(word)]  # type: ignore[attr-defined]
    return []


def parent_of(module: str, level: int) -> str:
    """What the dots of a relative import stand for."""
    if not level:
        return ""
    is_package = MODULES.get(module, Path()).name == "__init__.py"
    parts = module.split(".")
    return ".".join(parts[: len(parts) - level + is_package])


def is_import_by_name(call: ast.Call) -> bool:
    return ast.unparse(call.func).rpartition(".")[2] in {"import_module", "import_string"}


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


@cache
def all_imports() -> list[Import]:
    read = (imports_of(name, path.read_text()) for name, path in MODULES.items())
    return sorted(set(chain.from_iterable(read)))


def wrong_imports(room: str) -> list[str]:
    allowed = reached_from(room)
    return [
        str(found)
        for found in all_imports()
        if found.rooms[0] == room and found.rooms[1] not in allowed
    ]


def test_the_arrows_have_no_cycle():
    assert set(TopologicalSorter(ARROWS).static_order()) == set(ARROWS)


def test_every_module_lies_in_a_room():
    assert [name for name in MODULES if "." in name and room_of(name) not in ARROWS] == []


@pytest.mark.parametrize("room", ARROWS)
def test_a_room_imports_only_what_its_arrows_reach(room):
    assert wrong_imports(room) == []


def test_the_rooms_as_they_are_have_no_cycle():
    graph: dict[str, set[str]] = {}
    for importer, imported in {found.rooms for found in all_imports()}:
        if importer != imported:
            graph.setdefault(importer, set()).add(imported)

    TopologicalSorter(graph).prepare()


def test_production_never_imports_rehearsal():
    inside = {"rehearsal", ENTRY_POINTS}

    assert [
        str(found)
        for found in all_imports()
        if found.rooms[1] == "rehearsal" and found.rooms[0] not in inside
    ] == []


def test_production_does_not_name_rehearsal_in_a_text_either():
    """Only the wiring may: it names what Django loads."""
    production = {
        name: path
        for name, path in MODULES.items()
        if room_of(name) not in {"rehearsal", ENTRY_POINTS, "claudeops"}
    }

    assert [
        f"{name}: {node.value}"  # type: ignore[attr-defined]
        for name, path in production.items()
        for node in ast.walk(ast.parse(path.read_text()))
        if is_text(node) and "escalation.rehearsal" in node.value  # type: ignore[attr-defined]
    ] == []


def test_the_record_never_imports_the_escalation():
    assert [
        str(found)
        for found in all_imports()
        if found.importer.startswith("sessions_app") and found.imported.startswith("escalation")
    ] == []


def test_nobody_imports_the_wiring():
    assert [
        str(found)
        for found in all_imports()
        if found.imported.startswith("claudeops") and not found.importer.startswith("claudeops")
    ] == []


def test_no_room_imports_an_entry_point():
    assert [
        str(found)
        for found in all_imports()
        if found.rooms[1] == ENTRY_POINTS and found.rooms[0] != ENTRY_POINTS
    ] == []


# The one narrow door of the agent's room: another CLI could stand behind it.

AGENT = "escalation.agent"


def imports_into_the_agent() -> list[Import]:
    return [
        found
        for found in all_imports()
        if found.rooms[1] == "agent" and not found.importer.startswith(AGENT)
    ]


def test_the_agents_cli_is_known_by_its_public_names_alone():
    public = {f"{AGENT}.{name}" for name in agent.__all__}

    assert [str(found) for found in imports_into_the_agent() if found.imported not in public] == []


def test_every_public_name_of_the_agent_is_there_and_used():
    used = {found.imported for found in imports_into_the_agent()}

    assert [name for name in agent.__all__ if not hasattr(agent, name)] == []
    assert [name for name in agent.__all__ if f"{AGENT}.{name}" not in used] == []


# How the imports are read.

LINES = {
    "import escalation.run.runner": "escalation.run.runner",
    "from escalation.run import runner": "escalation.run.runner",
    "from escalation.run.runner import run": "escalation.run.runner.run",
    "from . import runner": "escalation.run.runner",
    "from .runner import run": "escalation.run.runner.run",
    "from ..host import pause": "escalation.host.pause",
    "def f():\n    from escalation.run import runner": "escalation.run.runner",
    "if TYPE_CHECKING:\n    from escalation.run import runner": "escalation.run.runner",
    "importlib.import_module('escalation.run.runner')": "escalation.run.runner",
}


@pytest.mark.parametrize("line", LINES)
def test_every_way_to_import_is_seen(line):
    assert list(imports_of("escalation.run.admission", line)) == [
        Import("escalation.run.admission", LINES[line])
    ]


def test_a_relative_import_of_a_package_begins_in_the_package():
    assert list(imports_of("sessions_app.models", "from .session import Session")) == [
        Import("sessions_app.models", "sessions_app.models.session.Session")
    ]


def test_what_is_not_ours_is_not_seen():
    assert list(imports_of("escalation.run.admission", "import json, django.db")) == []


# The drawing in docs/architecture.md.

DRAWING = re.compile(r"<!-- package graph -->\n(.*?)<!-- end of the package graph -->", re.DOTALL)


def drawn_arrows(text: str) -> set[tuple[str, str]]:
    """Each line of the drawing is a chain: room → room → room."""
    [drawing] = DRAWING.findall(text)
    chains = [[room.strip() for room in line.split("→")] for line in drawing.splitlines()]
    return {arrow for chain in chains for arrow in pairwise(chain)}


def test_the_drawing_shows_these_arrows_and_no_others():
    arrows = {(room, other) for room in ARROWS for other in ARROWS[room]}

    assert drawn_arrows((ROOT / "docs" / "architecture.md").read_text()) == arrows


def test_a_drawing_is_read_line_by_line():
    drawing = "    a → b → c d\n        b → e\n"
    text = f"<!-- package graph -->\n{drawing}<!-- end of the package graph -->"

    assert drawn_arrows(text) == {("a", "b"), ("b", "c d"), ("b", "e")}
