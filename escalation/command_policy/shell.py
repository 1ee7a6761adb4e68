"""Reads shell text as a flat list of simple commands and of problems.

Pipes, lists, groups, subshells, conditions, loops, functions, substitutions and here-documents
matter only for the input of a command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product

import tree_sitter_bash
from tree_sitter import Language, Node, Parser

from escalation.command_policy.understanding import Word

# Variables of a shell text.
#
# A variable stands for every text that is assigned to it anywhere, after an assignment that is sure
# to have happened.

_HARMLESS_TO_PROGRAMS = re.compile(
    r"LC_\w+|LANG|LANGUAGE|TZ|TERM|COLUMNS|LINES|NO_COLOR|CLICOLOR(_FORCE)?|FORCE_COLOR|CI"
    r"|DEBIAN_FRONTEND|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|GIT_TERMINAL_PROMPT"
    r"|GIT_OPTIONAL_LOCKS|DOCKER_CLI_HINTS|COMPOSE_ANSI|BLOCKSIZE|DU_BLOCK_SIZE|TIMEFORMAT"
    r"|[A-Z]\d?|(?!npm_|pip_)[a-z][a-z0-9_]*(?<!_proxy)"
)
"""Variables that change nothing in programs but their appearance. Lower-case names are not read by
programs, except proxies and package managers."""

_CHANGES_THE_SHELL = re.compile(
    r"PATH|HOME|PWD|OLDPWD|CDPATH|IFS|ENV|SHELL|SHELLOPTS|FUNCNAME|GLOBIGNORE|FIGNORE|EXECIGNORE"
    r"|HOSTFILE|INPUTRC|MAIL\w*|OPT(ARG|IND|ERR)|PS\d|PROMPT_\w+|POSIXLY_CORRECT|TMPDIR|TMOUT"
    r"|REPLY|MAPFILE|DIRSTACK|PIPESTATUS|COPROC\w*|USER|LOGNAME|EUID|UID|PPID|RANDOM|HIST\w*"
    r"|BASH\w*|COMP_\w+|READLINE_\w+|_"
    # Variables that programs read.
    r"|(LD|DYLD|GCONV|GLIBC|LOCPATH|MALLOC|NLSPATH|TERMINFO|XDG|SSH|GIT|DOCKER|BUILDKIT|COMPOSE"
    r"|KUBE|HELM|AWS|AZURE|GOOGLE|GH|GITHUB|ANSIBLE|CURL|WGET|SSL|OPENSSL|REQUESTS|PYTHON|PERL"
    r"|RUBY|NODE|JAVA|PG|PSQL|MYSQL|REDIS|MONGO|SYSTEMD|DBUS|CONTAINER|PODMAN|RSYNC|LESS|MAN"
    r"|GREP|TAR|RIPGREP|FZF|BAT|SUDO|JQ|VAULT|CONSUL|NOMAD|TF|GPG|GNUPG|DEB|DPKG|APT|NPM|PIP)\w*"
    r"|\w*(PAGER|EDITOR|VISUAL|BROWSER|PROXY|_proxy|CONFIG|TOKEN|RC)"
)
_LOCALE = re.compile(r"LC_\w+|LANG|LANGUAGE")
_PLAIN_LOCALE = re.compile(
    r"(?:C|POSIX|[a-z]{2,3}_[A-Z]{2})\.(?:UTF-?8|utf-?8)|C|POSIX|en(?:_US)?|"
)
"""In other locales a character may end in the byte of a backslash or a bar, so that bash reads
another text than the parser. A name with slashes would be a file of translations."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"-?\d{1,18}")
_SYNTAX_BLOCKS = {"program", "compound_statement", "do_group", "subshell", "command_substitution"}
# Set by the shell, always a number.
_NUMBERS = {"#", "?", "$", "!", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID"}

Values = tuple[str, ...] | None


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def may_reach_programs(name: str) -> bool:
    """Return whether a variable in the environment of programs does not change what they do."""
    return _HARMLESS_TO_PROGRAMS.fullmatch(name) is not None


def may_be_set(name: str) -> bool:
    """Return whether setting a variable does not change the shell itself."""
    return may_reach_programs(name) or _CHANGES_THE_SHELL.fullmatch(name) is None


def may_have(name: str, values: Values) -> bool:
    """Return whether a variable may have these values."""
    if _LOCALE.fullmatch(name) is None:
        return True
    return values is not None and all(map(_PLAIN_LOCALE.fullmatch, values))


@dataclass(frozen=True, slots=True)
class Assignment:
    values: Values
    sure_from: int
    """From here to `sure_to` the assignment has happened in any case."""
    sure_to: int
    integer: bool = False
    """The value is a computed number."""


@dataclass(slots=True)
class Variables:
    """The variables of one text."""

    assigned: dict[str, list[Assignment]] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    all_forgotten: bool = False
    inherits: bool = False
    """The shell has variables of another text: `x=… bash -c …`, `eval …`."""

    def assign(
        self, name: str, values: Values, sure: tuple[int, int] = (0, 0), integer: bool = False
    ) -> None:
        self.assigned.setdefault(name, []).append(Assignment(values, *sure, integer))

    def values_at(self, name: str, position: int) -> Values:
        found = self.assigned.get(name, [])
        if self.all_forgotten or name in self.forgotten or not may_be_set(name):
            return None
        if not _is_sure(found, position):
            return None
        values: dict[str, None] = {}
        for one in found:
            if one.values is None:
                return None
            values.update(dict.fromkeys(one.values))
        return tuple(values)

    def is_number(self, name: str, position: int) -> bool:
        """Return whether arithmetic may use it: another text could run code, `a[$(reboot)]`."""
        if name in _NUMBERS:
            return True
        if self.all_forgotten or name in self.forgotten or not is_name(name):
            return False
        found = self.assigned.get(name, [])
        if not may_be_set(name) or (self.inherits and not _is_sure(found, position)):
            return False
        return all(
            one.integer or (one.values is not None and all(map(_INTEGER.fullmatch, one.values)))
            for one in found
        )


def _is_sure(assignments: list[Assignment], position: int) -> bool:
    return any(one.sure_from <= position < one.sure_to for one in assignments)


def sure_range(node: Node) -> tuple[int, int]:
    """Return the range in which an assignment is sure to have happened."""
    statement = node
    while (parent := statement.parent) is not None:
        container = parent.type in {"variable_assignments", "declaration_command"}
        leads = parent.type == "list" and parent.start_byte == statement.start_byte
        if not container and not leads:
            break
        statement = parent
    follower = statement.next_sibling
    in_background = follower is not None and follower.type == "&"
    if parent is None or parent.type not in _SYNTAX_BLOCKS or in_background:
        return 0, 0
    return node.end_byte, parent.end_byte


_ARITHMETIC = re.compile(r"[\s\w+\-*/%<>=!&|^~?:(),$#{};]*")
_IN_ARITHMETIC = re.compile(r"\$?\{?#?([A-Za-z_]\w*|[#?$!@*])\}?|\$\{?(\d+)")
_NUMERALS = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)\b")


