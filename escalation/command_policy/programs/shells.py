"""Shells, xargs, find and other programs that build commands."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import dropwhile, takewhile

from escalation.command_policy.understanding import Inner, Understanding, Word

Argv = tuple[Word, ...]

_SHELL_FLAGS = re.compile(r"[-+][efhlnuvxCEs]*(c?)[efhlnuvxCEs]*")
_SHELL_WORDS = {"--norc", "--noprofile", "--login", "--posix"}
_FIND_RUNS = {"-exec", "-execdir", "-ok", "-okdir"}
_FIND_WRITES = {"-fprint": 1, "-fprint0": 1, "-fls": 1, "-fprintf": 2}
_PARALLEL_FLAGS = {"-k", "--keep-order", "--will-cite", "--citation", "-t", "--verbose", "--bar"}
_PARALLEL_VALUES = {"-j", "--jobs", "-P", "--max-procs", "--timeout", "--delay", "--retries"}
_PLACEHOLDER = re.compile(r"\{[^{}\s]*\}")


def _shell(argv: Argv) -> Understanding | None:
    """Read `sh -c TEXT` or text on standard input. The content of a script file is unknown."""
    posix = argv[0] != "bash"
    words = list(argv[1:])
    takes_text = False
    while words and words[0] is not None and re.match(r"[-+].", words[0]):
        word = words.pop(0)
        flags = _SHELL_FLAGS.fullmatch(word or "")
        if word == "--":
            break
        if word in {"-o", "+o", "-eo", "-euo", "-euxo"}:
            if not words or words.pop(0) not in {"pipefail", "errexit", "nounset", "xtrace"}:
                return None
        elif word not in _SHELL_WORDS:
            if flags is None:
                return None
            takes_text = takes_text or bool(flags[1])
    if takes_text:
        if not words or words[0] is None:
            return None
        inner = Inner(text=words[0], posix=posix)
    elif not words or "-s" in argv or words == ["-"]:
        inner = Inner(from_stdin=True, posix=posix)
    else:
        return None
    return Understanding(action=argv[0] or "", arguments=argv[1:], inner=(inner,))


def _eval(argv: Argv) -> Understanding | None:
    if None in argv:
        return None
    text = " ".join(word for word in argv[1:] if word is not None)
    return Understanding(
        action="eval", arguments=argv[1:], inner=(Inner(text=text, same_shell=True),)
    )


def _trap(argv: Argv) -> Understanding | None:
    if None in argv:
        return None
    words = argv[2:] if argv[1:2] == ("--",) else argv[1:]
    silent = not words or words[0] in {"-", "", "-p", "-l"}
    inner = () if silent else (Inner(text=words[0], same_shell=True),)
    return Understanding(action="trap", arguments=argv[1:], inner=inner)


def _xargs(argv: Argv) -> Understanding | None:
    """Read xargs: its input becomes the last words or replaces a placeholder."""
    words = list(argv[1:])
    placeholder: str | None = None
    while words and words[0] is not None and words[0].startswith("-"):
        word = words.pop(0) or ""
        if word == "--":
            break
        value = word[2:]
        if re.fullmatch(r"-[0rtx]+|--null|--no-run-if-empty|--verbose|--exit", word):
            continue
        if re.match(r"--(max-args|max-procs|max-lines|delimiter|max-chars)=", word):
            continue
        if word[:2] not in {"-I", "-n", "-P", "-L", "-d", "-s", "-E", "-a"}:
            return None
        if not value:
            if not words or words[0] is None:
                return None
            value = words.pop(0) or ""
        if word[:2] == "-I":
            placeholder = value
    if placeholder is None:
        command = (*words, None) if words else ("echo", None)
    else:
        command = _with_holes(tuple(words), lambda word: placeholder in word)
    return Understanding(action="xargs", arguments=argv[1:], inner=(Inner(argv=command),))


def _with_holes(words: Argv, is_hole: Callable[[str], bool]) -> Argv:
    return tuple(None if word is None or is_hole(word) else word for word in words)


def _find(argv: Argv) -> Understanding | None:
    if None in argv or "-files0-from" in argv:
        return None
    words = [word for word in argv[1:] if word is not None]
    inner: list[Inner] = []
    writes: list[Word] = []
    index = 0
    while index < len(words):
        word = words[index]
        if word in _FIND_RUNS:
            end = _end_of_exec(words, index + 1)
            if end is None or end == index + 1:
                return None
            command = _with_holes(tuple(words[index + 1 : end]), lambda word: "{}" in word)
            inner.append(Inner(argv=command))
            index = end
        elif word == "-delete":
            writes.extend(_roots(words) or ["."])
        elif word in _FIND_WRITES:
            writes.extend(words[index + 1 : index + 2] or [None])
            index += _FIND_WRITES[word]
        index += 1
    return Understanding(
        action="find",
        arguments=argv[1:],
        writes=tuple(writes),
        inner=tuple(inner),
        why="writes or removes files" if writes else "",
    )


def _roots(words: list[str]) -> list[str]:
    """Return the starting points of find, which are before its first test."""
    options = re.compile(r"-[HLP]|-O\d")
    places = dropwhile(options.fullmatch, words)
    return list(takewhile(lambda word: not re.match(r"[-(!,]", word), places))


def _end_of_exec(words: list[str], begin: int) -> int | None:
    for index in range(begin, len(words)):
        if words[index] == ";" or (words[index] == "+" and words[index - 1] == "{}"):
            return index
    return None


def _fd(argv: Argv) -> Understanding | None:
    if None in argv:
        return None
    runs = re.compile(r"--exec.*|-[a-zA-Z]*[xX].*", re.DOTALL)
    index = next((index for index, word in enumerate(argv) if runs.fullmatch(word or "")), None)
    if index is None:
        return Understanding(action="fd", arguments=argv[1:])
    command = argv[index + 1 :]
    known = argv[index] in {"-x", "-X", "--exec", "--exec-batch"}
    if not known or not command or ";" in command:
        return None
    named = any(_PLACEHOLDER.search(word or "") for word in command)
    holes = _with_holes(command, lambda word: _PLACEHOLDER.search(word) is not None)
    inner = Inner(argv=holes if named else (*command, None))
    return Understanding(action="fd", arguments=argv[1:], inner=(inner,))


def _parallel(argv: Argv) -> Understanding | None:
    """Read parallel, whose command is shell text with quoted arguments."""
    if None in argv or ":::" not in argv:
        return None
    words = [word for word in argv[1:] if word is not None]
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in _PARALLEL_VALUES:
            del words[:1]
        elif word not in _PARALLEL_FLAGS and not re.fullmatch(r"(-j|--jobs=)\d+", word):
            return None
    mark = words.index(":::")
    template, arguments = words[:mark], words[mark + 1 :]
    if any(word.startswith("::") for word in arguments):
        return None
    text = " ".join(template)
    if template:
        filled = _PLACEHOLDER.sub('"$argument"', text)
        texts = [filled if filled != text else f'{text} "$argument"']
    else:
        texts = arguments
    inner = tuple(Inner(text=one, posix=True) for one in texts)
    return Understanding(action="parallel", arguments=argv[1:], inner=inner)


GRAMMARS: dict[str, Callable[[Argv], Understanding | None]] = {
    **dict.fromkeys(("sh", "bash", "dash", "ash"), _shell),
    "eval": _eval,
    "trap": _trap,
    "xargs": _xargs,
    "find": _find,
    **dict.fromkeys(("fd", "fdfind"), _fd),
    "parallel": _parallel,
}
