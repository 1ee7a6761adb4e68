"""Variables of a shell text: which may be set at all, and which values they can have.

Values are collected over the whole text, whatever the order: a variable stands for every text that
is assigned to it anywhere, and only where one of those assignments is sure to have happened before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tree_sitter import Node

_HARMLESS_TO_PROGRAMS = re.compile(
    r"LC_\w+|LANG|LANGUAGE|TZ|TERM|COLUMNS|LINES|NO_COLOR|CLICOLOR(_FORCE)?|FORCE_COLOR|CI"
    r"|DEBIAN_FRONTEND|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE|GIT_TERMINAL_PROMPT"
    r"|GIT_OPTIONAL_LOCKS|DOCKER_CLI_HINTS|COMPOSE_ANSI|BLOCKSIZE|DU_BLOCK_SIZE|TIMEFORMAT"
    r"|[A-Z]\d?|(?!npm_|pip_)[a-z][a-z0-9_]*(?<!_proxy)"
)
"""Programs read settings out of their environment, by names in capitals: only these are known to
change nothing but looks. A name in small letters is read by none, except proxies and packagers."""

_CHANGES_THE_SHELL = re.compile(
    r"PATH|HOME|PWD|OLDPWD|CDPATH|IFS|ENV|SHELL|SHELLOPTS|FUNCNAME|GLOBIGNORE|FIGNORE|EXECIGNORE"
    r"|HOSTFILE|INPUTRC|MAIL\w*|OPT(ARG|IND|ERR)|PS\d|PROMPT_\w+|POSIXLY_CORRECT|TMPDIR|TMOUT"
    r"|REPLY|MAPFILE|DIRSTACK|PIPESTATUS|COPROC\w*|USER|LOGNAME|EUID|UID|PPID|RANDOM|HIST\w*"
    r"|BASH\w*|COMP_\w+|READLINE_\w+|_"
    # … or a program, where the environment has the name already
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
"""In others a character may end in the byte of a backslash or a bar: bash then reads another text
than the parser. A name with slashes would be a file of translations."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_INTEGER = re.compile(r"-?\d{1,18}")
_BLOCKS = {"program", "compound_statement", "do_group", "subshell", "command_substitution"}
# Given by the shell itself, and always a number.
_NUMBERS = {"#", "?", "$", "!", "RANDOM", "SECONDS", "LINENO", "UID", "EUID", "PPID"}

Values = tuple[str, ...] | None


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def may_reach_programs(name: str) -> bool:
    """Whether a variable may stand in a program's environment without changing what it does."""
    return _HARMLESS_TO_PROGRAMS.fullmatch(name) is not None


def may_be_set(name: str) -> bool:
    """Whether the shell goes on working as before when a variable is set for itself alone."""
    return may_reach_programs(name) or _CHANGES_THE_SHELL.fullmatch(name) is None


def may_have(name: str, values: Values) -> bool:
    """Whether a variable that may be set may be set to this."""
    if _LOCALE.fullmatch(name) is None:
        return True
    return values is not None and all(map(_PLAIN_LOCALE.fullmatch, values))


@dataclass(frozen=True, slots=True)
class Assignment:
    values: Values
    sure_from: int
    """From here to `sure_to` it has happened, whichever way the text was run through."""
    sure_to: int
    integer: bool = False
    """It is a number, although which one is computed."""


@dataclass(slots=True)
class Variables:
    """What is known about the variables of one text."""

    assigned: dict[str, list[Assignment]] = field(default_factory=dict)
    forgotten: frozenset[str] = frozenset()
    all_forgotten: bool = False
    inherits: bool = False
    """The text runs in a shell that has variables of another text: `x=… bash -c …`, `eval …`."""

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
        """Whether arithmetic may use it: another text would be *run* there, `a[$(reboot)]`.

        Some are set by bash itself to texts of choice (`_`, REPLY, BASH_REMATCH)."""
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
    """From where to where an assignment is sure to have happened: behind it, in its own block."""
    statement = node
    while (parent := statement.parent) is not None:
        container = parent.type in {"variable_assignments", "declaration_command"}
        leads = parent.type == "list" and parent.start_byte == statement.start_byte
        if not container and not leads:
            break
        statement = parent
    follower = statement.next_sibling
    in_background = follower is not None and follower.type == "&"
    if parent is None or parent.type not in _BLOCKS or in_background:
        return 0, 0
    return node.end_byte, parent.end_byte


_ARITHMETIC = re.compile(r"[\s\w+\-*/%<>=!&|^~?:(),$#{};]*")
_IN_ARITHMETIC = re.compile(r"\$?\{?#?([A-Za-z_]\w*|[#?$!@*])\}?|\$\{?(\d+)")
_NUMERALS = re.compile(r"\b(0[xX][0-9a-fA-F]+|\d+)\b")


def names_in_arithmetic(text: str) -> list[str] | None:
    """The variables of an arithmetic expression; None where it has more than those and numbers."""
    if _ARITHMETIC.fullmatch(text) is None or re.search(r"\$\{?[*@(]", text):
        return None
    without_numbers = _NUMERALS.sub(" ", text) if "$" not in text else text
    names = [found[1] or found[2] for found in _IN_ARITHMETIC.finditer(without_numbers)]
    operators = {"!", "*", "#", "?", "$", "@"}
    return [name for name in names if name not in operators]
