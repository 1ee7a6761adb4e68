"""Prints completion for shells: a static script, because Python starts too slowly for a key."""

from __future__ import annotations

from argparse import SUPPRESS, ArgumentParser, _SubParsersAction
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from escalation.management.command_line import COMMANDS, Entry
from escalation.management.output import TerminalCommand

PROGRAM = "claudeops"


@dataclass(frozen=True, slots=True)
class Words:
    """Words that may follow a command, or a command and its verb."""

    path: str
    words: tuple[str, ...]


def all_words() -> list[Words]:
    first = Words("", (*(entry.name for entry in COMMANDS), "help", "--version", "--help"))
    return [first, *(words for entry in COMMANDS for words in _words_of(entry))]


def _words_of(entry: Entry) -> Iterator[Words]:
    module = import_module(entry.module)
    yield from _follow(module.Command().create_parser(PROGRAM, entry.name), entry.name)


def _follow(parser: ArgumentParser, path: str) -> Iterator[Words]:
    verbs: Mapping[str, ArgumentParser] = {}
    found: list[str] = []
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            # The first name of each parser: the others are old spellings.
            by_parser = {inner: name for name, inner in reversed(action.choices.items())}
            verbs = {name: inner for inner, name in reversed(by_parser.items())}
        elif action.help != SUPPRESS:
            found += [option for option in action.option_strings if option.startswith("--")]
            found += [] if action.option_strings else map(str, action.choices or ())
    yield Words(path, (*verbs, *found))
    for verb, inner in verbs.items():
        yield from _follow(inner, f"{path} {verb}")


def bash(table: list[Words]) -> str:
    cases = "\n".join(
        f'        "{words.path}") known="{" ".join(words.words)}" ;;' for words in table
    )
    return f"""# bash: source <({PROGRAM} completion bash), or put it into ~/.bashrc
_{PROGRAM}() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" path="" known="" part longer
    for part in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
        longer="${{path:+$path }}$part"
        case "$longer" in
        {"|".join(f'"{words.path}"' for words in table if words.path)}) path="$longer" ;;
        esac
    done
    case "$path" in
{cases}
    esac
    COMPREPLY=($(compgen -W "$known" -- "$word"))
    [ "${{#COMPREPLY[@]}}" -gt 0 ] || COMPREPLY=($(compgen -f -- "$word"))
}}
complete -F _{PROGRAM} {PROGRAM}
"""


def zsh(table: list[Words]) -> str:
    cases = "\n".join(f'    "{words.path}") known=({" ".join(words.words)}) ;;' for words in table)
    paths = "|".join(f'"{words.path}"' for words in table if words.path)
    return f"""#compdef {PROGRAM}
# zsh: source <({PROGRAM} completion zsh), or put it into a file _{PROGRAM} on $fpath
_{PROGRAM}() {{
    local where="" longer part
    local -a known
    for part in "${{(@)words[2,CURRENT-1]}}"; do
        longer="${{where:+$where }}$part"
        case "$longer" in
        {paths}) where="$longer" ;;
        esac
    done
    case "$where" in
{cases}
    esac
    compadd -- $known || _files
}}
if [ "$funcstack[1]" = "_{PROGRAM}" ]; then _{PROGRAM} "$@"; else compdef _{PROGRAM} {PROGRAM}; fi
"""


def fish(table: list[Words]) -> str:
    lines = [f"# fish: {PROGRAM} completion fish | source"]
    for words in table:
        plain = " ".join(word for word in words.words if not word.startswith("-"))
        condition = _fish_condition(words.path, plain)
        if plain:
            lines.append(f"complete -c {PROGRAM} -n '{condition}' -f -a '{plain}'")
        under = _fish_condition(words.path, "") or "true"
        lines += [
            f"complete -c {PROGRAM} -n '{under}' -l {word[2:]}"
            for word in words.words
            if word.startswith("--")
        ]
    return "\n".join(lines) + "\n"


def _fish_condition(path: str, following: str) -> str:
    if not path:
        return "__fish_use_subcommand"
    seen = [f"__fish_seen_subcommand_from {part}" for part in path.split()]
    none = f"; and not __fish_seen_subcommand_from {following}" if following else ""
    return "; and ".join(seen) + none


SHELLS: dict[str, Callable[[list[Words]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


class Command(TerminalCommand):
    help = "Print a script with which a shell completes commands, verbs and options."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("shell", choices=list(SHELLS))

    def handle(self, *args: Any, **options: Any) -> str:
        return SHELLS[options["shell"]](all_words())