def names_in_arithmetic(text: str) -> list[str] | None:
    """Return the variables of an expression of variables and numbers; None for any other."""
    if _ARITHMETIC.fullmatch(text) is None or re.search(r"\$\{?[*@(]", text):
        return None
    without_numbers = _NUMERALS.sub(" ", text) if "$" not in text else text
    names = [found[1] or found[2] for found in _IN_ARITHMETIC.finditer(without_numbers)]
    operators = {"!", "*", "#", "?", "$", "@"}
    return [name for name in names if name not in operators]


# Words: quotes removed, braces and variables expanded as far as possible.
#
# The text of a word is read by the rules of bash, independently of the parser. If they disagree,
# the word is not understood.

Fields = tuple[Word, ...]
MOST_ALTERNATIVES = 32
"""A loop over more values is not followed value by value."""

_MOST_FROM_BRACES = 200
_WORD_SEPARATORS = frozenset(" \t\n\r\v\f;&|()<>")
_GLOBS = frozenset("*?[")
_BEGINS_EXPANSION = re.compile(r"[\w{(\[@*#?$!-]")
_SIMPLE_ESCAPES = {
    **{"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r"},
    **{"t": "\t", "v": "\v", "\\": "\\", "'": "'", '"': '"', "?": "?"},
}
_ANSI_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3})|(.))", re.DOTALL
)
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})")


class NotUnderstood(Exception):
    """A part of a command is not understood; the message follows "Not understood: "."""


