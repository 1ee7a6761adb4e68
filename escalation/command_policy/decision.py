"""The command policy: decides on a command by its parts, the tier and the grants."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache

from escalation.command_policy import programs
from escalation.command_policy.grants import AGENT, HOST, KUBE, MEANING, SSH, Grants
from escalation.command_policy.protected import Supervisor, touches_supervisor
from escalation.command_policy.shell import Command, Script, read
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Inner,
    Understanding,
    Word,
)
from sessions_app.models.session import Verdict

# Programs beside `ssh` or `kubectl` in one command.
#
# The sandbox of such a command has the keys, and a program that reads files could read them. Only
# programs that read nothing but their input are allowed: `ssh host df | grep data | head -3`.

KEY_GRANTS = frozenset({SSH, KUBE})

# Number of operands that are not files.
_OPERANDS = {
    **dict.fromkeys(("head", "tail", "wc", "sort", "uniq", "cut", "cat", "nl", "tac", "rev"), 0),
    **dict.fromkeys(("column", "fold", "true", "false", ":", "exit", "break", "continue"), 0),
    **dict.fromkeys(("grep", "egrep", "fgrep", "awk", "sed", "jq"), 1),
    "tr": 2,
    "sleep": 1,
}
_SAY_WHAT_THEY_ARE_GIVEN = ("echo", "printf")
# Short flags alone, and numbers for their values: a long option may name a file.
_FLAG = re.compile(r"-[^/~]*")
_NUMBER = re.compile(r"[0-9,\-]+")
_FROM_FILE = {
    **dict.fromkeys(("grep", "egrep", "fgrep", "awk", "sed"), "f"),
    "sort": "TSo",
    "jq": "fL",
}
_EMPTY_INPUT = re.compile(r"<\s*/dev/null(?![\w./-])")


def reads_files(argv: tuple[Word, ...]) -> bool:
    """Return whether a program could read a file by these words."""
    name, *words = argv
    if name in _SAY_WHAT_THEY_ARE_GIVEN:
        return False
    allowed = _OPERANDS.get(name or "")
    if allowed is None or None in words:
        return True
    known = [word for word in words if word is not None]
    flags = [word for word in known if word.startswith("-")]
    if any(not _is_plain_flag(name or "", flag) for flag in flags):
        return True
    others = [word for word in known if not word.startswith("-") and not _NUMBER.fullmatch(word)]
    return len(others) > allowed


def takes_a_file_in(text: str) -> bool:
    """Return whether a redirection may read a file: `< key`, `$(<key)`."""
    return "<" in _EMPTY_INPUT.sub("", text)


def _is_plain_flag(name: str, flag: str) -> bool:
    if flag.startswith("--") or not _FLAG.fullmatch(flag):
        return False
    return not set(flag) & set(_FROM_FILE.get(name, ""))


# Programs that may run on the host. Others could read as root what a sandbox hides: state, keys,
# other processes.

HOST_PROGRAMS = frozenset(
    {
        *("sudo", "doas", "timeout", "nice", "ionice"),
        *("systemctl", "service", "journalctl", "loginctl", "timedatectl", "hostnamectl"),
        *("dmesg", "kill", "pkill", "killall", "crontab", "reboot", "shutdown"),
        *("apt", "apt-get", "dpkg", "dnf", "yum", "apk", "pacman", "zypper", "snap"),
        *("ufw", "iptables", "ip6tables", "nft", "ip", "ss", "lsof", "fuser", "netstat"),
        *("mount", "umount", "swapon", "swapoff", "sysctl", "fstrim", "smartctl", "lsblk"),
        *("zpool", "zfs", "btrfs", "mdadm", "lvs", "vgs", "pvs", "blkid"),
        *("fail2ban-client", "certbot", "nginx", "apachectl", "wg", "tailscale", "virsh"),
        *("rm", "mkdir", "rmdir", "chmod", "chown", "touch", "truncate"),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandPolicy:
    """All that a decision depends on besides the command."""

    tier: int
    grants: Grants
    """Grants of the tier and the watch."""
    denied: tuple[str, ...] = ()
    """`Bash(prefix:*)` rules of the tier, which the CLI gets, too."""
    allowed: tuple[str, ...] = ("Bash",)
    """`Bash`, or narrower rules: `Bash(docker ps:*)` allows no other command."""
    ask: tuple[str, ...] = ()
    """`Bash(prefix:*)` rules for commands that need approval."""
    changes_nothing: bool = False
    """A dry run or a question: decide as for Tier 1."""
    sandboxed: bool = True
    """A sandbox can isolate commands that are not understood; otherwise they are denied."""
    ssh_agent: bool = False
    """The operator has an ssh-agent, so that the sandbox needs no keys."""
    workdir: str = "/"
    programs_in: tuple[str, ...] = ()
    """Directories of trusted programs besides those of the system (for drills)."""
    supervisor: Supervisor = field(default_factory=Supervisor)
    """Processes, units and containers that no tier may end or change."""


_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin")
_PRIVATE = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108 - each sandbox has its own
_GLOB = re.compile(r"[*?\[]")


class Where(Enum):
    """The location of a path that a command writes."""

    OURS = auto()
    """In the working directory or a path with the grant `write:`."""
    PRIVATE = auto()
    """In a temporary directory of the sandbox."""
    OUTSIDE = auto()
    UNKNOWN = auto()


def program_name(word: str, policy: CommandPolicy) -> str | None:
    """Return the name of a trusted program; None for a program in another directory."""
    if "/" not in word:
        return word or None
    directory, name = posixpath.split(word)
    trusted = (*_SYSTEM, *policy.programs_in)
    return name if directory in trusted and name else None


def where(path: Word, policy: CommandPolicy, directories: tuple[Word, ...]) -> Where:
    """Return the location of a path. `directories` are the possible current directories."""
    if path is None or None in directories:
        absolute = path is not None and path.startswith("/")
        if not absolute:
            return Where.UNKNOWN
    assert path is not None
    if path.startswith("~") or (_GLOB.search(path) and ".." in path):
        return Where.UNKNOWN
    known = [directory for directory in directories if directory is not None]
    if path.startswith("/"):
        return _where_absolute(path, policy)
    if len(known) > 1 and ".." in path.split("/"):
        return Where.UNKNOWN
    found = {_where_absolute(posixpath.join(directory, path), policy) for directory in known}
    return next((one for one in reversed(Where) if one in found), Where.UNKNOWN)


def _where_absolute(path: str, policy: CommandPolicy) -> Where:
    plain = "/" + posixpath.normpath(path).lstrip("/")
    if any(_inside(plain, root) for root in (policy.workdir, *policy.grants.writable)):
        return Where.OURS
    if policy.sandboxed and any(_inside(plain, root) for root in _PRIVATE):
        return Where.PRIVATE
    return Where.OUTSIDE


def _inside(path: str, root: str) -> bool:
    plain = posixpath.normpath(root)
    return plain != "/" and (path == plain or path.startswith(f"{plain}/"))


def directories_after(
    commands: list[tuple[Word, ...]], directories: tuple[Word, ...]
) -> tuple[Word, ...]:
    """Return the possible current directories after the `cd` commands, in any order."""
    found = list(directories)
    for words in commands:
        if not words or words[0] not in {"cd", "pushd", "popd"}:
            continue
        path = next((word for word in words[1:] if word is None or word not in {"-P", "-L"}), None)
        if path is None or path == "-" or ".." in path or path.startswith(("~", "+")):
            found.append(None)
        elif path.startswith("/"):
            found.append(path)
    return tuple(dict.fromkeys(found))


# Rules such as `Bash(docker restart:*)`. A denying rule matches every spelling of its command with
# options in any order; an allowing rule matches the beginning of a command only.

_RULE = re.compile(r"Bash\((.*)\)", re.DOTALL)
_SHORT_FOR: dict[tuple[str, ...], str] = {("git", "push", "--force"): "f"}
"""Short forms of options in the default rules."""

_LONG_FOR = {"r": "--recursive", "f": "--force"}


class Match(Enum):
    NO = auto()
    MAYBE = auto()
    """It may match, depending on a computed word."""
    YES = auto()


@lru_cache(maxsize=512)
def prefix_of(rule: str) -> tuple[str, ...] | None:
    """Return the words of a Bash rule; none for `Bash` itself; None for other tools."""
    if rule.strip() == "Bash":
        return ()
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        return None
    text = re.sub(r"(:\*|\s\*|\*)$", "", found[1].strip())
    return tuple(text.split())


def forbids(rule: str, plain: tuple[Word, ...], action: tuple[str, ...]) -> Match:
    """Match a denying rule. Words behind the understood `action` may be in any order."""
    prefix = prefix_of(rule)
    if prefix is None:
        return Match.NO
    words = tuple(plain)
    if _begins(words, prefix):
        return Match.YES
    same = 0
    while same < min(len(action), len(prefix)) and action[same] == prefix[same]:
        same += 1
    if same < min(len(action), len(prefix)) or not action:
        return Match.NO
    if len(prefix) <= len(action):
        return Match.YES
    return _has_all(prefix, same, words[len(action) :])


def allows(rule: str, plain: tuple[Word, ...]) -> bool:
    prefix = prefix_of(rule)
    return prefix is not None and _begins(plain, prefix)


def _begins(words: tuple[Word, ...], prefix: tuple[str, ...]) -> bool:
    return words[: len(prefix)] == prefix


def _has_all(prefix: tuple[str, ...], begin: int, arguments: tuple[Word, ...]) -> Match:
    known = [word for word in arguments if word is not None]
    missing = [word for word in prefix[begin:] if not _has(prefix[:begin], word, known)]
    if not missing:
        return Match.YES
    return Match.MAYBE if None in arguments else Match.NO


def _has(action: tuple[str, ...], wanted: str, words: list[str]) -> bool:
    letters = {letter for word in words if re.match(r"-[^-]", word) for letter in word[1:]}
    short = _SHORT_FOR.get((*action, wanted), "")
    if short and (short in letters or any(word.startswith("+") for word in words)):
        return True
    if re.fullmatch(r"-[A-Za-z]+", wanted):
        return all(letter in letters or _LONG_FOR.get(letter) in words for letter in wanted[1:])
    if wanted.startswith("--"):
        return any(word == wanted or word.startswith(f"{wanted}=") for word in words)
    return any(_same_path(word, wanted) for word in words)


def _same_path(word: str, wanted: str) -> bool:
    if not wanted.startswith("/"):
        return word == wanted
    return re.sub(r"/(\.?/)*\.?$", "", word) == wanted.rstrip("/") and word.startswith("/")


def plainly(words: tuple[Word, ...]) -> str:
    text = " ".join("…" if word is None else word for word in words)
    return "".join(character if character.isprintable() else " " for character in text)


def in_short(words: tuple[Word, ...]) -> str:
    plain = plainly(words)
    return plain if len(plain) <= 120 else f"{plain[:117]}…"


@dataclass(slots=True)
class CommandFindings:
    """Findings about one command."""

    denials: list[tuple[str, str]] = field(default_factory=list)
    """Pairs of rule and reason."""
    unknown: list[str] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """Parts that are understood only without grants."""
    grants: set[str] = field(default_factory=set)
    wanting_grants: list[str] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """Actions that change something, with all their words."""
    may_repeat: bool = False
    asks: list[tuple[str, str]] = field(default_factory=list)
    """Rules that need approval, each with the part of the command."""
    effects: list[str] = field(default_factory=list)
    """Parts that do more than read."""
    readers: list[str] = field(default_factory=list)
    """Parts that could read a file in the sandbox, besides those that need the keys."""


_DEEPEST = 8
_MOST_COMMANDS = 500
_MOST_INNER_CHARACTERS = 16_000
_READ_DIFFERENTLY = re.compile(
    r"\$['\"\[]|&>|>&[^\d-]|\|&|<<<|\{[^}]*(,|\.\.)|\[\[|\(\(|[<>]\(|\bfunction\b|\bselect\b"
    r"|\bcoproc\b|\btime\b|\bsource\b|\+="
)
"""Syntax that bash and other shells read differently."""
_CHANGE_THE_SHELL = {"exec", "eval", "trap"}
"""After `exec < file` every command reads that file."""
_FEED_THEMSELVES = {"xargs", "find", "fd", "watch", "parallel", "coproc"}
"""Programs that read their input themselves, or start several commands that share it."""

_SAYS_NOTHING = {"", "\n", "Q\n"}
"""Input that only ends a program: `echo | openssl s_client …`."""

_READ_NOTHING: set[tuple[Word, ...]] = {
    *((name,) for name in ("echo", "printf", "cd", "set", "true", "false", ":", "ls", "pwd", "df")),
    *((name,) for name in ("free", "uptime", "date", "hostname", "id", "systemctl", "sleep")),
    *(("docker", verb) for verb in ("ps", "logs", "inspect", "restart", "stop", "kill", "images")),
}


class CommandLocation(Enum):
    SANDBOX = auto()
    HOST = auto()
    ELSEWHERE = auto()


@dataclass(frozen=True, slots=True)
class _At:
    """The location in which a part of the command runs."""

    place: CommandLocation = CommandLocation.SANDBOX
    depth: int = 0
    alone: bool = False
    """The part is the whole command."""


class Judge:
    """Collects findings about one command. Use a new instance for each command."""

    def __init__(
        self, policy: CommandPolicy, understand: Callable[[tuple[Word, ...]], Understanding | None]
    ) -> None:
        self.policy = policy
        self.tier = LOOK if policy.changes_nothing else policy.tier
        self.understand = understand
        self.findings = CommandFindings()
        self.directories: tuple[Word, ...] = (policy.workdir,)
        self.any_bash = "Bash" in policy.allowed
        self.judged = self.characters = 0
        self.part: tuple[Word, ...] = ()

    def judge(self, text: str) -> CommandFindings:
        script = read(text)
        self._script(script, _At(alone=script.is_one_command))
        if self.findings.grants:
            self.findings.unknown.extend(self.findings.unseen)
        if KEY_GRANTS & self.findings.grants:
            self._beside_keys(text)
        return self.findings

    def _beside_keys(self, text: str) -> None:
        keyed = self.findings.wanting_grants[0]
        if takes_a_file_in(text):
            self._deny("beside keys", f"Run {keyed} alone, without `<`: its sandbox has keys.")
        for shown in self.findings.readers[:1]:
            self._deny(
                "beside keys",
                f"`{shown}` could read the keys for {keyed}: run them one by one.",
            )

    def _script(self, script: Script, at: _At, stdin: Word = "") -> None:
        self.findings.may_repeat |= script.may_repeat
        for problem in script.problems:
            self._unknown(problem, at)
        for what in script.unseen:
            self._without_grants(what, at)
        for name in sorted(script.functions):
            if any(self.understand((name, *words)) for words in ((), ("--version",))):
                self._unknown(f"`{name}` is defined as a function", at)
        commands = [command.words for command in script.commands]
        self.directories = directories_after(commands, self.directories)
        # It is unknown how much each of several commands reads.
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
                "supervisor is protected",
                f"`{shown}` would end or change {held}, which runs this session: not allowed at "
                "any tier. Leave it to a person, and say so in your report.",
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
        if (
            at.place is CommandLocation.SANDBOX
            and not understood.inner
            and not KEY_GRANTS & understood.grants
        ):
            self.findings.readers += [shown] if reads_files(argv) else []
        self.findings.readers += [shown] if self._needs_agent(understood) else []
        for inner in understood.inner:
            self._inner(inner, understood, command, at)

    def _changes(self, understood: Understanding, at: _At) -> bool:
        """Return whether it changes more than temporary files of the sandbox."""
        if not understood.grants and understood.writes and not self._beside(understood.writes, at):
            return False
        return understood.level > LOOK or bool(understood.writes)

    def _beside(self, paths: tuple[Word, ...], at: _At) -> list[Word]:
        """Return the written paths without temporary files of the sandbox."""
        if at.place is not CommandLocation.SANDBOX:
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
        """Deny commands that narrower rules do not allow."""
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
        private = bool(places) and places == {Where.PRIVATE} and at.place is CommandLocation.SANDBOX
        if level == SAFE and private and not understood.grants:
            level = LOOK
        self._level(level, shown, understood.why)
        if HOST in understood.grants and not any(inner.on_host for inner in understood.inner):
            at = self._needing_host(shown, at)
        elif at.place is CommandLocation.HOST and understood.action.split()[0] not in HOST_PROGRAMS:
            self._deny(
                "works in the sandbox",
                f"`{shown}` works without `sudo`: leave it out.",
            )
        self._writes(understood.writes, shown, at)
        grants = understood.grants - {HOST}
        if self._needs_agent(understood) and SSH in grants & self.policy.grants.names:
            grants = self._by_agent(grants, shown, at)
        for grant in sorted(grants):
            self._grant(grant, shown, at)
        if understood.runs_unseen:
            self._without_grants(f"`{shown}` may run what files name", at)

    def _without_grants(self, what: str, at: _At) -> None:
        what = f"{what}, so it must run without grants"
        # Without a sandbox nothing is closed, and from Tier 2 on the model can write those files.
        if at.place is CommandLocation.SANDBOX and (self.policy.sandboxed or self.tier < SAFE):
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
                f"`{shown}` is not allowed at any tier{because}. Leave it to a person, and say so "
                "in your report.",
            )
        elif level > self.tier:
            said = f"`{shown}` is not allowed at Tier {self.tier}{because}."
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
        """Return whether it may run with an ssh-agent only. Tier 3 may run playbooks with keys."""
        has_agent = self.policy.ssh_agent and self.policy.sandboxed
        with_keys = self.tier >= FULL and not understood.sends_files and not has_agent
        return understood.needs_agent and not with_keys

    def _by_agent(self, grants: frozenset[str], shown: str, at: _At) -> frozenset[str]:
        if at.place is CommandLocation.SANDBOX and not (
            self.policy.ssh_agent and self.policy.sandboxed
        ):
            self._deny(
                "keys beside files",
                f"`{shown}` could send the operator's keys, which are in its sandbox. With an "
                "ssh-agent of the operator no keys are needed there: say so in your report.",
            )
        return grants - {SSH} | {AGENT}

    def _grant(self, grant: str, shown: str, at: _At) -> None:
        if at.place is CommandLocation.ELSEWHERE:
            return
        if grant not in self.policy.grants.names | {AGENT}:
            self._deny(
                f"grant {grant} is missing",
                f"`{shown}` needs the grant `{grant}` ({MEANING.get(grant, grant)}), which is "
                "missing. The operator can give it to this tier or watch: say so in your report.",
            )
        elif at.place is CommandLocation.SANDBOX:
            self.findings.grants.add(grant)
            self.findings.wanting_grants.append(f"`{shown}`")

    def _writes(self, paths: tuple[Word, ...], shown: str, at: _At) -> None:
        for path in paths:
            if at.place is CommandLocation.ELSEWHERE:
                self._level(FULL, shown, "writes a file outside of any sandbox")
                continue
            found = where(path, self.policy, self.directories)
            if found is Where.PRIVATE and at.place is CommandLocation.SANDBOX:
                continue
            if found is Where.UNKNOWN:
                self._unknown(f"`{shown}`, which writes a file whose path is computed", at)
                continue
            if found is Where.OURS or self.tier < SAFE:
                # On the host a link may lead out of the working directory, as root.
                lowest = FULL if at.place is CommandLocation.HOST else SAFE
                self._level(lowest, shown, f"writes {path}")
            else:
                self._deny(
                    "writes outside",
                    f"{path} lies outside the working directory, and `{shown}` would write it. "
                    f"The operator can grant `write:{path}`: say so in your report.",
                )

    def _inner(self, inner: Inner, understood: Understanding, command: Command, at: _At) -> None:
        below = replace(at, depth=at.depth + 1)
        self.findings.may_repeat |= understood.action.split()[0] in _FEED_THEMSELVES
        if inner.elsewhere:
            below = replace(below, place=CommandLocation.ELSEWHERE, alone=False)
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
        elif (inner.posix or below.place is CommandLocation.ELSEWHERE) and _READ_DIFFERENTLY.search(
            text
        ):
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
        if at.place is CommandLocation.ELSEWHERE:
            self._level(SAFE, shown, "acts as another user")
            return at
        self._host(shown, at)
        if not inner.argv or None in inner.argv or at.depth > 1:
            self._deny(
                "host: one plain command",
                f"`{shown}` would run more than one plain program on the host. Write it as in "
                "`sudo systemctl restart web`.",
            )
        return replace(at, place=CommandLocation.HOST)

    def _needing_host(self, shown: str, at: _At) -> _At:
        """Check a program that cannot work in a sandbox."""
        if at.place is not CommandLocation.SANDBOX:
            return at
        self._host(shown, replace(at, alone=at.alone and at.depth == 0))
        return replace(at, place=CommandLocation.HOST)

    def _host(self, shown: str, at: _At) -> None:
        if self.tier < SAFE:
            self._deny(
                "no host at Tier 1",
                f"`{shown}` would run on the host, which Tier 1 never does. Leave `sudo` out: "
                f"reading works without. If it is needed: {self._instead()}",
            )
        elif not at.alone:
            self._deny(
                "host: one plain command",
                f"`{shown}` runs on the host: run it alone, without pipes, lists, "
                "variables and redirections.",
            )
        elif HOST not in self.policy.grants.names:
            self._grant(HOST, shown, replace(at, place=CommandLocation.SANDBOX))
        else:
            self.findings.grants.add(HOST)
            self.findings.wanting_grants.append(f"`{shown}`")

    def _unknown(self, what: str, at: _At) -> None:
        self.findings.unknown.append(what)
        if at.place is not CommandLocation.SANDBOX:
            self._deny(
                "not understood outside a sandbox",
                f"Not understood: {what}. No sandbox can isolate it there: write it plainly. "
                f"{self._instead()}",
            )
        elif not self.any_bash:
            self._narrow((None,), what.strip("`"))

    def _deny(self, rule: str, reason: str) -> None:
        self.findings.denials.append((rule, reason))


def _reads_nothing(command: Command) -> bool:
    """Return whether it leaves standard input, which has the text of the shell, unread."""
    words = command.words
    return words[:1] in _READ_NOTHING or words[:2] in _READ_NOTHING


MOST_CHARACTERS = 1_000_000
Understand = Callable[[tuple[Word, ...]], Understanding | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    verdict: Verdict
    rule: str
    """Code of the rule, such as "needs Tier 2" or "not understood"."""
    reason: str = ""
    """Explanation for the model with an alternative; empty for an allowed command."""
    grants: frozenset[str] = field(default_factory=frozenset)
    """Names of the grants of this command: "docker", "network" …"""
    actions: tuple[str, ...] = ()
    """The understood actions in plain form: "docker restart web"."""
    changes: tuple[str, ...] = ()
    """Actions that change something outside the sandbox, with all their words."""
    may_repeat: bool = False
    """A loop, a function or a program such as xargs may repeat parts of it."""
    allowed_from: int = 0
    """The lowest tier that would run a denied command; 0 if there is none."""
    effects: tuple[str, ...] = ()
    """Parts of an allowed command that do more than read."""

    def asking(self, rule: str, reason: str) -> Decision:
        """Return this decision with the need for approval."""
        return replace(self, verdict=Verdict.ASK, rule=rule, reason=reason)


def judged(own: CommandPolicy, others: Sequence[CommandPolicy], command: str) -> Decision:
    """Decide; for a denied command, add the lowest other policy that would run it."""
    decision = decide(own, command)
    if decision.verdict != Verdict.DENY:
        return decision
    willing = (policy for policy in others if decide(policy, command).verdict != Verdict.DENY)
    return replace(decision, allowed_from=min((policy.tier for policy in willing), default=0))


def decide(policy: CommandPolicy, command: str, understand: Understand | None = None) -> Decision:
    """Decide on a command. If the decision fails, the command is denied."""
    problem = _unfit(command)
    if problem:
        return Decision(verdict=Verdict.DENY, rule="no command", reason=problem)
    try:
        findings = Judge(policy, understand or programs.understand).judge(command)
        return _decision(policy, findings)
    except Exception as error:  # noqa: BLE001 - an error must deny the command
        return Decision(
            verdict=Verdict.DENY,
            rule="could not be judged",
            reason=f"This command could not be judged ({type(error).__name__}). Write it plainly.",
        )


def _unfit(command: str) -> str:
    if not command.strip():
        return "There is no command in this."
    if len(command) > MOST_CHARACTERS:
        return "This command is longer than a million characters. Put data into a file."
    if "\0" in command:
        return "A command cannot hold a NUL character. Leave it out."
    try:
        command.encode()
    except UnicodeError:
        return "This command is not valid text. Write it in UTF-8."
    return ""


def _decision(policy: CommandPolicy, findings: CommandFindings) -> Decision:
    return replace(
        _verdict(policy, findings),
        actions=tuple(findings.actions),
        changes=tuple(findings.changes),
        may_repeat=findings.may_repeat,
    )


def _verdict(policy: CommandPolicy, findings: CommandFindings) -> Decision:
    if findings.denials:
        rule, reason = findings.denials[0]
        return Decision(verdict=Verdict.DENY, rule=rule, reason=reason)
    if not findings.unknown:
        allowed = Decision(
            verdict=Verdict.ALLOW,
            rule="understood",
            grants=frozenset(findings.grants),
            effects=tuple(findings.effects),
        )
        return _asked(allowed, findings)
    verdict = Verdict.ISOLATE if policy.sandboxed else Verdict.DENY
    reason = _isolated(policy, findings) if policy.sandboxed else _refused(findings)
    return Decision(verdict=verdict, rule="not understood", reason=reason)


def _asked(allowed: Decision, findings: CommandFindings) -> Decision:
    if not findings.asks:
        return allowed
    rule, shown = findings.asks[0]
    return allowed.asking(
        f"asked by {rule}", f"The operator must approve `{shown}` first, by the rule {rule}."
    )


def _isolated(policy: CommandPolicy, findings: CommandFindings) -> str:
    writes = "" if policy.tier < SAFE or policy.changes_nothing else " and write in its directory"
    reason = (
        f"Not understood: {findings.unknown[0]}. So this ran in a sandbox without grants (no "
        f"network, no Docker, no other processes): it could only compute and read{writes}."
    )
    if findings.grants:
        reason += f" Run {findings.wanting_grants[0]} alone, written plainly."
    return reason


def _refused(findings: CommandFindings) -> str:
    return (
        f"Not understood: {findings.unknown[0]}. No sandbox can isolate such a command here: write "
        "it plainly, one program at a time."
    )
