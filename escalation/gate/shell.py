"""A shell text, read: every simple command in it, wherever it stands.

Pipes, lists, groups, subshells, conditions, loops, functions, substitutions, here-documents: which
of them a command stands in does not matter to what it may do, except for what it reads. So a text
becomes a flat list of commands, and of problems where something could not be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import product

from tree_sitter import Node

from escalation.gate.declarations import problems_of, problems_of_environment
from escalation.gate.redirections import decoded, read_redirects
from escalation.gate.syntax import SUBSTITUTIONS, Syntax, arithmetic_in
from escalation.gate.understanding import Word
from escalation.gate.variables import is_name, may_be_set
from escalation.gate.words import MOST_ALTERNATIVES, Problem

_RESERVED = {
    *("!", "{", "}", "if", "then", "else", "elif", "fi", "for", "while", "until", "do", "done"),
    *("case", "esac", "in", "select", "function", "[[", "]]", "((", "))"),
}
_CHANGE_VARIABLES_UNSEEN = {
    *("eval", "source", "let", "mapfile", "readarray", "getopts", "trap", "declare", "typeset"),
    *("local", "export", "readonly", "unset", "-v"),
}
_BLOCKS = {"program", "compound_statement", "subshell", "do_group", "negated_command"}
_LOOPS = {
    *("if_statement", "elif_clause", "else_clause", "while_statement", "for_statement"),
    *("c_style_for_statement", "case_statement"),
}
_AROUND_WORDS = {
    *("variable_assignment", "file_redirect", "herestring_redirect", "heredoc_redirect"),
}
_ARITHMETIC_FIELDS = {"initializer", "condition", "update"}


_REPEATED = {
    *("for_statement", "c_style_for_statement", "while_statement", "function_definition"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One simple command. A loop over known values gives one for each of them."""

    words: tuple[Word, ...]
    """None at all for redirections that belong to a group, or to nothing."""
    writes: tuple[Word, ...] = ()
    """Files that its redirections write."""
    stdin: Word = ""
    """What it reads, where that is known; None where it is computed."""
    text: str = ""
    """As it is written, for the reasons that a model is given."""
    calls_function: bool = False
    position: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    commands: tuple[Command, ...] = ()
    problems: tuple[str, ...] = ()
    """Why not all of it is understood."""
    functions: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()
    """What is understood only as long as no door is open."""
    is_one_command: bool = False
    """Nothing but one simple command: no pipe, no list, no variable, no redirection to a file."""
    may_repeat: bool = False
    """A loop or a function stands in it: nobody can say how often a command runs."""


def read(text: str, *, inherits: bool = False, knows_values: bool = True) -> Script:
    """Never raises: what cannot be read is a problem of the script. `inherits`: the text runs in a
    shell whose variables another text may have set; and may still set, where it knows no values."""
    try:
        syntax = Syntax(text, inherits=inherits)
        script = _read(syntax, frozenset(), not knows_values)
        if not knows_values:
            return script
        forgotten, everything = _changed_unseen(script.commands)
        if forgotten or everything:
            script = _read(syntax, forgotten, everything)
    except Problem as problem:
        return Script(problems=(str(problem),))
    except (RecursionError, UnicodeError):
        return Script(problems=("a text that cannot be read",))
    return script


def _read(syntax: Syntax, forgotten: frozenset[str], all_forgotten: bool) -> Script:
    syntax.collect_variables(forgotten, all_forgotten)
    return _Reader(syntax).script()


def _changed_unseen(commands: Iterable[Command]) -> tuple[frozenset[str], bool]:
    """Variables that a command changes where no assignment is seen: `read x`, `eval x=1`."""
    forgotten: set[str] = set()
    for command in commands:
        words = command.words
        if _CHANGE_VARIABLES_UNSEEN.intersection(words) or "." in words[:2]:
            return frozenset(), True
        if "read" in words:
            if None in words:
                return frozenset(), True
            forgotten.update(word for word in words if word is not None and is_name(word))
    return frozenset(forgotten), False


@dataclass(slots=True)
class _Behind:
    """What the parser hangs on a statement, and bash on the last command in it."""

    redirects: list[Node] = field(default_factory=list)
    words: list[Node] = field(default_factory=list)


