"""The conventions of this code, read from the code itself."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from tests.tables import each_row

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("claudeops", "escalation", "sessions_app")


def modules(*packages: str) -> list[Path]:
    return [
        path
        for package in packages
        for path in sorted((ROOT / package).rglob("*.py"))
        if "migrations" not in path.parts
    ]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def called(node: ast.Call) -> str:
    """The name of what is called, without what it is an attribute of."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def imported_by(path: Path) -> Iterator[str]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Call) and called(node).endswith("import_module"):
            yield ast.unparse(node.args[0]).strip("'\"")


def test_no_module_imports_from_the_tests():
    assert [
        f"{name_of(path)}: {name}"
        for path in modules(*PACKAGES)
        for name in imported_by(path)
        if name.split(".")[0] == "tests"
    ] == []


def test_every_function_has_a_return_annotation():
    assert [
        f"{name_of(path)}: {node.name}"
        for path in modules(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is None
    ] == []


QUESTION_WORDS = {
    *("what", "how", "whether", "where", "which", "who", "whose", "whom", "why", "when"),
    *("does", "is", "are", "may", "can"),
}


def test_docstrings_begin_with_a_verb_or_a_noun():
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

    assert [
        f"{name_of(path)}: {text.splitlines()[0]}"
        for path in modules(*PACKAGES)
        for node in ast.walk(tree_of(path))
        if isinstance(node, documented) and (text := ast.get_docstring(node))
        if text.split()[0].strip(".,:`").lower() in QUESTION_WORDS
    ] == []


COMMANDS = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package / "management" / "commands").glob("[a-z]*.py"))
]


def test_the_commands_are_found():
    assert {"chain", "drill", "run_cycle", "up", "watch"} <= {path.stem for path in COMMANDS}


def commands_called_by(path: Path) -> Iterator[str]:
    """Names of commands that really run: given to `call_command`, to a `manage.py` of its own, or
    to a helper of the same file that hands them on."""
    tree = tree_of(path)
    callers = {"call_command", "manage", *_helpers_of(tree)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if called(node) in callers:
            yield from _words_of(node.args[0])


def _helpers_of(tree: ast.Module) -> set[str]:
    """Functions that hand all that they are given on: `call_command(*arguments)`."""
    return {
        function.name
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.args.vararg
        for call in ast.walk(function)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func) == "call_command"
        and ast.unparse(call.args[0]) == f"*{function.args.vararg.arg}"
    }


def _words_of(node: ast.expr) -> Iterator[str]:
    """The text itself, or the first of the texts that are unpacked: `*("watch", "add", …)`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.Starred) and isinstance(node.value, ast.Tuple):
        yield from _words_of(node.value.elts[0])


def test_text_that_is_not_a_call_is_not_counted(tmp_path):
    source = tmp_path / "test_it.py"
    source.write_text(
        "def said(*words): call_command(*words)\n"
        "def test_it():\n"
        "    assert session.continued_by == 'resume'\n"
        "    print('worker')\n"
        "    said('pause', 'x')\n"
        "    call_command('clean')\n"
        "    installation.manage('up')\n"
    )

    assert set(commands_called_by(source)) == {"pause", "clean", "up"}


def test_every_command_has_a_test():
    others = [path for path in modules("tests") if path != Path(__file__)]
    called = {name for path in others for name in commands_called_by(path)}

    assert [command.stem for command in COMMANDS if command.stem not in called] == []


@each_row("path", sorted((ROOT / "prompts").glob("*")), ids=name_of)
def test_no_prompt_mentions_a_handoff(path):
    assert not re.search(r"hand.?off", path.read_text(), re.IGNORECASE)


@pytest.mark.django_db
def test_no_migration_is_missing():
    call_command("makemigrations", "--check", "--dry-run", stdout=StringIO())


@pytest.mark.django_db
def test_a_migration_of_labels_alone_changes_no_column():
    """Its operations do not reach the database, so a change of a column in it would be lost."""
    executor, name = MigrationExecutor(connection), "0026_labels"
    before = executor.loader.project_state(("sessions_app", name), at_end=False).apps
    after = executor.loader.project_state(("sessions_app", name)).apps
    editor: Any = connection.schema_editor()
    altered = [
        f"{model._meta.model_name}.{field.name}"
        for model in after.get_app_config("sessions_app").get_models()
        for field in model._meta.local_fields
        if editor._field_should_be_altered(
            before.get_model(model._meta.label)._meta.get_field(field.name), field
        )
    ]

    assert altered == []


def test_every_path_in_contributing_exists():
    guide = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"[ (`]((?:\w[\w-]*/)+[\w.-]*)", guide))
    places = {name for name in named if not re.search(r"NAME|roleN", name)}

    assert len(places) > 20
    assert {name for name in places if not found_in_a_package(name)} == set()


def found_in_a_package(name: str) -> bool:
    """From the root, or from a package that the sentence is about."""
    return any((ROOT / package / name).exists() for package in ("", "escalation"))


# The tests themselves.

TEST_FILES = [path for path in modules("tests") if path.name.startswith("test_")]


@cache
def functions_of(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = tree_of(path)
    return [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def without_inner_functions(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from without_inner_functions(child)


def test_no_test_is_skipped():
    marks = re.compile(r"@pytest\.mark\.(skip|xfail)|pytest\.(skip|xfail|importorskip)\(")
    tests = [path for path in modules("tests") if path != Path(__file__)]

    assert [name_of(path) for path in tests if marks.search(path.read_text())] == []


def test_no_test_returns_before_its_end():
    """A `return` is a skip that nobody is told about."""
    assert [
        f"{name_of(path)}::{function.name}"
        for path in TEST_FILES
        for function in functions_of(path)
        if function.name.startswith("test_")
        and any(isinstance(node, ast.Return) for node in without_inner_functions(function))
    ] == []


def test_no_two_tests_of_a_file_have_the_same_name():
    """The later one would silently take the place of the earlier."""
    assert [
        f"{name_of(path)}::{name}"
        for path in TEST_FILES
        for name, times in Counter(function.name for function in functions_of(path)).items()
        if times > 1
    ] == []


def test_no_function_of_a_test_file_is_never_run():
    """A helper is used in its file, a fixture is decorated, and all else begins with `test_`."""
    assert [
        f"{name_of(path)}::{function.name}"
        for path in TEST_FILES
        for function in functions_of(path)
        if not function.name.startswith("test_")
        and not function.decorator_list
        and len(re.findall(rf"\b{function.name}\b", path.read_text())) == 1
    ] == []


def test_every_variable_begins_with_claudeops():
    read = set(
        re.findall(r"env\.\w+\(\s*\"([A-Z_]+)\"", (ROOT / "claudeops" / "settings.py").read_text())
    )

    foreign = {name for name in read if not name.startswith("CLAUDEOPS_")}
    assert len(read) > 20
    collector = {name for name in foreign if name.startswith("OTEL_EXPORTER_OTLP_")}
    assert foreign - collector <= {"DATABASE_URL", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"}
