"""What sets variables or asks a question, and runs no program: what can go wrong in it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tree_sitter import Node

from escalation.gate.syntax import SUBSTITUTIONS, Syntax
from escalation.gate.variables import is_name, may_be_set, may_have, may_reach_programs
from escalation.gate.words import Problem

_COUNTS = re.compile(r"\|\s*(wc -[lcwm]|grep -c[^|;&<>`$]*)\s*\)$")
_BRACKETS = re.compile(r"\[\s.*\s\]|\[\[\s.*\s\]\]|\(\(.*\)\)", re.DOTALL)
_COMPARES_NUMBERS = {"-eq", "-ne", "-lt", "-gt", "-le", "-ge"}


def problems_of(node: Node, syntax: Syntax) -> Iterator[str]:
    try:
        if node.type == "variable_assignment":
            yield from _assignment(node, syntax)
        elif node.type == "declaration_command":
            yield from _declaration(node, syntax)
        elif node.type == "unset_command":
            yield from _unset(node, syntax)
        else:
            yield from _test(node, syntax)
    except Problem as problem:
        yield str(problem)


def problems_of_environment(assignment: Node, syntax: Syntax) -> Iterator[str]:
    """`NAME=value program`."""
    try:
        name = _assigned_name(assignment, syntax)
        if not may_reach_programs(name):
            yield f"the variable {name} is set for a program"
        yield from _value(name, assignment, syntax)
    except Problem as problem:
        yield str(problem)


def _assigned_name(node: Node, syntax: Syntax) -> str:
    name = node.child_by_field_name("name")
    text = "" if name is None else syntax.text_of(name)
    if not re.fullmatch(r"[A-Za-z_]\w*(\[\d+\])?", text, re.ASCII):
        raise Problem("an assignment that is not followed here")
    return text.split("[")[0]


def _assignment(node: Node, syntax: Syntax) -> Iterator[str]:
    syntax.check_divided(node)
    name = _assigned_name(node, syntax)
    if not may_be_set(name):
        yield f"the variable {name} is set"
    yield from _value(name, node, syntax)


def _value(name: str, node: Node, syntax: Syntax) -> Iterator[str]:
    value = node.child_by_field_name("value")
    values: tuple[str, ...] | None = ("",)
    if value is not None:
        values = None if value.type == "array" else syntax.literal(value)
    if not may_have(name, values):
        yield f"the variable {name} is set to what is no plain locale"


def _declaration(node: Node, syntax: Syntax) -> Iterator[str]:
    kind = node.children[0].type
    words = [child for child in node.named_children if child.type == "word"]
    options = [syntax.text_of(word) for word in words]
    # What cannot be changed any more stays as it is where another text seems to change it.
    if kind == "readonly" or any(not re.fullmatch(r"-[xgp]+", option) for option in options):
        yield f"such a `{kind}`"
    reaches_programs = kind == "export" or any("x" in option for option in options)
    for child in node.named_children:
        if child.type == "variable_assignment":
            yield from _assignment(child, syntax)
            name = _assigned_name(child, syntax)
        elif child.type == "variable_name":
            name = syntax.text_of(child)
        elif child.type == "word":
            continue
        else:
            raise Problem("a variable whose name is computed")
        if reaches_programs and not may_reach_programs(name):
            yield f"the variable {name} is set for a program"


def _unset(node: Node, syntax: Syntax) -> Iterator[str]:
    names = [syntax.text_of(child) for child in node.named_children]
    if not all(is_name(name) and may_be_set(name) for name in names):
        yield "such an `unset`"


def _test(node: Node, syntax: Syntax) -> Iterator[str]:
    """A number in `[[ … ]]` is arithmetic, which runs what it finds in a subscript; `[ … ]` is
    not."""
    text = syntax.text_of(node)
    if not _BRACKETS.fullmatch(text):
        raise Problem("such a condition")
    inside = list(_outside_substitutions(node))
    if any(child.type in {";", "&", "|", ";;", "|&", "\n", "command"} for child in inside):
        yield "such a condition"
    if "\n" in text and not text.startswith("[["):
        yield "such a condition"
    operators = {syntax.text_of(child) for child in inside if child.type == "test_operator"}
    if operators & {"-v", "-R"} or re.search(r"\s-[vR]\s", text):
        yield "a condition about a variable's name"
    if not text.startswith("[ ") and operators & _COMPARES_NUMBERS:
        syntax.check_arithmetic(re.sub(r"-(eq|ne|lt|gt|le|ge)\b|[\"\[\]]", " ", text), node)
    if text.startswith("(("):
        syntax.check_arithmetic(text[2:-2], node)
    if text.startswith("[ "):
        yield from _split_inside(inside, syntax)


def _split_inside(inside: list[Node], syntax: Syntax) -> Iterator[str]:
    """An unquoted text becomes words, and these may be `-v a[$(reboot)]`, which is run."""
    for node in inside:
        quoted = node.parent is not None and node.parent.type == "string"
        if node.type not in {"simple_expansion", "expansion", "command_substitution"} or quoted:
            continue
        hole = syntax.hole_at(node.start_byte)
        name = syntax.text_of(node).strip("${}")
        known = hole is not None and hole.values is not None
        if (
            not known
            and not syntax.variables.is_number(name, node.start_byte)
            and not _COUNTS.search(syntax.text_of(node))
        ):
            yield "a condition with unquoted text: put double quotes around it"


def _outside_substitutions(node: Node) -> Iterator[Node]:
    for child in node.children:
        yield child
        if child.type not in SUBSTITUTIONS:
            yield from _outside_substitutions(child)
