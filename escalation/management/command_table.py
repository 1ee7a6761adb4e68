"""Every command of ours: its group, what it is for, and how it can end.

The help, the completion of shells and docs/commands.md are made from this table or held to it. A
new command gets a row here; a test fails while it has none.
"""

from __future__ import annotations

from dataclasses import dataclass

GROUPS = {
    "watch": "What is looked after",
    "run": "Let it run",
    "look": "See what happened",
    "rehearse": "Rehearse and measure, at no cost",
    "operate": "Keep Claude Ops itself running",
}


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    group: str
    summary: str
    exits: tuple[int, ...] = (0, 2)


COMMANDS = (
    Entry("watch", "watch", "list, show, add, edit, trust, remove, pause or unpause watches"),
    Entry("run_cycle", "run", "run one cycle of a watch", (0, 1, 2)),
    Entry("session", "run", "list, show, stop, ask, fork, retry or escalate sessions", (0, 1, 2)),
    Entry("approval", "run", "what waits for a person, and the answer", (0, 1, 2)),
    Entry("pause", "run", "stop all new tiers at once"),
    Entry("unpause", "run", "let tiers start again"),
    Entry("limit", "run", "whether tiers wait for the account's own limit; --lift ends that"),
    Entry("status", "look", "what runs, what needs you, what is next, what today cost", (0, 1, 2)),
    Entry("incident", "look", "what is wrong and who has it; acknowledge, resolve", (0, 1, 2)),
    Entry("cycles", "look", "the latest cycles and how they ended"),
    Entry("chain", "look", "the chain of tiers that a session is part of"),
    Entry("logs", "look", "what a session says, or all of them; -f goes on as it happens"),
    Entry("open", "look", "print the address of a session's page"),
    Entry("digest", "look", "what was fixed, needs you, was changed, cost and is flaky"),
    Entry("drill", "rehearse", "play an incident: the real CLI, a scripted model", (0, 1, 2)),
    Entry("walls", "rehearse", "try the walls by effect, in a scratch installation", (0, 1, 2)),
    Entry("screenshots", "rehearse", "make the README's pictures from drills; for development"),
    Entry("chaos", "rehearse", "let things die in a scratch installation, and check", (0, 1, 2)),
    Entry("bench", "rehearse", "what it costs on this machine to run and to stand still"),
    Entry("up", "operate", "set up, start web server and worker, stop both on Ctrl-C"),
    Entry("web", "operate", "the web server alone, for a service manager"),
    Entry("worker", "operate", "the queue worker alone, for a service manager"),
    Entry("doctor", "operate", "what the installed CLI really does, and which walls hold it"),
    Entry("target", "operate", "who is told: add, test, switch and remove targets", (0, 1, 2)),
    Entry("config", "operate", "every setting, its value, and where it comes from"),
    Entry("recover", "operate", "bring sessions whose runner died to a true end"),
    Entry("clean", "operate", "expire, archive and prune now"),
    Entry("rollups", "operate", "whether the kept sums are right, by recomputing", (0, 1, 2)),
    Entry("unlock", "operate", "forget failed logins"),
    Entry("backup", "operate", "database, keys, archive and settings in one file"),
    Entry("restore", "operate", "bring a backup back"),
    Entry("upgrade", "operate", "bring the database to this version; --check only says", (0, 1, 2)),
    Entry("completion", "operate", "print the completion for bash, zsh or fish"),
)
BY_NAME = {entry.name: entry for entry in COMMANDS}


def in_group(group: str) -> list[Entry]:
    return [entry for entry in COMMANDS if entry.group == group]
