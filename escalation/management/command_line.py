"""The command line: `claudeops` with the commands of Claude Ops, `manage.py` with Django's too.

The help, the completion of shells and docs/commands.md follow the table of commands in this module.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from escalation.management.output import ExitCode

IN_CHECKOUT = (Path(__file__).resolve().parents[2] / "tests" / "devtools").is_dir()
GROUPS = {
    "watch": "Watches",
    "run": "Run and control sessions",
    "look": "See what happened",
    "drills": "Drills and checks, at no cost",
    "operate": "Operate Claude Ops",
    **({"development": "For development, in a checkout"} if IN_CHECKOUT else {}),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A command with its group, its summary and its exit codes."""

    name: str
    group: str
    summary: str
    exits: tuple[int, ...] = (0, 2)

    @property
    def module(self) -> str:
        package = "tests.devtools" if self.group == "development" else "escalation"
        return f"{package}.management.commands.{self.name}"


COMMANDS = (
    Entry("watch", "watch", "list, show, add, edit, remove, pause watches; set their autonomy"),
    Entry(
        "remedy",
        "watch",
        "list, show, add, run, accept, remove what agents call by name",
        (0, 1, 2),
    ),
    Entry("probe", "watch", "add, list, run, mute, remove looks without a model", (0, 1, 2)),
    Entry("maintenance", "watch", "start, end, list windows in which failures are expected"),
    Entry("run_cycle", "run", "run one cycle of a watch", (0, 1, 2)),
    Entry("session", "run", "list, show, stop, ask, attach, fork, retry or escalate", (0, 1, 2)),
    Entry("approval", "run", "list, show, approve or reject what waits for a person", (0, 1, 2)),
    Entry("pause", "run", "start no new sessions until `unpause`"),
    Entry("unpause", "run", "let sessions start again"),
    Entry("rate_limit", "run", "show whether sessions wait for the rate limit; --lift ends that"),
    Entry("status", "look", "show what runs, is next and needs you, and today's cost", (0, 1, 2)),
    Entry("search", "look", "search names, reports, answers, commands and their output"),
    Entry("events", "look", "list incidents, notifications and what people changed"),
    Entry("incident", "look", "list and show incidents; acknowledge, snooze, resolve", (0, 1, 2)),
    Entry("services", "look", "list the services that reports have named, worst first"),
    Entry("change", "look", "list and show what was changed; undo an edit of a file"),
    Entry("costs", "look", "show costs by tier, model and watch, and the budgets"),
    Entry("cycles", "look", "list the latest cycles with their outcome"),
    Entry("chain", "look", "show the chain of a session"),
    Entry("logs", "look", "print the events of a session, or of all; -f follows"),
    Entry("open", "look", "print the address of a session's page"),
    Entry("digest", "look", "print what was fixed, changed, cost, is flaky and needs you"),
    Entry("drill", "drills", "play an incident with the real CLI and a scripted model", (0, 1, 2)),
    Entry("sandbox", "drills", "prove by effect that the sandboxes hold", (0, 1, 2)),
    Entry("up", "operate", "set up, start web server and worker, stop both on Ctrl-C"),
    Entry("web", "operate", "run the web server alone, for a service manager"),
    Entry("worker", "operate", "run the queue worker alone, for a service manager"),
    Entry("doctor", "operate", "test the installed CLI, its sandbox and the login"),
    Entry("channel", "operate", "add, test, switch and remove notification channels", (0, 1, 2)),
    Entry("source", "operate", "add, list, test and remove sources of alerts; their deliveries"),
    Entry("apply", "operate", "apply configuration files, after showing the plan", (0, 1, 2)),
    Entry("export", "operate", "write what is configured as a file for `apply`"),
    Entry("mcp", "operate", "serve the record as tools for other agents, on standard streams"),
    Entry("token", "operate", "make, list and revoke tokens of the API"),
    Entry("config", "operate", "list every setting with its value and source"),
    Entry("recover", "operate", "end or continue sessions whose worker died"),
    Entry("clean", "operate", "expire, archive and prune now"),
    Entry("rollups", "operate", "check the stored sums of costs by recomputing them", (0, 1, 2)),
    Entry("account", "operate", "list, add and disable accounts; set roles and passwords"),
    Entry("unlock", "operate", "forget failed logins of a name or an address"),
    Entry("backup", "operate", "write database, keys, archive and settings to one file"),
    Entry("restore", "operate", "restore a backup"),
    Entry(
        "upgrade",
        "operate",
        "migrate the database; --check only reports",
        (0, 1, 2),
    ),
    Entry("completion", "operate", "print the completion for bash, zsh or fish"),
    *(
        (
            Entry("screenshots", "development", "make the pictures of the README from drills"),
            Entry("chaos", "development", "inject faults into a scratch installation", (0, 1, 2)),
            Entry("bench", "development", "measure sessions, idle load, pages and the sandbox"),
        )
        if IN_CHECKOUT
        else ()
    ),
)
BY_NAME = {entry.name: entry for entry in COMMANDS}
# Spellings of version 0.2, still understood.
OLD_NAMES = {
    "limit": "rate_limit",
    "target": "channel",
    "walls": "sandbox prove",
    "watch trust": "watch autonomy",
}
# Lists by the plural of what they show.
PLURALS = {
    "approvals": "approval list",
    "changes": "change list",
    "channels": "channel list",
    "incidents": "incident list",
    "probes": "probe list",
    "remedies": "remedy list",
    "sessions": "session list",
    "sources": "source list",
    "watches": "watch list",
}
WIDTH = max(len(entry.name) for entry in COMMANDS) + 2


