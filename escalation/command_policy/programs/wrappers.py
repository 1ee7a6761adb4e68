"""Programs that start another one.

A wrapper with an unknown option is not understood: the option might take a value, and then another
word would be the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from escalation.command_policy.grants import HOST
from escalation.command_policy.programs import shells
from escalation.command_policy.shell import may_have, may_reach_programs
from escalation.command_policy.understanding import Inner, Understanding, Word

Argv = tuple[Word, ...]
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL | re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """Options of a wrapper before its command."""

    flags: str = ""
    values: str = ""
    long_flags: frozenset[str] = frozenset()
    long_values: frozenset[str] = frozenset()

    def split(self, words: Argv) -> tuple[list[tuple[str, Word]], Argv] | None:
        """Return the given options and the rest; None if an option is unknown."""
        found: list[tuple[str, Word]] = []
        index = 0
        while index < len(words):
            word = words[index]
            if word is None:
                return None
            if word == "--":
                return found, words[index + 1 :]
            if not word.startswith("-") or word == "-":
                break
            taken = self._long(word) if word.startswith("--") else self._short(word)
            if taken is None:
                return None
            options, wants_value = taken
            if wants_value:
                index += 1
                if index >= len(words):
                    return None
                options[-1] = (options[-1][0], words[index])
            found.extend(options)
            index += 1
        return found, words[index:]

    def _long(self, word: str) -> tuple[list[tuple[str, Word]], bool] | None:
        name, equals, value = word[2:].partition("=")
        if name in self.long_flags and not equals:
            return [(name, "")], False
        if name in self.long_values:
            return [(name, value)], not equals
        return None

    def _short(self, word: str) -> tuple[list[tuple[str, Word]], bool] | None:
        found: list[tuple[str, Word]] = []
        for index, letter in enumerate(word[1:], start=1):
            if letter in self.values:
                found.append((letter, word[index + 1 :]))
                return found, index + 1 == len(word)
            if letter not in self.flags:
                return None
            found.append((letter, ""))
        return found, False


def _around(name: str, argv: Argv, inner: Argv) -> Understanding | None:
    if not inner:
        return None
    return Understanding(action=name, arguments=argv[1:], inner=(Inner(argv=inner),))


def _wrapper(
    name: str, options: Options, operands: int = 0
) -> Callable[[Argv], Understanding | None]:
    """Return a grammar for a program with options, operands and a command."""

    def grammar(argv: Argv) -> Understanding | None:
        split = options.split(argv[1:])
        if split is None or None in split[1][:operands]:
            return None
        return _around(name, argv, split[1][operands:])

    return grammar


def _env(argv: Argv) -> Understanding | None:
    """Read env without -i and a lone dash, which would remove variables of `environment.py`."""
    options = Options(flags="0v", values="u", long_flags=frozenset({"null", "debug"}))
    split = options.split(argv[1:])
    if split is None or argv[1:2] == ("-",):
        return None
    given, rest = split
    if not all(may_reach_programs(value or "") for name, value in given if name == "u"):
        return None
    while rest and rest[0] is not None and (assigned := _ASSIGNMENT.fullmatch(rest[0])):
        if not may_reach_programs(assigned[1]) or not may_have(assigned[1], (assigned[2],)):
            return None
        rest = rest[1:]
    if rest:
        return None if rest[0] is None or "=" in rest[0] else _around("env", argv, rest)
    return Understanding(action="env", arguments=argv[1:])


def _sudo(argv: Argv) -> Understanding | None:
    name = argv[0] or ""
    options = Options(
        flags="nHESk" if name == "sudo" else "n",
        values="ugp" if name == "sudo" else "u",
        long_flags=frozenset({"non-interactive", "set-home", "stdin"}),
        long_values=frozenset({"user", "group"}),
    )
    split = options.split(argv[1:])
    if split is None or not split[1] or any(value is None for _, value in split[0]):
        return None
    program = split[1][0]
    if program is None or "=" in program:
        return None
    return Understanding(
        action=name,
        arguments=argv[1:],
        grants=frozenset({HOST}),
        inner=(Inner(argv=split[1], on_host=True),),
    )


def _su(argv: Argv) -> Understanding | None:
    words = [word for word in argv[1:] if word not in {"-", "-l", "--login"}]
    if "-c" not in words[:2] or None in words or len(words) > 3:
        return None
    index = words.index("-c")
    if index + 1 >= len(words) or any((word or "-").startswith("-") for word in words[:index]):
        return None
    return Understanding(
        action="su",
        arguments=argv[1:],
        grants=frozenset({HOST}),
        inner=(Inner(text=words[index + 1], posix=True, on_host=True),),
    )


def _nice(argv: Argv) -> Understanding | None:
    words = argv[1:]
    if words and words[0] is not None and re.fullmatch(r"-\d+", words[0]):
        return _around("nice", argv, words[1:])
    split = Options(values="n", long_values=frozenset({"adjustment"})).split(words)
    return None if split is None else _around("nice", argv, split[1])


def _command(argv: Argv) -> Understanding | None:
    if argv[1:2] in {("-v",), ("-V",)}:
        return Understanding(action="command", arguments=argv[1:])
    if argv[1:2] == ("--",):
        return _around("command", argv, argv[2:])
    if len(argv) > 1 and (argv[1] is None or argv[1].startswith("-")):
        return None
    return _around("command", argv, argv[1:])


def _exec(argv: Argv) -> Understanding | None:
    """Read exec; without a command it only keeps redirections, which are checked separately."""
    if len(argv) == 1:
        return Understanding(action="exec")
    if argv[1] is None or argv[1].startswith("-"):
        return None
    return _around("exec", argv, argv[1:])


def _watch(argv: Argv) -> Understanding | None:
    options = Options(
        flags="dtbegcxpw",
        values="nq",
        long_flags=frozenset(
            {"differences", "no-title", "errexit", "chgexit", "color", "exec", "precise"}
        ),
        long_values=frozenset({"interval"}),
    )
    split = options.split(argv[1:])
    if split is None or not split[1]:
        return None
    given, words = split
    if {"x", "exec"} & {name for name, _ in given}:
        return _around("watch", argv, words)
    if None in words:
        return None
    text = " ".join(word for word in words if word is not None)
    return Understanding(action="watch", arguments=argv[1:], inner=(Inner(text=text, posix=True),))


def _flock(argv: Argv) -> Understanding | None:
    options = Options(
        flags="sxeun",
        values="wE",
        long_flags=frozenset({"shared", "exclusive", "nonblock", "close", "verbose"}),
        long_values=frozenset({"timeout", "wait", "conflict-exit-code"}),
    )
    split = options.split(argv[1:])
    if split is None or len(split[1]) < 2:
        return None
    lock, *words = split[1]
    if words[0] in {"-c", "--command"}:
        if len(words) != 2 or words[1] is None:
            return None
        inner = Inner(text=words[1], posix=True)
    else:
        inner = Inner(argv=tuple(words))
    return Understanding(action="flock", arguments=argv[1:], writes=(lock,), inner=(inner,))


def _long(names: Iterable[str]) -> frozenset[str]:
    return frozenset(names)


_TIMEOUT = Options(
    flags="vfp",
    values="ks",
    long_flags=_long({"preserve-status", "foreground", "verbose"}),
    long_values=_long({"kill-after", "signal"}),
)
_STDBUF = Options(values="ioe", long_values=_long({"input", "output", "error"}))
_IONICE = Options(flags="t", values="cn", long_values=_long({"class", "classdata"}))
_SETSID = Options(flags="cfw", long_flags=_long({"ctty", "fork", "wait"}))
_CHRT = Options(flags="bfiorRv", long_flags=_long({"batch", "fifo", "idle", "other", "rr"}))
_TIME = Options(flags="pv", values="f", long_flags=_long({"portability", "verbose"}))

GRAMMARS: dict[str, Callable[[Argv], Understanding | None]] = {
    "env": _env,
    "sudo": _sudo,
    "doas": _sudo,
    "su": _su,
    "timeout": _wrapper("timeout", _TIMEOUT, operands=1),
    "nice": _nice,
    "ionice": _wrapper("ionice", _IONICE),
    "nohup": _wrapper("nohup", Options()),
    "stdbuf": _wrapper("stdbuf", _STDBUF),
    "setsid": _wrapper("setsid", _SETSID),
    "chrt": _wrapper("chrt", _CHRT, operands=1),
    "time": _wrapper("time", _TIME),
    "command": _command,
    "builtin": _wrapper("builtin", Options()),
    "coproc": _wrapper("coproc", Options()),
    "exec": _exec,
    "watch": _watch,
    "flock": _flock,
    **shells.GRAMMARS,
}