@dataclass(frozen=True, slots=True)
class Hole:
    """An expansion in a word with its possible values; None if they are computed."""

    values: tuple[str, ...] | None
    end: int
    """Position behind the expansion."""


@dataclass(frozen=True, slots=True)
class _Cell:
    text: str
    quoted: bool
    hole: Hole | None = None


Expansions = Callable[[int], Hole | None]
"""Returns the expansion that begins at a position."""


def alternatives(source: str, start: int, end: int, expansions: Expansions) -> list[Fields]:
    """Return the possible fields of a word, for each combination of variable values."""
    cells = list(_cells(source, start, end, expansions))
    found: dict[Fields, None] = {}
    words = list(_braces(cells))
    for fields in product(*(_fields_of(word) for word in words)):
        found[tuple(field for some in fields for field in some)] = None
        if len(found) > MOST_ALTERNATIVES:
            return [(None,)]
    return list(found)


def literal(source: str, start: int, end: int, expansions: Expansions) -> tuple[str, ...] | None:
    """Return the values of an assigned word, which is neither split nor globbed."""
    parts = [
        (cell.text,) if cell.hole is None else cell.hole.values
        for cell in _cells(source, start, end, expansions)
    ]
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    count = 1
    for part in known:
        count *= max(1, len(part))
    if count > MOST_ALTERNATIVES:
        return None
    return tuple(dict.fromkeys("".join(choice) for choice in product(*known)))


def _cells(source: str, start: int, end: int, expansions: Expansions) -> Iterator[_Cell]:
    position = start
    inside = False
    while position < end:
        character = source[position]
        hole = expansions(position)
        if hole is not None:
            yield _Cell("", inside, hole)
            position = hole.end
        elif character == '"':
            inside = not inside
            yield _Cell("", True)
            position += 1
        elif character == "\\":
            yield from _escaped(source[position + 1 : position + 2], inside)
            position += 2
        elif character == "`" or (not inside and source.startswith('$"', position)):
            raise NotUnderstood("quoting that is not followed here")
        elif character == "$" and _BEGINS_EXPANSION.match(source, position + 1):
            raise NotUnderstood("an expansion that is not followed here")
        elif not inside and character in "'$":
            text, position = _single_quoted(source, position)
            yield _Cell(text, True)
        elif not inside and character in _WORD_SEPARATORS:
            raise NotUnderstood("words that are not clearly divided")
        else:
            yield _Cell(character, inside)
            position += 1
    if inside or position != end:
        raise NotUnderstood("quoting that is not followed here")


def _escaped(character: str, inside: bool) -> Iterator[_Cell]:
    if not character or (character == "\n" and not inside):
        raise NotUnderstood("a line that is broken inside a word")
    if character == "\n":
        return
    if inside and character not in '$`"\\':
        yield _Cell("\\", True)
    yield _Cell(character, True)


def _single_quoted(source: str, position: int) -> tuple[str, int]:
    """Read `'…'`, `$'…'` with its escapes, or a plain dollar sign."""
    if source[position] == "'":
        close = source.find("'", position + 1)
        if close < 0:
            raise NotUnderstood("quoting that is not followed here")
        return source[position + 1 : close], close + 1
    if not source.startswith("$'", position):
        return "$", position + 1
    found = re.compile(r"\$'((?:[^'\\]|\\.)*)'", re.DOTALL).match(source, position)
    if found is None:
        raise NotUnderstood("quoting that is not followed here")
    return _ANSI_ESCAPE.sub(_ansi_character, found[1]), found.end()