def in_group(group: str) -> list[Entry]:
    return [entry for entry in COMMANDS if entry.group == group]


def current_spelling(words: Sequence[str]) -> list[str]:
    """Return the words with the command's name of today, and with `_` for `-` in it."""
    first, *rest = words
    words = [first.replace("-", "_"), *rest]
    for old, new in (OLD_NAMES | PLURALS).items():
        length = len(old.split())
        if words[:length] == old.split():
            return [*new.split(), *words[length:]]
    return words


def help_lines(program: str, heading: Callable[[str], str], *, with_django: bool) -> Iterator[str]:
    yield f"{program} COMMAND …    Claude Code on call"
    for group, title in GROUPS.items():
        yield ""
        yield heading(f"{title} ({group})")
        for entry in in_group(group):
            yield f"  {entry.name:{WIDTH}}{entry.summary}"
    yield ""
    yield f"{program} COMMAND --help describes a command; {program} --version prints the version."
    yield "Exit codes: 0 success, 1 a person is needed, 2 it could not run or was refused."
    if with_django:
        yield f"Django's own commands work here as well: {program} help --commands lists them."


PROGRAM, DJANGO_PROGRAM = "claudeops", "manage.py"
HELP_WORDS = {"", "help", "-h", "--help"}


def main() -> None:
    """Run `claudeops`, `manage.py` or `python -m escalation.management`."""
    os.umask(0o077)  # files of Claude Ops are private to its user
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "claudeops.settings")
    with_django = Path(sys.argv[0]).name == DJANGO_PROGRAM
    sys.exit(run(sys.argv[1:], DJANGO_PROGRAM if with_django else PROGRAM, with_django=with_django))


def run(words: Sequence[str], program: str, *, with_django: bool) -> int:
    """Run a command line. A command may also raise SystemExit with its exit code."""
    first, *rest = words or [""]
    if first in HELP_WORDS and not rest:
        return _print_help(program, with_django=with_django)
    if first == "--version" and not rest:
        return _print_version()
    if first == "help" and (named := current_spelling(rest))[0] in BY_NAME:
        return _execute(program, *named, "--help")
    named = current_spelling([first, *rest])
    if named[0] in BY_NAME:
        return _execute(program, *named)
    if with_django:
        return _execute(program, *words)
    return _refuse_unknown(program, first)


def _execute(program: str, *words: str) -> int:
    from django.core.management import ManagementUtility

    ManagementUtility([program, *words]).execute()
    return ExitCode.WELL


def _print_help(program: str, *, with_django: bool) -> int:
    from django.core.management.color import color_style

    heading = color_style().MIGRATE_HEADING
    print("\n".join(help_lines(program, heading, with_django=with_django)))
    return ExitCode.WELL


def _print_version() -> int:
    from django.conf import settings

    print(f"Claude Ops {settings.CLAUDEOPS_VERSION}")
    return ExitCode.WELL


def _refuse_unknown(program: str, name: str) -> int:
    meant = get_close_matches(name, BY_NAME, 1)
    remedy = f"Did you mean {meant[0]}?" if meant else f"{program} help lists the commands."
    print(f"{program} has no command {name!r}. {remedy}", file=sys.stderr)
    return ExitCode.REFUSED
