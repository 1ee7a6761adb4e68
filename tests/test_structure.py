"""The package graph: read from the imports, and drawn in docs/architecture.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from itertools import chain, pairwise
from pathlib import Path

from tests.tables import each_row

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("claudeops", "sessions_app", "escalation")

# A package may import from itself and from every package that its arrows reach.
ENTRY_POINTS = "entry points"
ARROWS: dict[str, tuple[str, ...]] = {
    # the record
    "facts": (),
    "models": ("facts",),
    "redaction": ("models",),
    "text": ("redaction",),
    "history": ("text",),
    "costs": ("history",),
    "archive": ("text",),
    "access": ("models",),
    # the engine
    "base": ("facts",),
    "agent": ("base", "text"),
    "command_policy": ("base", "models"),
    "sandbox": ("agent", "command_policy"),
    "queue": ("redaction",),
    "notifications": ("text",),
    "incidents": ("base", "queue", "notifications", "history"),
    "supervisor": ("incidents", "agent", "costs", "access", "command_policy"),
    "resume": ("agent", "archive", "history"),
    "run": ("supervisor", "resume", "sandbox"),
    "probes": ("supervisor", "sandbox"),
    "alerts": ("supervisor",),
    "worker": ("run", "probes", "alerts"),
    "configuration": ("worker",),
    "drills": ("run", "probes", "alerts"),
    "sandbox.proof": ("worker", "drills"),
    "web": ("configuration", "drills"),
    ENTRY_POINTS: ("web", "sandbox.proof"),
    # wiring
    "claudeops": ("base", "access"),
}

# Modules beside the packages, and folders whose names Django prescribes.
PACKAGE_OF = {
    "escalation.errors": "base",
    "escalation.report": "base",
    "escalation.tiers": "base",
    "escalation.admin": ENTRY_POINTS,
    "escalation.api": ENTRY_POINTS,
    "escalation.apps": ENTRY_POINTS,
    "escalation.checks": ENTRY_POINTS,
    "escalation.management": ENTRY_POINTS,
    "escalation.tasks": ENTRY_POINTS,
    "escalation.templatetags": "web",
    "escalation.sandbox.proof": "sandbox.proof",
    "sessions_app.apps": "models",
    "sessions_app.credentials": "facts",
    "sessions_app.grants": "facts",
    "sessions_app.migrations": "models",
    "sessions_app.tiers": "facts",
}


@dataclass(frozen=True, order=True)
class Import:
    importer: str
    imported: str

    def __str__(self) -> str:
        return f"{self.importer} imports {self.imported}"

    @property
    def packages(self) -> tuple[str, str]:
        return package_of(self.importer), package_of(self.imported)


def package_of(module: str) -> str:
    """Return the node of the graph that a module belongs to."""
    parts = module.split(".")
    for length in (3, 2):
        if (name := ".".join(parts[:length])) in PACKAGE_OF:
            return PACKAGE_OF[name]
    return parts[0] if parts[0] == "claudeops" or len(parts) == 1 else parts[1]


def reached_from(package: str) -> set[str]:
    return {package}.union(*(reached_from(other) for other in ARROWS[package]))


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    module_name(path): path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}


def imports_of(module: str, source: str) -> Iterator[Import]:
    """Yield every import of our own modules: at the top, in a function, for types, by name."""
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
    """Return the package that the dots of a relative import stand for."""
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


def test_arrows_have_no_cycle():
    assert set(TopologicalSorter(ARROWS).static_order()) == set(ARROWS)


def test_every_module_belongs_to_a_package():
    assert [name for name in MODULES if "." in name and package_of(name) not in ARROWS] == []


def test_packages_import_only_what_their_arrows_reach():
    assert [
        str(found)
        for found in all_imports()
        if found.packages[1] not in reached_from(found.packages[0])
        and not (found.packages[1] in PACKAGES and found.imported == found.packages[1])
    ] == []


def test_record_does_not_import_the_engine():
    assert [
        str(found)
        for found in all_imports()
        if found.importer.startswith("sessions_app") and found.imported.startswith("escalation")
    ] == []


def test_nothing_imports_the_wiring():
    assert [
        str(found)
        for found in all_imports()
        if found.imported.startswith("claudeops") and not found.importer.startswith("claudeops")
    ] == []


# How the imports are read.

LINES = {
    "import escalation.run.runner": "escalation.run.runner",
    "from escalation.run import runner": "escalation.run.runner",
    "from escalation.run.runner import run": "escalation.run.runner.run",
    "from . import runner": "escalation.run.runner",
    "from .runner import run": "escalation.run.runner.run",
    "from ..worker import health": "escalation.worker.health",
    "def f():\n    from escalation.run import runner": "escalation.run.runner",
    "if TYPE_CHECKING:\n    from escalation.run import runner": "escalation.run.runner",
    "importlib.import_module('escalation.run.runner')": "escalation.run.runner",
}


@each_row("line", LINES)
def test_every_form_of_import_is_read(line):
    assert list(imports_of("escalation.run.plan", line)) == [
        Import("escalation.run.plan", LINES[line])
    ]


def test_relative_import_in_a_package_starts_in_the_package():
    assert list(imports_of("sessions_app.models", "from .session import Session")) == [
        Import("sessions_app.models", "sessions_app.models.session.Session")
    ]


def test_imports_of_libraries_are_left_out():
    assert list(imports_of("escalation.run.plan", "import json, django.db")) == []


# The drawing in docs/architecture.md.

DRAWING = re.compile(r"<!-- package graph -->\n(.*?)<!-- end of the package graph -->", re.DOTALL)


def drawn_arrows(text: str) -> set[tuple[str, str]]:
    """Return the arrows of a drawing, each line of which is a chain: a → b → c."""
    [drawing] = DRAWING.findall(text)
    chains = [[name.strip() for name in line.split("→")] for line in drawing.splitlines()]
    return {arrow for chain in chains for arrow in pairwise(chain)}


def test_drawing_shows_exactly_these_arrows():
    arrows = {(package, other) for package in ARROWS for other in ARROWS[package]}

    assert drawn_arrows((ROOT / "docs" / "architecture.md").read_text()) == arrows


def test_drawing_is_read_line_by_line():
    drawing = "    a → b → c d\n        b → e\n"
    text = f"<!-- package graph -->\n{drawing}<!-- end of the package graph -->"

    assert drawn_arrows(text) == {("a", "b"), ("b", "c d"), ("b", "e")}