class _Reader:
    def __init__(self, syntax: Syntax) -> None:
        self.syntax = syntax
        self.commands: list[Command] = []
        self.problems: dict[str, None] = {}
        defined = [node for node in syntax.nodes if node.type == "function_definition"]
        self.functions = {self._function_name(node): node for node in defined}
        if len(self.functions) < len(defined):
            self._problem("a function that is defined twice")
        self.readers: dict[str, Callable[[Node, Word, _Behind], None]] = {
            "command": self._command,
            "list": self._list,
            "pipeline": self._pipeline,
            "redirected_statement": self._redirected,
            "variable_assignment": self._checked,
            "declaration_command": self._checked,
            "unset_command": self._checked,
            "test_command": self._checked,
            "function_definition": self._function,
            "case_item": self._case_item,
            "file_redirect": self._lone_redirect,
        }

    def script(self) -> Script:
        self.problems.update(dict.fromkeys(self.syntax.check()))
        self._statement(self.syntax.root, "", _Behind())
        for node in self.syntax.nodes:
            if node.type in SUBSTITUTIONS:
                self._block(node, None)
        return Script(
            commands=tuple(sorted(self.commands, key=lambda command: command.position)),
            problems=tuple(self.problems),
            functions=frozenset(self.functions),
            unseen=tuple(self.syntax.unseen),
            is_one_command=self._is_one_command(),
            may_repeat=any(node.type in _REPEATED for node in self.syntax.nodes),
        )

    def _is_one_command(self) -> bool:
        statements = [node for node in self.syntax.root.named_children if node.type != "comment"]
        kinds = [node.type for node in statements]
        if kinds == ["redirected_statement"]:
            body = statements[0].child_by_field_name("body")
            kinds = [] if body is None else [body.type]
        others = {node.type for node in self.syntax.nodes}
        computed = any("expansion" in kind or "substitution" in kind for kind in others)
        written = any(command.writes for command in self.commands)
        return (
            kinds == ["command"]
            and len(self.commands) == 1
            and not computed
            and not written
            and not others & {"variable_assignment", "heredoc_redirect", "herestring_redirect", "&"}
        )

    def _problem(self, problem: str) -> None:
        self.problems[problem] = None

    def _block(self, node: Node, stdin: Word) -> None:
        for child in node.named_children:
            self._statement(child, stdin, _Behind())

    def _statement(self, node: Node, stdin: Word, behind: _Behind) -> None:
        reader = self.readers.get(node.type)
        try:
            if reader is not None:
                reader(node, stdin, behind)
            elif node.type in _BLOCKS:
                self._redirects(behind)
                if arithmetic_in(node, self.syntax.text_of(node)) is not None:
                    return
                self._block(node, None if node.type != "program" else stdin)
            elif node.type in _LOOPS:
                self._redirects(behind)
                self._loop(node)
            elif node.type not in {"comment", "heredoc_body", "heredoc_end"}:
                raise Problem(f"a {node.type.replace('_', ' ')}")
        except Problem as problem:
            self._problem(str(problem))

    def _list(self, node: Node, stdin: Word, behind: _Behind) -> None:
        *before, last = [child for child in node.named_children if child.type != "comment"]
        for child in before:
            self._statement(child, stdin, _Behind())
        self._statement(last, stdin, behind)

    def _pipeline(self, node: Node, stdin: Word, behind: _Behind) -> None:
        elements = [child for child in node.named_children if child.type != "comment"]
        for element in elements:
            known = len(self.commands)
            last = element == elements[-1]
            self._statement(element, stdin, behind if last else _Behind())
            said = element.type in {"command", "redirected_statement"}
            stdin = output_of(self.commands[known:]) if said else None

    def _redirected(self, node: Node, stdin: Word, behind: _Behind) -> None:
        body = node.child_by_field_name("body")
        redirects = [child for child in node.children if child != body]
        mine = _Behind([*redirects, *behind.redirects], list(behind.words))
        heredocs = [child for child in redirects if child.type == "heredoc_redirect"]
        for redirect in redirects:
            if redirect.type == "file_redirect":
                mine.words.extend(redirect.children_by_field_name("destination")[1:])
        for heredoc in heredocs:
            parts = heredoc.children
            mine.words.extend(heredoc.children_by_field_name("argument"))
            mine.redirects.extend(part for part in parts if part.type.endswith("_redirect"))
        known = len(self.commands)
        if body is None:
            self._redirects(mine)
        else:
            self._statement(body, stdin, mine)
        for heredoc in heredocs:
            self._behind_heredoc(heredoc, stdin, known)

    def _behind_heredoc(self, heredoc: Node, stdin: Word, known: int) -> None:
        """The rest of the line, which the parser puts inside: `cat <<EOF | sh`."""
        for part in heredoc.named_children:
            if part.type == "pipeline" and part.children[0].type in {"|", "|&"}:
                self._pipeline(part, output_of(self.commands[known:]), _Behind())
            elif part in heredoc.children_by_field_name("right"):
                self._statement(part, stdin, _Behind())
            elif not (
                part.type.startswith("heredoc_")
                or part.type.endswith("_redirect")
                or part in heredoc.children_by_field_name("argument")
            ):
                raise Problem("what stands behind a here-document")

    def _command(self, node: Node, stdin: Word, behind: _Behind) -> None:
        assignments = [child for child in node.children if child.type == "variable_assignment"]
        redirects = [child for child in node.children if child.type.endswith("_redirect")]
        spare = [
            word
            for redirect in redirects
            if redirect.type == "file_redirect"
            for word in redirect.children_by_field_name("destination")[1:]
        ]
        own = [child for child in node.children if child.type not in _AROUND_WORDS]
        word_nodes = sorted([*own, *spare, *behind.words], key=lambda word: word.start_byte)
        for assignment in assignments:
            self.syntax.check_divided(assignment)
            for problem in problems_of_environment(assignment, self.syntax):
                self._problem(problem)
        writes, stdin = read_redirects([*redirects, *behind.redirects], self.syntax, stdin)
        words = self._alternatives(word_nodes)
        text = self.syntax.text_of(node).encode("latin-1").decode(errors="replace")
        for some in words:
            self._add(Command(words=some, writes=writes, stdin=stdin, text=text), node)

    def _add(self, command: Command, node: Node) -> None:
        words = command.words
        if not words:
            raise Problem("a command whose name is computed")
        name = words[0]
        if name in _RESERVED or (name is not None and re.match(r"[A-Za-z_]\w*(\[.*\])?\+?=", name)):
            raise Problem(f"`{name}` in the place of a program")
        calls = False
        if name in self.functions:
            defined = self.functions[name]
            after = defined.end_byte <= node.start_byte or (
                defined.start_byte < node.start_byte < defined.end_byte
            )
            if not after or defined.parent is None or defined.parent.type != "program":
                raise Problem(f"the function `{name}` where it may not be known yet")
            calls = True
        self.commands.append(replace(command, calls_function=calls, position=node.start_byte))

    def _alternatives(self, nodes: list[Node]) -> list[tuple[Word, ...]]:
        """Every command that the words may be, or one with None where these would be too many."""
        for node in nodes:
            self.syntax.check_divided(node)
        each = [self.syntax.alternatives(node) for node in nodes]
        count = 1
        for some in each:
            count *= len(some)
        if count > MOST_ALTERNATIVES:
            each = [some if len(some) == 1 else [(None,)] for some in each]
        return [
            tuple(decoded(field) for fields in choice for field in fields)
            for choice in product(*each)
        ]

    def _redirects(self, behind: _Behind, stdin: Word = "") -> None:
        """Of a statement that is no simple command: its files belong to it as a whole."""
        writes, _ = read_redirects(behind.redirects, self.syntax, stdin)
        if behind.words:
            raise Problem("words behind a group of commands")
        if writes:
            position = behind.redirects[0].start_byte
            self.commands.append(Command(words=(), writes=writes, position=position))

    def _lone_redirect(self, node: Node, stdin: Word, behind: _Behind) -> None:
        """`> file` and `$(< file)`: no command, but a file that is written or read."""
        self._redirects(_Behind([node, *behind.redirects]))

    def _loop(self, node: Node) -> None:
        """Conditions, loops and cases: the statements in them, and the words that they go over."""
        in_head = _ARITHMETIC_FIELDS if node.type == "c_style_for_statement" else set()
        for index, child in enumerate(node.children):
            name = node.field_name_for_child(index)
            if name == "value":
                self.syntax.alternatives(child)
            elif name == "variable":
                self._check_loop_variable(self.syntax.text_of(child))
            elif child.is_named and name not in in_head:
                self._statement(child, None, _Behind())

    def _check_loop_variable(self, name: str) -> None:
        if not may_be_set(name):
            self._problem(f"the variable {name} is set")

    def _case_item(self, node: Node, stdin: Word, behind: _Behind) -> None:
        for index, child in enumerate(node.children):
            if node.field_name_for_child(index) == "value":
                self.syntax.alternatives(child)
            elif child.is_named:
                self._statement(child, None, _Behind())

    def _function(self, node: Node, stdin: Word, behind: _Behind) -> None:
        self._redirects(_Behind([child for child in node.children if "redirect" in child.type]))
        name, body = self._function_name(node), node.child_by_field_name("body")
        if not re.fullmatch(r"[A-Za-z_][\w-]*", name) or body is None:
            raise Problem("a function with such a name")
        self._statement(body, None, behind)

    def _function_name(self, node: Node) -> str:
        name = node.child_by_field_name("name")
        return "" if name is None else self.syntax.text_of(name)

    def _checked(self, node: Node, stdin: Word, behind: _Behind) -> None:
        """What sets variables or asks a question, and runs no program."""
        self._redirects(behind)
        for problem in problems_of(node, self.syntax):
            self._problem(problem)


def output_of(commands: list[Command]) -> Word:
    """What the next command of a pipe reads, where the one before only says it."""
    if len(commands) != 1 or commands[0].calls_function:
        return None
    if not commands[0].words or None in commands[0].words or commands[0].writes:
        return None
    name, *arguments = (word or "" for word in commands[0].words)
    said = " ".join(arguments)
    if name == "echo" and not said.startswith("-") and "\\" not in said:
        return said + "\n"
    if name == "printf" and len(arguments) == 1 and not set(said) & set("%\\-"):
        return said
    if name == "printf" and len(arguments) == 2 and arguments[0] in {"%s", "%s\\n"}:
        return arguments[1] + ("\n" if arguments[0] != "%s" else "")
    if name == "cat" and not arguments:
        return commands[0].stdin
    return None
