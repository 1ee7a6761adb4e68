"""What a command comes to: each part of it held against the policy, and all findings together."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto

from escalation.gate.beside_keys import KEY_DOORS, reads_files, takes_a_file_in
from escalation.gate.doors import AGENT, HOST, MEANING, SSH
from escalation.gate.findings import Findings
from escalation.gate.hosts import HOST_PROGRAMS
from escalation.gate.places import Where, directories_after, program_name, where
from escalation.gate.policy import GatePolicy
from escalation.gate.rules import Match, allows, forbids
from escalation.gate.shell import Command, Script, read
from escalation.gate.supervisor import touches_supervisor
from escalation.gate.understanding import FULL, LOOK, NEVER, SAFE, Inner, Understanding, Word
from escalation.gate.wording import in_short, plainly

_DEEPEST = 8
_MOST_COMMANDS = 500
_MOST_INNER_CHARACTERS = 16_000
_READ_DIFFERENTLY = re.compile(
    r"\$['\"\[]|&>|>&[^\d-]|\|&|<<<|\{[^}]*(,|\.\.)|\[\[|\(\(|[<>]\(|\bfunction\b|\bselect\b"
    r"|\bcoproc\b|\btime\b|\bsource\b|\+="
)
"""What bash and a smaller shell do not read alike."""
_CHANGE_THE_SHELL = {"exec", "eval", "trap"}
"""After `exec < file` every command reads that file."""
_FEED_THEMSELVES = {"xargs", "find", "fd", "watch", "parallel", "coproc"}
"""These read themselves what they are given, or start several that share it."""

_SAYS_NOTHING = {"", "\n", "Q\n"}
"""What is piped into a program so that it ends: `echo | openssl s_client …`."""

_READ_NOTHING: set[tuple[Word, ...]] = {
    *((name,) for name in ("echo", "printf", "cd", "set", "true", "false", ":", "ls", "pwd", "df")),
    *((name,) for name in ("free", "uptime", "date", "hostname", "id", "systemctl", "sleep")),
    *(("docker", verb) for verb in ("ps", "logs", "inspect", "restart", "stop", "kill", "images")),
}


class Place(Enum):
    ROOM = auto()
    HOST = auto()
    ELSEWHERE = auto()


@dataclass(frozen=True, slots=True)
class _At:
    """Where a part of the command runs, and how it got there."""

    place: Place = Place.ROOM
    depth: int = 0
    alone: bool = False
    """The whole command is nothing but this."""


class Judge:
    """Judges one command; not to be used for a second."""

    def __init__(
        self, policy: GatePolicy, understand: Callable[[tuple[Word, ...]], Understanding | None]
    ) -> None:
        self.policy = policy
        self.tier = 1 if policy.changes_nothing else policy.tier
        self.understand = understand
        self.findings = Findings()
        self.directories: tuple[Word, ...] = (policy.workdir,)
        self.any_bash = "Bash" in policy.allowed
        self.judged = self.characters = 0
        self.part: tuple[Word, ...] = ()
        """The simple command that is being judged."""

    def judge(self, text: str) -> Findings:
        script = read(text)
        self._script(script, _At(alone=script.is_one_command))
        if self.findings.doors:
            self.findings.unknown.extend(self.findings.unseen)
        if KEY_DOORS & self.findings.doors:
            self._beside_keys(text)
        return self.findings

    def _beside_keys(self, text: str) -> None:
        keyed = self.findings.wanting_doors[0]
        if takes_a_file_in(text):
            self._deny("beside keys", f"Run {keyed} by itself, without `<`: it has keys in reach.")
        for shown in self.findings.readers[:1]:
            self._deny(
                "beside keys",
                f"`{shown}` could read the keys that {keyed} has in reach: run them one by one.",
            )

    def _script(self, script: Script, at: _At, stdin: Word = "") -> None:
        self.findings.may_repeat |= script.may_repeat
        for problem in script.problems:
            self._unknown(problem, at)
        for what in script.unseen:
            self._without_doors(what, at)
        for name in sorted(script.functions):
            if any(self.understand((name, *words)) for words in ((), ("--version",))):
                self._unknown(f"`{name}` is given another meaning", at)
        commands = [command.words for command in script.commands]
        self.directories = directories_after(commands, self.directories)
        # Of several commands nobody knows which one reads how much.
        shared = stdin if not stdin or script.is_one_command else None
        if any(_CHANGE_THE_SHELL.intersection(command.words) for command in script.commands):
            shared = None
        for command in script.commands:
            self._command(command if command.stdin != "" else replace(command, stdin=shared), at)

    def _command(self, command: Command, at: _At) -> None:
        self.judged += 1
        self.part = command.words
        if self.judged > _MOST_COMMANDS or at.depth > _DEEPEST:
            self._unknown("so many commands in one", at)
            return
        self._writes(command.writes, in_short(command.words) or ">", at)
        written = self._beside(command.writes, at)
        self.findings.changes += [plainly(("write", path)) for path in written]
        if command.words and not command.calls_function:
            self._program(command, at)

    def _program(self, command: Command, at: _At) -> None:
        argv, shown = command.words, in_short(command.words)
        if argv[0] is None or re.search(r"[*?\[~]", argv[0].removeprefix("[")):
            self._unknown("a program whose name is computed", at)
            return
        name = program_name(argv[0], self.policy)
        if name is None:
            self._rules(argv, (), shown, at)
            self._unknown(f"`{argv[0]}`, a program that may be anything", at)
            return
        argv = (name, *argv[1:])
        self._rules(argv, (), shown, at)
        understood = self.understand(argv)
        if understood is None:
            self._narrow(argv, shown)
            self._unknown(f"`{shown}`", at)
            return
        if held := touches_supervisor(understood, self.policy.supervisor):
            self._deny(
                "the supervisor's own",
                f"`{shown}` would end or change {held}, which holds this run: that is for no tier. "
                "Leave it to a person, and say so in your report.",
            )
        action = tuple(understood.action.split())
        self._rules((*action, *understood.arguments), action, shown, at)
        if not understood.inner:
            self._narrow((*action, *understood.arguments), shown)
            done = (*action, *understood.arguments)
            self.findings.actions.append(in_short(done))
            self.findings.changes += [plainly(done)] if self._changes(understood, at) else []
        self._understood(understood, shown, at)
        if understood.sends_input and command.stdin not in _SAYS_NOTHING:
            self._level(SAFE, shown, "sends what it reads; only with `</dev/null` it does not")
        if at.place is Place.ROOM and not understood.inner and not KEY_DOORS & understood.doors:
            self.findings.readers += [shown] if reads_files(argv) else []
        self.findings.readers += [shown] if self._needs_agent(understood) else []
        for inner in understood.inner:
            self._inner(inner, understood, command, at)

    def _changes(self, understood: Understanding, at: _At) -> bool:
        """More than the room's own files."""
        if not understood.doors and understood.writes and not self._beside(understood.writes, at):
            return False
        return understood.level > LOOK or bool(understood.writes)

    def _beside(self, paths: tuple[Word, ...], at: _At) -> list[Word]:
        """Of the paths that are written: those that are not the room's own."""
        if at.place is not Place.ROOM:
            return list(paths)
        found = [(path, where(path, self.policy, self.directories)) for path in paths]
        return [path for path, place in found if place is not Where.PRIVATE]

    def _rules(self, words: tuple[Word, ...], action: tuple[str, ...], shown: str, at: _At) -> None:
        for rule in self.policy.denied:
            match = forbids(rule, words, action)
            if match is Match.YES:
                self._deny(
                    f"denied by {rule}",
                    f"`{shown}` is denied at this tier by the rule {rule}. {self._instead()}",
                )
            elif match is Match.MAYBE:
                self._unknown(f"`{shown}`, which may be what {rule} denies", at)
        for rule in self.policy.ask:
            if forbids(rule, words, action) is not Match.NO:
                self.findings.asks.append((rule, shown))

    def _narrow(self, words: tuple[Word, ...], shown: str) -> None:
        """Rules of an operator that allow some commands of Bash, and so no others."""
        if self.any_bash or any(allows(rule, words) for rule in self.policy.allowed):
            return
        rules = ", ".join(rule for rule in self.policy.allowed if rule.startswith("Bash"))
        self._deny(
            "not among the allowed commands",
            f"`{shown}` is not among what this tier may run: {rules or 'nothing of Bash'}. "
            f"{self._instead()}",
        )

    def _understood(self, understood: Understanding, shown: str, at: _At) -> None:
        level = understood.level
        places = {where(path, self.policy, self.directories) for path in understood.writes}
        private = bool(places) and places == {Where.PRIVATE} and at.place is Place.ROOM
        if level == SAFE and private and not understood.doors:
            level = LOOK
        self._level(level, shown, understood.why)
        if HOST in understood.doors and not any(inner.on_host for inner in understood.inner):
            at = self._needing_host(shown, at)
        elif at.place is Place.HOST and understood.action.split()[0] not in HOST_PROGRAMS:
            self._deny(
                "works in the room",
                f"`{shown}` does not run on the host itself: leave `sudo` out, it works without.",
            )
        self._writes(understood.writes, shown, at)
        doors = understood.doors - {HOST}
        if self._needs_agent(understood) and SSH in doors & self.policy.doors.names:
            doors = self._by_agent(doors, shown, at)
        for door in sorted(doors):
            self._door(door, shown, at)
        if understood.runs_unseen:
            self._without_doors(f"`{shown}` may run what files name", at)

    def _without_doors(self, what: str, at: _At) -> None:
        what = f"{what}, and no door may be open beside it"
        # Without rooms everything is open, and from Tier 2 on those files are the model's to write.
        if at.place is Place.ROOM and (self.policy.rooms or self.tier < SAFE):
            self.findings.unseen.append(what)
        else:
            self._unknown(what, at)

    def _level(self, level: int, shown: str, why: str = "") -> None:
        if level > LOOK:
            self.findings.effects.append(" ".join(word or "" for word in self.part))
        because = f": it {why}" if why else ""
        if level >= NEVER:
            self._deny(
                "for no tier",
                f"`{shown}` is for no tier{because}. Leave it to a person, and say so in your "
                "report.",
            )
        elif level > self.tier:
            said = f"`{shown}` is not for Tier {self.tier}{because}."
            if self.policy.changes_nothing:
                said = f"`{shown}` would change something{because}."
            self._deny(f"needs Tier {level}", f"{said} {self._instead()}")

    def _instead(self) -> str:
        if self.policy.changes_nothing:
            return "This is a dry run: report what you would have done."
        if self.policy.tier >= FULL:
            return "Leave it to a person, and say so in your report."
        return "Ask for escalation and say why."

    def _needs_agent(self, understood: Understanding) -> bool:
        """A playbook is Tier 3's own work: where there is no agent, it has the keys for it."""
        has_agent = self.policy.ssh_agent and self.policy.rooms
        with_keys = self.tier >= FULL and not understood.sends_files and not has_agent
        return understood.needs_agent and not with_keys

    def _by_agent(self, doors: frozenset[str], shown: str, at: _At) -> frozenset[str]:
        if at.place is Place.ROOM and not (self.policy.ssh_agent and self.policy.rooms):
            self._deny(
                "keys beside files",
                f"`{shown}` could send the operator's keys along, which lie beside its files. The "
                "operator can run an ssh-agent, so that none has to: say so in your report.",
            )
        return doors - {SSH} | {AGENT}

    def _door(self, door: str, shown: str, at: _At) -> None:
        if at.place is Place.ELSEWHERE:
            return
        if door not in self.policy.doors.names | {AGENT}:
            self._deny(
                f"door {door} is closed",
                f"`{shown}` needs the door `{door}` ({MEANING.get(door, door)}), which is closed "
                "here. The operator can open it for this tier or watch: say so in your report.",
            )
        elif at.place is Place.ROOM:
            self.findings.doors.add(door)
            self.findings.wanting_doors.append(f"`{shown}`")

    def _writes(self, paths: tuple[Word, ...], shown: str, at: _At) -> None:
        for path in paths:
            if at.place is Place.ELSEWHERE:
                self._level(FULL, shown, "writes a file outside this host's rooms")
                continue
            found = where(path, self.policy, self.directories)
            if found is Where.PRIVATE and at.place is Place.ROOM:
                continue
            if found is Where.UNKNOWN:
                self._unknown(f"`{shown}`, which writes a file whose place is computed", at)
                continue
            if found is Where.OURS or self.tier < SAFE:
                # On the host a link in the working directory leads out of it, as root.
                lowest = FULL if at.place is Place.HOST else SAFE
                self._level(lowest, shown, f"writes {path}")
            else:
                self._deny(
                    "writes outside",
                    f"{path} lies outside the working directory, and `{shown}` would write it. "
                    f"The operator can open it with `write:{path}`: say so in your report.",
                )

    def _inner(self, inner: Inner, understood: Understanding, command: Command, at: _At) -> None:
        below = replace(at, depth=at.depth + 1)
        self.findings.may_repeat |= understood.action.split()[0] in _FEED_THEMSELVES
        if inner.elsewhere:
            below = replace(below, place=Place.ELSEWHERE, alone=False)
        if inner.on_host:
            below = self._to_host(inner, in_short(command.words), below)
        fed = understood.action.split()[0] not in _FEED_THEMSELVES
        stdin = command.stdin if fed else None
        if inner.argv:
            self._command(Command(words=inner.argv, stdin=stdin), below)
            return
        text = stdin if inner.from_stdin else inner.text
        if text is None:
            self._unknown(f"`{in_short(command.words)}`, which runs a computed text", below)
        elif (inner.posix or below.place is Place.ELSEWHERE) and _READ_DIFFERENTLY.search(text):
            self._unknown("a text that not every shell reads alike: use `bash -c`", below)
        else:
            self._text(text, inner, replace(below, alone=False), stdin)

    def _text(self, text: str, inner: Inner, at: _At, stdin: Word) -> None:
        self.characters += len(text)
        if self.characters > _MOST_INNER_CHARACTERS:
            self._unknown("so many commands in one", at)
            return
        script = read(text, inherits=True, knows_values=not inner.same_shell)
        if not inner.from_stdin:
            self._script(script, at, stdin)
            return
        self._script(script, at)
        if not all(map(_reads_nothing, script.commands[:-1])):
            self._unknown("a text that a shell and its commands read at once: use `bash -c`", at)

    def _to_host(self, inner: Inner, shown: str, at: _At) -> _At:
        if at.place is Place.ELSEWHERE:
            self._level(SAFE, shown, "acts as another user")
            return at
        self._host(shown, at)
        if not inner.argv or None in inner.argv or at.depth > 1:
            self._deny(
                "host: one plain command",
                f"`{shown}` would run more than one plain program on the host itself. Write it "
                "as in `sudo systemctl restart web`.",
            )
        return replace(at, place=Place.HOST)

    def _needing_host(self, shown: str, at: _At) -> _At:
        """A program that says of itself that no room is enough."""
        if at.place is not Place.ROOM:
            return at
        self._host(shown, replace(at, alone=at.alone and at.depth == 0))
        return replace(at, place=Place.HOST)

    def _host(self, shown: str, at: _At) -> None:
        if self.tier < SAFE:
            self._deny(
                "no host at Tier 1",
                f"`{shown}` would run on the host itself, which Tier 1 never does. Leave `sudo` "
                f"out: reading works without. If it has to be: {self._instead()}",
            )
        elif not at.alone:
            self._deny(
                "host: one plain command",
                f"`{shown}` runs on the host itself: run it by itself, without pipes, lists, "
                "variables and redirections.",
            )
        elif HOST not in self.policy.doors.names:
            self._door(HOST, shown, replace(at, place=Place.ROOM))
        else:
            self.findings.doors.add(HOST)
            self.findings.wanting_doors.append(f"`{shown}`")

    def _unknown(self, what: str, at: _At) -> None:
        self.findings.unknown.append(what)
        if at.place is not Place.ROOM:
            self._deny(
                "not understood, and no room there",
                f"Not understood: {what}. No room holds it there: write it in plain words. "
                f"{self._instead()}",
            )
        elif not self.any_bash:
            self._narrow((None,), what.strip("`"))

    def _deny(self, rule: str, reason: str) -> None:
        self.findings.denials.append((rule, reason))


def _reads_nothing(command: Command) -> bool:
    """Whether it leaves to its shell what both could read: a line that `read` or `cat` takes out
    of a shell's text makes another text of it."""
    words = command.words
    return words[:1] in _READ_NOTHING or words[:2] in _READ_NOTHING