def _ansi_character(escape: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        if escape[group]:
            number = int(escape[group], base)
            if number == 0 or number > 0x7F:
                # Bytes of a character, or a NUL that ends the word.
                raise NotUnderstood("characters that are written as numbers")
            return chr(number)
    if escape[5] not in _SIMPLE_ESCAPES:
        raise NotUnderstood("an escape that is not followed here")
    return _SIMPLE_ESCAPES[escape[5]]


def _braces(cells: list[_Cell]) -> Iterator[list[_Cell]]:
    """Yield the words of `a{b,c}d` in order."""
    waiting = [cells]
    found = 0
    while waiting:
        word = waiting.pop()
        pieces = _first_braces(word)
        if pieces is None:
            found += 1
            yield word
        else:
            waiting.extend(reversed(pieces))
        if found + len(waiting) > _MOST_FROM_BRACES:
            raise NotUnderstood("braces that stand for very many words")


def _first_braces(cells: list[_Cell]) -> list[list[_Cell]] | None:
    for opening, cell in enumerate(cells):
        if cell.quoted or cell.text != "{":
            continue
        depth, commas = 0, [opening]
        for index in range(opening, len(cells)):
            at = cells[index]
            if at.quoted or at.text not in "{},":
                continue
            depth += {"{": 1, "}": -1, ",": 0}.get(at.text, 0)
            if at.text == "," and depth == 1:
                commas.append(index)
            if depth == 0:
                parts = _parts_of(cells, [*commas, index])
                if parts is not None:
                    before, behind = cells[:opening], cells[index + 1 :]
                    return [[*before, *part, *behind] for part in parts]
                break
    return None


def _parts_of(cells: list[_Cell], marks: list[int]) -> list[list[_Cell]] | None:
    if len(marks) > 2:
        return [cells[a + 1 : b] for a, b in zip(marks, marks[1:], strict=False)]
    between = cells[marks[0] + 1 : marks[1]]
    text = "".join(cell.text for cell in between)
    if ".." not in text:
        return None
    numbers = _RANGE.fullmatch(text)
    plain = not any(cell.quoted or cell.hole for cell in between)
    if not numbers or not plain or any(re.match(r"-?0\d", end) for end in numbers.groups()):
        raise NotUnderstood("a range in braces that is not followed here")
    first, last = int(numbers[1]), int(numbers[2])
    if abs(first - last) >= _MOST_FROM_BRACES:
        raise NotUnderstood("braces that stand for very many words")
    step = 1 if last >= first else -1
    return [[_Cell(str(number), False)] for number in range(first, last + step, step)]


def _fields_of(cells: list[_Cell]) -> list[Fields]:
    holes = [cell.hole for cell in cells if cell.hole is not None]
    unknown = any(hole.values is None for hole in holes)
    if unknown:
        return [(None,)]
    chosen = [hole.values or () for hole in holes]
    count = 1
    for values in chosen:
        count *= len(values)
    if count > MOST_ALTERNATIVES:
        return [(None,)]
    return [_split(cells, iter(choice)) for choice in product(*chosen)]


def _split(cells: list[_Cell], values: Iterator[str]) -> Fields:
    """Return the fields with values; unquoted values are split at blanks."""
    fields: list[list[_Cell]] = []
    field: list[_Cell] | None = None
    for cell in cells:
        text = cell.text if cell.hole is None else next(values)
        if cell.hole is None or cell.quoted:
            field = [*(field or ()), _Cell(text, cell.quoted)]
            continue
        for piece in re.split(r"([ \t\n]+)", text):
            if not piece:
                continue
            if piece[0] in " \t\n":
                if field is not None:
                    fields.append(field)
                field = None
            else:
                field = [*(field or ()), *(_Cell(character, False) for character in piece)]
    if field is not None:
        fields.append(field)
    return tuple(_matched(field) for field in fields)


def _matched(field: list[_Cell]) -> Word:
    """Keep a pattern as written. A leading wildcard may match a file that looks like an option."""
    begin = next((cell for cell in field if cell.text), None)
    if begin is not None and not begin.quoted and begin.text[0] in _GLOBS and len(field) > 1:
        return None
    text = "".join(cell.text for cell in field)
    return None if begin is not None and not begin.quoted and text in _GLOBS - {"["} else text


LONGEST_TEXT = 64 * 1024
_DEEPEST_NESTING = 40
_MOST_NODES = 8_000

_LANGUAGE = Language(tree_sitter_bash.language())
# The parser crashes on some characters beyond single bytes. They have no meaning in bash, so the
# parser gets another character without meaning.
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
    """A parsed text, compared with the text itself; raises `NotUnderstood`.

    The parser accepts more than bash: other characters as blanks, words across broken lines. Each
    place where both could read different commands is a problem.
    """

    def __init__(self, text: str, *, inherits: bool = False) -> None:
        encoded = text.encode()
        if len(encoded) > LONGEST_TEXT:
            raise NotUnderstood("a text of this length")
        if _nesting(text) > _DEEPEST_NESTING:
            raise NotUnderstood("a text that is nested so deeply")
        # One character per byte, so that positions of the parser are positions in the text.
        self.source = encoded.decode("latin-1")
        self.root = Parser(_LANGUAGE).parse(encoded.translate(_MEANINGLESS)).root_node
        if self.root.descendant_count > _MOST_NODES:
            raise NotUnderstood("a text of this length")
        if self.root.has_error:
            raise NotUnderstood("a text that is not plainly bash")
        self.nodes = list(_descendants(self.root))
        self._expansion_at = {_begin_of(node): node for node in self.nodes if _is_expansion(node)}
        self.inherits = inherits
        self.variables = Variables(inherits=inherits)
        self.unseen: dict[str, None] = {}
        """Parts that are understood only without grants."""

    def text_of(self, node: Node) -> str:
        return self.source[node.start_byte : node.end_byte]

    def check(self) -> Iterator[str]:
        """Return problems of the text apart from its commands."""
        around = self.source[: self.root.start_byte], self.source[self.root.end_byte :]
        if not all(map(_GAP.fullmatch, around)):
            yield "words that are not clearly divided"
        for node in self.nodes:
            try:
                self._check_gaps(node)
                self._check_leaf(node)
                self._check_expansion(node)
            except NotUnderstood as problem:
                yield str(problem)

    def _check_gaps(self, node: Node) -> None:
        if not node.children or node.type in _GAPS_ARE_TEXT:
            return
        allowed = _GAP_IN_LINE if node.type in _ON_ONE_LINE else _GAP
        position = node.start_byte
        for child in node.children:
            gap = self.source[position : child.start_byte]
            if gap and not allowed.fullmatch(gap):
                raise NotUnderstood("words that are not clearly divided")
            position = child.end_byte
        if position < node.end_byte and not _GAP.fullmatch(self.source[position : node.end_byte]):
            raise NotUnderstood("words that are not clearly divided")
        if node.type in _ON_ONE_LINE and any(child.type == "comment" for child in node.children):
            raise NotUnderstood("a comment inside a command")

    def check_divided(self, node: Node) -> None:
        """Check that a word ends where bash would end it."""
        before = self.source[max(0, node.start_byte - 1) : node.start_byte]
        behind = self.source[node.end_byte : node.end_byte + 1]
        if before not in _SEPARATORS or behind not in _SEPARATORS:
            raise NotUnderstood("words that are not clearly divided")

    def _check_leaf(self, node: Node) -> None:
        if node.type == "comment" and self.source[node.start_byte - 1 : node.start_byte] not in {
            *("", " ", "\t", "\n", ";", "&", "|", "(", ")")
        }:
            raise NotUnderstood("a comment that is none")
        if node.children or node.type in _VERBATIM:
            return
        if not self._is_what_it_seems(node):
            raise NotUnderstood("words that are not clearly divided")
        if node.is_named and _HIDDEN_EXPANSION.search(self.text_of(node)):
            raise NotUnderstood("an expansion that is not followed here")

    def _is_what_it_seems(self, node: Node) -> bool:
        """Check that no word is part of the operator behind it: `docker -a<<-EOF`."""
        text = self.text_of(node)
        if not node.is_named:
            return text.strip(" \t\n") in {node.type, ""} and self._stands_apart(node)
        if node.type in {"word", "number"} and text.isdigit():
            return self.source[node.end_byte : node.end_byte + 1] not in {"<", ">"}
        pattern = _LEAVES.get(node.type)
        return pattern is None or pattern.fullmatch(text) is not None

    def _stands_apart(self, node: Node) -> bool:
        """Check that reserved words stand alone: `!ls` is a program."""
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
            raise NotUnderstood("an expansion that is not followed here")
        if node.type == "command_substitution" and text.lstrip().startswith("`") and "\\" in text:
            raise NotUnderstood("backquotes with backslashes inside")
        inside = arithmetic_in(node, text)
        if inside is not None:
            self.check_arithmetic(inside, node)

    def check_arithmetic(self, text: str, node: Node) -> None:
        names, place = names_in_arithmetic(text), node.start_byte
        if names is None or not all(self.variables.is_number(name, place) for name in names):
            raise NotUnderstood("arithmetic with what may not be a number: use `[ … -gt … ]`")

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
        """Collect values twice, because values may use other variables."""
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
        except NotUnderstood:
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
        except NotUnderstood:
            values = None
        if not values or node.children[0].type != "for":
            values = None
        sure = (body.start_byte, body.end_byte)
        found.assign(self.text_of(variable), None if values is None else tuple(values), sure)


_ARITHMETIC_NODES = {"arithmetic_expansion", "compound_statement", "c_style_for_statement"}


def arithmetic_in(node: Node, text: str) -> str | None:
    """Return the expression of `$((…))`, `$[…]`, `((…))` or the head of `for ((…))`."""
    if node.type == "arithmetic_expansion":
        return re.sub(r"^\s*\$(?:\(\(|\[)|(?:\)\)|\])$", "", text)
    if node.type == "compound_statement" and text.startswith("(("):
        return text[2:-2]
    if node.type == "c_style_for_statement":
        return text[text.find("((") + 2 : text.find("))")]
    return None


def _nesting(text: str) -> int:
    """Return the maximal nesting of brackets, including quoted ones."""
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
    """Skip blanks, which the parser counts as part of an expansion in a string."""
    opening = node.children[0]
    return opening.end_byte - len((opening.text or b"").strip())


# Assignments and tests, which run no program.

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
    except NotUnderstood as problem:
        yield str(problem)


def problems_of_environment(assignment: Node, syntax: Syntax) -> Iterator[str]:
    """Return the problems of `NAME=value program`."""
    try:
        name = _assigned_name(assignment, syntax)
        if not may_reach_programs(name):
            yield f"the variable {name} is set for a program"
        yield from _value(name, assignment, syntax)
    except NotUnderstood as problem:
        yield str(problem)


def _assigned_name(node: Node, syntax: Syntax) -> str:
    name = node.child_by_field_name("name")
    text = "" if name is None else syntax.text_of(name)
    if not re.fullmatch(r"[A-Za-z_]\w*(\[\d+\])?", text, re.ASCII):
        raise NotUnderstood("an assignment that is not followed here")
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
    # A read-only variable keeps its value where another text seems to change it.
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
            raise NotUnderstood("a variable whose name is computed")
        if reaches_programs and not may_reach_programs(name):
            yield f"the variable {name} is set for a program"


def _unset(node: Node, syntax: Syntax) -> Iterator[str]:
    names = [syntax.text_of(child) for child in node.named_children]
    if not all(is_name(name) and may_be_set(name) for name in names):
        yield "such an `unset`"


def _test(node: Node, syntax: Syntax) -> Iterator[str]:
    """Check numbers in `[[ … ]]`: arithmetic runs code in subscripts. `[ … ]` does not."""
    text = syntax.text_of(node)
    if not _BRACKETS.fullmatch(text):
        raise NotUnderstood("such a condition")
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
    """Check unquoted text, whose words may be `-v a[$(reboot)]`, which runs code."""
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


# Redirections: files that are written, and the input of a command.

_HARMLESS_TARGETS = re.compile(r"/dev/(null|stdout|stderr|fd/[012]|tty)")
_NETWORK = re.compile(r"/+dev/+(tcp|udp)(/|$)")
_WRITE = {">", ">>", ">|", "&>", "&>>", ">&"}
_BEFORE_A_NUMBER = {"", " ", "\t", "\n", ";", "&", "|", "(", ")", "}"}
_DELIMITER = re.compile(r"(['\"\\]?)([A-Za-z_][A-Za-z0-9_.-]*)(['\"]?)")
_EXPANDED_UNSEEN = re.compile(r"(?<!\\)(?:\\\\)*(?:\$[\w({\[@*#?$!-]|`)")


def decoded(field: Word) -> Word:
    """Convert one character per byte back to text."""
    return field if field is None else field.encode("latin-1").decode(errors="surrogateescape")


def read_redirects(
    redirects: list[Node], syntax: Syntax, stdin: Word
) -> tuple[tuple[Word, ...], Word]:
    """Return the written files and the input."""
    writes: list[Word] = []
    for redirect in sorted(redirects, key=lambda redirect: redirect.start_byte):
        text = redirect.type in {"heredoc_redirect", "herestring_redirect"}
        if text and redirect.child_by_field_name("descriptor") is not None:
            raise NotUnderstood("a text for another descriptor than the first")
        if redirect.type == "heredoc_redirect":
            stdin = decoded(_here_document(redirect, syntax))
        elif redirect.type == "herestring_redirect":
            syntax.check_divided(redirect.named_children[-1])
            values = syntax.literal(redirect.named_children[-1])
            stdin = decoded(values[0] + "\n") if values and len(values) == 1 else None
        elif redirect.type == "file_redirect":
            stdin = _file(redirect, syntax, writes, stdin)
    return tuple(writes), stdin


def _file(redirect: Node, syntax: Syntax, writes: list[Word], stdin: Word) -> Word:
    begin = redirect.start_byte
    numbered = redirect.child_by_field_name("descriptor") is not None
    if numbered and syntax.source[max(0, begin - 1) : begin] not in _BEFORE_A_NUMBER:
        raise NotUnderstood("words that are not clearly divided")
    operator = next(child.type for child in redirect.children if not child.is_named)
    targets = redirect.children_by_field_name("destination")[:1]
    for target_node in targets:
        syntax.check_divided(target_node)
    for fields in syntax.alternatives(targets[0]) if targets else ():
        target = decoded(fields[0]) if len(fields) == 1 else None
        if target is not None and _NETWORK.match(target):
            raise NotUnderstood("a network connection of the shell itself")
        if operator not in {*_WRITE, "<", "<&"}:
            raise NotUnderstood(f"the redirection `{operator}`")
        duplicates = operator == ">&" and target is not None and re.fullmatch(r"\d+-?|-", target)
        harmless = target is not None and _HARMLESS_TARGETS.fullmatch(target)
        if operator in _WRITE and not duplicates and not harmless:
            writes.append(target)
        if operator == "<" and target is None:
            # bash connects to /dev/tcp/HOST/PORT, to which other commands could write.
            syntax.unseen["a file whose name is computed is opened"] = None
        if operator == "<" and target == "/dev/null":
            return ""
    return None if operator in {"<", "<&"} else stdin


def _here_document(redirect: Node, syntax: Syntax) -> Word:
    """Return the text of a here-document after checking its limits by the rules of bash."""
    parts = {child.type: child for child in redirect.children}
    start, body, end = (parts.get(f"heredoc_{name}") for name in ("start", "body", "end"))
    if start is None or body is None or end is None:
        raise NotUnderstood("a here-document without an end")
    delimiter = _DELIMITER.fullmatch(syntax.text_of(start))
    if delimiter is None or (delimiter[1] in {"'", '"'} and delimiter[1] != delimiter[3]):
        raise NotUnderstood("such a here-document")
    line_end = syntax.source.find("\n", start.end_byte)
    text_end = syntax.source.rfind("\n", 0, end.start_byte) + 1
    text = syntax.source[line_end + 1 : text_end]
    lines = syntax.source[line_end + 1 :].split("\n")
    strips_tabs = redirect.children[0].type == "<<-" or syntax.text_of(redirect).startswith("<<-")
    if strips_tabs:
        lines = [line.lstrip("\t") for line in lines]
    line = syntax.source[start.end_byte : line_end]
    goes_on = line.count("'") % 2 or line.count('"') % 2 or line.count("(") > line.count(")")
    same_line = "<<" in line or line.endswith("\\") or goes_on
    first_end = lines.index(delimiter[2]) if delimiter[2] in lines else -1
    if line_end < 0 or same_line or first_end != text.count("\n"):
        raise NotUnderstood("such a here-document")
    if strips_tabs:
        text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
    return text if delimiter[1] else _expanded(body, text, syntax)


def _expanded(body: Node, text: str, syntax: Syntax) -> Word:
    """Read an unquoted here-document with variables, substitutions and backslashes."""
    if body.named_children and any(
        not child.type.startswith("heredoc_") for child in body.children
    ):
        holes = [child for child in body.children if not child.type.startswith("heredoc_")]
        seen = sum(1 for _ in _EXPANDED_UNSEEN.finditer(text))
        if seen != len(holes) or "`" in text:
            raise NotUnderstood("a here-document with expansions that are not followed here")
        return None
    if _EXPANDED_UNSEEN.search(text):
        raise NotUnderstood("a here-document with expansions that are not followed here")
    return re.sub(r"\\([$`\\]|\n)", lambda found: found[1].strip("\n"), text)


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
    """One simple command; a loop over known values gives one for each value."""

    words: tuple[Word, ...]
    """Empty for redirections of a group or without a command."""
    writes: tuple[Word, ...] = ()
    """Files written by redirections."""
    stdin: Word = ""
    """Input, if known; None if it is computed."""
    text: str = ""
    """The command as written, for messages."""
    calls_function: bool = False
    position: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    commands: tuple[Command, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons why parts are not understood."""
    functions: frozenset[str] = frozenset()
    unseen: tuple[str, ...] = ()
    """Parts that are understood only without grants."""
    is_one_command: bool = False
    """One simple command without pipe, list, variable or redirection to a file."""
    may_repeat: bool = False
    """A loop or a function may run commands several times."""


def read(text: str, *, inherits: bool = False, knows_values: bool = True) -> Script:
    """Read a text; parts that cannot be read are problems of the script.

    `inherits`: another text may have set variables of the shell. Without `knows_values` it may
    still change them.
    """
    try:
        syntax = Syntax(text, inherits=inherits)
        script = _read(syntax, frozenset(), not knows_values)
        if not knows_values:
            return script
        forgotten, everything = _changed_unseen(script.commands)
        if forgotten or everything:
            script = _read(syntax, forgotten, everything)
    except NotUnderstood as problem:
        return Script(problems=(str(problem),))
    except (RecursionError, UnicodeError):
        return Script(problems=("a text that cannot be read",))
    return script


def _read(syntax: Syntax, forgotten: frozenset[str], all_forgotten: bool) -> Script:
    syntax.collect_variables(forgotten, all_forgotten)
    return _ScriptReader(syntax).script()


def _changed_unseen(commands: Iterable[Command]) -> tuple[frozenset[str], bool]:
    """Return variables that commands change without assignment: `read x`, `eval x=1`."""
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
    """Parts that the parser adds to a statement, and bash to its last command."""

    redirects: list[Node] = field(default_factory=list)
    words: list[Node] = field(default_factory=list)


class _ScriptReader:
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
                raise NotUnderstood(f"a {node.type.replace('_', ' ')}")
        except NotUnderstood as problem:
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
        """Read the rest of the line, which the parser puts inside: `cat <<EOF | sh`."""
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
                raise NotUnderstood("text behind a here-document")

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
            raise NotUnderstood("a command whose name is computed")
        name = words[0]
        if name in _RESERVED or (name is not None and re.match(r"[A-Za-z_]\w*(\[.*\])?\+?=", name)):
            raise NotUnderstood(f"`{name}` in the place of a program")
        calls = False
        if name in self.functions:
            defined = self.functions[name]
            after = defined.end_byte <= node.start_byte or (
                defined.start_byte < node.start_byte < defined.end_byte
            )
            if not after or defined.parent is None or defined.parent.type != "program":
                raise NotUnderstood(f"the function `{name}` where it may not be known yet")
            calls = True
        self.commands.append(replace(command, calls_function=calls, position=node.start_byte))

    def _alternatives(self, nodes: list[Node]) -> list[tuple[Word, ...]]:
        """Return all possible commands, or one with None if there are too many."""
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
        """Read redirections of a statement that is no simple command."""
        writes, _ = read_redirects(behind.redirects, self.syntax, stdin)
        if behind.words:
            raise NotUnderstood("words behind a group of commands")
        if writes:
            position = behind.redirects[0].start_byte
            self.commands.append(Command(words=(), writes=writes, position=position))

    def _lone_redirect(self, node: Node, stdin: Word, behind: _Behind) -> None:
        """Read `> file` and `$(< file)`."""
        self._redirects(_Behind([node, *behind.redirects]))

    def _loop(self, node: Node) -> None:
        """Read statements and words of conditions, loops and cases."""
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
            raise NotUnderstood("a function with such a name")
        self._statement(body, None, behind)

    def _function_name(self, node: Node) -> str:
        name = node.child_by_field_name("name")
        return "" if name is None else self.syntax.text_of(name)

    def _checked(self, node: Node, stdin: Word, behind: _Behind) -> None:
        """Check an assignment or test, which runs no program."""
        self._redirects(behind)
        for problem in problems_of(node, self.syntax):
            self._problem(problem)


def output_of(commands: list[Command]) -> Word:
    """Return the output of a command that only prints text, as input of the next one."""
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
