"""The parsed text: its tree, held against the text itself, and what can be looked up in it.

The parser is forgiving where bash is not: it takes other characters for blanks, and joins or parts
words at broken lines. Each place where the two could read different commands is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from escalation.gate.variables import Variables, names_in_arithmetic, sure_range
from escalation.gate.words import Hole, Problem, alternatives, literal

LONGEST_TEXT = 64 * 1024
_DEEPEST_NESTING = 40
_MOST_NODES = 8_000

_LANGUAGE = Language(tree_sitter_bash.language())
# The grammar looks characters up in a table for single bytes: one far outside of it, after a brace,
# ends the process. Bash gives none of them a meaning, so the parser sees another that has none.
_MEANINGLESS = bytes.maketrans(bytes(range(0x80, 0x100)), b"\x01" * 0x80)
SUBSTITUTIONS = {"command_substitution", "process_substitution"}
_EXPANSIONS = {"simple_expansion", "expansion", "arithmetic_expansion", *SUBSTITUTIONS}
_VERBATIM = {"raw_string", "ansi_c_string", "comment", "heredoc_body", "heredoc_content"}
_GAPS_ARE_TEXT = {"string", "heredoc_body", "expansion", "translated_string"}

_GAP = re.compile(r"[ \t\n]*(?:(?<=[ \t\n])\\\n[ \t\n]*|\\\n[ \t]+)*")
_GAP_IN_LINE = re.compile(r"[ \t]*(?:(?<=[ \t])\\\n[ \t]*|\\\n[ \t]+)*")
_ON_ONE_LINE = {
    *("command", "command_name", "concatenation", "redirected_statement", "file_redirect"),
    *("herestring_redirect", "declaration_command", "unset_command", "variable_assignment"),
    *("variable_assignments", "negated_command"),
}
_HIDDEN_EXPANSION = re.compile(r"(?<!\\)(?:\\\\)*(?:\$[({\[]|`)|[<>]\(")
_SEPARATORS = {"", " ", "\t", "\n", ";", "&", "|", "(", ")", "<", ">", "`"}
_RESERVED_MARKS = {
    *(("!", "negated_command"), ("{", "compound_statement"), ("}", "compound_statement")),
    *(("[[", "test_command"), ("]]", "test_command")),
}
_WORDS_OF_ARGUMENTS = {"command", "concatenation", "array", "expansion"}
_LEAVES = {
    "file_descriptor": re.compile(r"\d{1,3}"),
    "variable_name": re.compile(r"\w+", re.ASCII),
    "special_variable_name": re.compile(r"[@*#?$!_0-]"),
    "test_operator": re.compile(r"-[a-zA-Z]{1,2}"),
}
_PLAIN = re.compile(r"\$\{([A-Za-z_]\w*)\}", re.ASCII)
_HARMLESS_EXPANSION = re.compile(
    r"\$\{(?:#?\w+|#?[A-Za-z_]\w*\[(?:[@*]|\d+)\]|[#?$!@*]"
    r"|\w+(?:\[[@*]\])?(?:(?::?[-+?]|%%?|##?|//?#?%?|\^\^?|,,?)[^{}'\"`$\\()]*|:\d+(?::\d+)?))\}",
    re.ASCII,
)


class Syntax:
    """One text, parsed. Raises a `Problem` where it cannot be taken for what it seems."""

    def __init__(self, text: str, *, inherits: bool = False) -> None:
        encoded = text.encode()
        if len(encoded) > LONGEST_TEXT:
            raise Problem("a text of this length")
        if _nesting(text) > _DEEPEST_NESTING:
            raise Problem("a text that is nested so deeply")
        # One character for each byte: positions of the parser are positions in the text.
        self.source = encoded.decode("latin-1")
        self.root = Parser(_LANGUAGE).parse(encoded.translate(_MEANINGLESS)).root_node
        if self.root.descendant_count > _MOST_NODES:
            raise Problem("a text of this length")
        if self.root.has_error:
            raise Problem("a text that is not plainly bash")
        self.nodes = list(_descendants(self.root))
        self._expansion_at = {_begin_of(node): node for node in self.nodes if _is_expansion(node)}
        self.inherits = inherits
        self.variables = Variables(inherits=inherits)
        self.unseen: dict[str, None] = {}
        """What is understood only as long as no door is open."""

    def text_of(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte]

    def check(self) -> Iterator[str]:
        """What is wrong with the text, apart from its commands."""
        around = self.source[: self.root.start_byte], self.source[self.root.end_byte :]
        if not all(map(_GAP.fullmatch, around)):
            yield "words that are not clearly divided"
        for node in self.nodes:
            try:
                self._check_gaps(node)
                self._check_leaf(node)
                self._check_expansion(node)
            except Problem as problem:
                yield str(problem)

    def _check_gaps(self, node: Node) -> None:
        if not node.children or node.type in _GAPS_ARE_TEXT:
            return
        allowed = _GAP_IN_LINE if node.type in _ON_ONE_LINE else _GAP
        position = node.start_byte
        for child in node.children:
            gap = self.source[position : child.start_byte]
            if gap and not allowed.fullmatch(gap):
                raise Problem("words that are not clearly divided")
            position = child.end_byte
        if position < node.end_byte and not _GAP.fullmatch(self.source[position : node.end_byte]):
            raise Problem("words that are not clearly divided")
        if node.type in _ON_ONE_LINE and any(child.type == "comment" for child in node.children):
            raise Problem("a comment inside a command")

    def check_divided(self, node: Node) -> None:
        """A word ends where bash would end it, not in the middle of a longer one."""
        before = self.source[max(0, node.start_byte - 1) : node.start_byte]
        behind = self.source[node.end_byte : node.end_byte + 1]
        if before not in _SEPARATORS or behind not in _SEPARATORS:
            raise Problem("words that are not clearly divided")

    def _check_leaf(self, node: Node) -> None:
        if node.type == "comment" and self.source[node.start_byte - 1 : node.start_byte] not in {
            *("", " ", "\t", "\n", ";", "&", "|", "(", ")")
        }:
            raise Problem("a comment that is none")
        if node.children or node.type in _VERBATIM:
            return
        if not self._is_what_it_seems(node):
            raise Problem("words that are not clearly divided")
        if node.is_named and _HIDDEN_EXPANSION.search(self.text_of(node)):
            raise Problem("an expansion that is not followed here")

    def _is_what_it_seems(self, node: Node) -> bool:
        """The parser may take a word into the operator that follows it: `docker -a<<-EOF`."""
        text = self.text_of(node)
        if not node.is_named:
            return text.strip(" \t\n") in {node.type, ""} and self._stands_apart(node)
        if node.type in {"word", "number"} and text.isdigit():
            return self.source[node.end_byte : node.end_byte + 1] not in {"<", ">"}
        pattern = _LEAVES.get(node.type)
        return pattern is None or pattern.fullmatch(text) is not None

    def _stands_apart(self, node: Node) -> bool:
        """A reserved word is one only where nothing touches it: `!ls` is a program."""
        parent = node.parent.type if node.parent is not None else ""
        reserved = node.type.isalpha() or (node.type, parent) in _RESERVED_MARKS
        if not reserved or parent in _WORDS_OF_ARGUMENTS:
            return True
        before = self.source[max(0, node.start_byte - 1) : node.start_byte]
        behind = self.source[node.end_byte : node.end_byte + 1]
        return before in _SEPARATORS and behind in _SEPARATORS

    def _check_expansion(self, node: Node) -> None:
        text = self.text_of(node)
        if node.type == "expansion" and not _HARMLESS_EXPANSION.fullmatch(text.lstrip(" \t\n")):
            raise Problem("an expansion that is not followed here")
        if node.type == "command_substitution" and text.lstrip().startswith("`") and "\\" in text:
            raise Problem("backquotes with backslashes inside")
        inside = arithmetic_in(node, text)
        if inside is not None:
            self.check_arithmetic(inside, node)

    def check_arithmetic(self, text: str, node: Node) -> None:
        names, place = names_in_arithmetic(text), node.start_byte
        if names is None or not all(self.variables.is_number(name, place) for name in names):
            raise Problem("arithmetic with what may not be a number: use `[ … -gt … ]`")

    def hole_at(self, position: int) -> Hole | None:
        node = self._expansion_at.get(position)
        if node is None:
            return None
        name = None
        plain = _PLAIN.fullmatch(self.source, position, node.end_byte)
        if node.type == "simple_expansion" and node.named_children[0].type == "variable_name":
            name = self.text_of(node.named_children[0])
        elif node.type == "expansion" and (
            plain := _PLAIN.fullmatch(self.source[position : node.end_byte])
        ):
            name = plain[1]
        values = None if name is None else self.variables.values_at(name, position)
        return Hole(values, node.end_byte)

    def alternatives(self, node: Node) -> list[tuple[str | None, ...]]:
        return alternatives(self.source, node.start_byte, node.end_byte, self.hole_at)

    def literal(self, node: Node) -> tuple[str, ...] | None:
        return literal(self.source, node.start_byte, node.end_byte, self.hole_at)

    def collect_variables(self, forgotten: frozenset[str], all_forgotten: bool) -> None:
        """Values may be made of other variables: from knowing nothing to knowing more, twice."""
        for _ in range(3):
            found = Variables(
                forgotten=forgotten, all_forgotten=all_forgotten, inherits=self.inherits
            )
            for node in self.nodes:
                self._collect(node, found)
            self.variables = found
            if all_forgotten or not self._expansion_at:
                break

    def _collect(self, node: Node, found: Variables) -> None:
        if node.type == "variable_assignment":
            self._collect_assignment(node, found)
        elif node.type == "for_statement":
            self._collect_loop(node, found)
        elif node.type == "unset_command":
            for child in node.named_children:
                found.assign(self.text_of(child), None)
        inside = arithmetic_in(node, self.text_of(node)) if node.type in _ARITHMETIC_NODES else None
        if inside is not None and re.search(r"=|\+\+|--", inside):
            for name in names_in_arithmetic(inside) or ():
                found.assign(name, None, integer=True)

    def _collect_assignment(self, node: Node, found: Variables) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None:
            return
        if name.type != "variable_name":
            found.assign(self.text_of(name).split("[")[0], None)
            return
        prefix = node.parent is not None and node.parent.type == "command"
        sure = (0, 0) if prefix else sure_range(node)
        plain = any(child.type == "=" for child in node.children)
        integer = plain and value is not None and value.type == "arithmetic_expansion"
        values: tuple[str, ...] | None = None
        try:
            if plain and value is None:
                values = ("",)
            elif plain and value is not None and value.type != "array":
                values = self.literal(value)
        except Problem:
            values = None
        found.assign(self.text_of(name), values, sure, integer)

    def _collect_loop(self, node: Node, found: Variables) -> None:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        if variable is None or body is None:
            return
        values: dict[str, None] | None = {}
        try:
            listed = node.children_by_field_name("value")
            for fields in (fields for child in listed for fields in self.alternatives(child)):
                known = [field for field in fields if field is not None]
                unknown = len(known) < len(fields) or any(
                    set(field) & set("*?[") for field in known
                )
                values = None if unknown or values is None else values | dict.fromkeys(known)
        except Problem:
            values = None
        if not values or node.children[0].type != "for":
            values = None
        sure = (body.start_byte, body.end_byte)
        found.assign(self.text_of(variable), None if values is None else tuple(values), sure)


_ARITHMETIC_NODES = {"arithmetic_expansion", "compound_statement", "c_style_for_statement"}


def arithmetic_in(node: Node, text: str) -> str | None:
    """The expression of `$((…))`, `$[…]`, `((…))` and the head of `for ((…))`."""
    if node.type == "arithmetic_expansion":
        return re.sub(r"^\s*\$(?:\(\(|\[)|(?:\)\)|\])$", "", text)
    if node.type == "compound_statement" and text.startswith("(("):
        return text[2:-2]
    if node.type == "c_style_for_statement":
        return text[text.find("((") + 2 : text.find("))")]
    return None


def _nesting(text: str) -> int:
    """At most how deep brackets of all kinds can be nested, quoted ones included."""
    deepest = depth = 0
    for found in re.finditer(r"[({]|[)}]|\b(?:if|for|while|until|case|select)\b|`", text):
        depth += -1 if found[0] in ")}" else 1
        depth = max(depth, 0)
        deepest = max(deepest, depth)
    keywords = len(re.findall(r"\b(?:fi|done|esac)\b|`", text))
    return max(deepest - keywords, 0)


def _descendants(root: Node) -> Iterator[Node]:
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _is_expansion(node: Node) -> bool:
    return node.type in _EXPANSIONS and bool(node.children)


def _begin_of(node: Node) -> int:
    """The parser counts blanks before an expansion inside a string as part of it."""
    opening = node.children[0]
    return opening.end_byte - len((opening.text or b"").strip())
