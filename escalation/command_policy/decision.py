"""The command policy: decides on one executed argument vector, by the tier and the grants.

The text of a Bash call runs in a command sandbox without grants and is not judged. A program that
needs a grant is a shim there (`programs.SHIMS`), which asks for its vector. No I/O.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache

from escalation.command_policy import programs
from escalation.command_policy.grants import (
    BUS,
    DOCKER,
    FILES,
    HOST,
    KUBE,
    MEANING,
    PART_OF,
    PROCESSES,
    Grants,
)
from escalation.command_policy.plain_shell import read_commands
from escalation.command_policy.programs.host import AS_OWNER, FILE_PROGRAMS
from escalation.command_policy.protected import (
    Supervisor,
    chosen,
    touches_supervisor,
    without_clients,
)
from escalation.command_policy.remedies import (
    REMEDY,
    DeclaredRemedy,
    RemedyCall,
    RemedyRefused,
    listing,
    read_call,
)
from escalation.command_policy.understanding import (
    FULL,
    LOOK,
    NEVER,
    SAFE,
    Argv,
    CommandEffect,
    NotUnderstood,
    Understanding,
)
from sessions_app.models.session import Verdict

MOST_CHARACTERS = 100_000
"""Limit for all words together, so that reading does not take long."""
STAND_INS = frozenset({"docker", "ansible-playbook"})
"""Programs of drills that are shims, too."""
BROKERED = {"docker": DOCKER, "docker-compose": DOCKER, "kubectl": KUBE, "helm": KUBE}
"""Clients whose requests a broker judges: behind `sudo` they run as without it."""
AS_OTHERS = frozenset({HOST, BUS, PROCESSES, *BROKERED.values()})
"""Grants of programs that run as another user as they run as root."""
CLEARS = frozenset({"rm", "rmdir", "truncate", "mkdir", "touch", "find"})
"""Programs that free or prepare a directory: as root for Tier 2 where the operator names it."""
_SCRIPT = re.compile(r"/etc/init\.d/([\w@:][\w@:.-]*)")
_SYSTEM = ("/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/usr/local/sbin")
LOGS = ("/var/log",)
READS_LOGS = frozenset({"cat", "head", "tail", "wc", "grep", "egrep", "fgrep", "zcat", "true"})
"""What Tier 1 reads as root, and by which programs."""
_DEEPEST = 4
_VALUE = re.compile(r"(?!/|.*\.\.)[\w.:/@+,-]*\Z")


@dataclass(frozen=True, kw_only=True, slots=True)
class ExecRequest:
    """One program that is about to be executed."""

    argv: Argv
    """The plain name of the program (no directory), then its words; never empty."""
    cwd: str
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of `programs.PASSED_VARIABLES`; others are left out."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandPolicy:
    """All that a decision depends on besides the vector."""

    tier: int
    grants: Grants
    """Grants of the tier and the watch."""
    denied: Argv = ()
    """`Bash(prefix:*)` rules of the tier."""
    allowed: Argv = ("Bash",)
    """`Bash`, or narrower rules: `Bash(docker ps:*)` allows no other vector."""
    ask: Argv = ()
    """`Bash(prefix:*)` rules for vectors that need approval."""
    changes_nothing: bool = False
    """A dry run or a question: decide as for Tier 1."""
    sandboxed: bool = True
    """Programs without a grant run in a command sandbox; otherwise every program is judged."""
    workdir: str = "/"
    hosts: Argv = ()
    """Hosts (`name` or `name:port`) to which Tier 2 may send a POST request."""
    programs_in: Argv = ()
    """Directories of the stand-ins of a drill, which are trusted like those of the system."""
    remedies: tuple[DeclaredRemedy, ...] = ()
    """What the operator declared for the watch."""
    supervisor: Supervisor = field(default_factory=Supervisor)
    """Processes, units and containers that no tier may end or change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    verdict: Verdict
    """Allow, ask or deny. Isolate is the verdict of a Bash text itself."""
    rule: str
    """Code of the rule, such as "needs Tier 2" or "not understood"."""
    reason: str = ""
    """Explanation for the model with an alternative; empty for an allowed vector."""
    argv: Argv = ()
    """The vector to execute, with what makes it safe. `sudo` is always followed by `-n`, perhaps
    `-u USER`, and `--`."""
    environment: tuple[tuple[str, str], ...] = ()
    """All variables for the program: those of the request, and those that make it safe."""
    no_input: bool = False
    """Its standard input must be /dev/null: the program would send it to another host."""
    grant: str = ""
    """The one grant of the vector: a name of `GRANTS`, "http" or "files"."""
    actions: Argv = ()
    """The understood actions in plain form: "docker restart web"."""
    changes: Argv = ()
    """Those that change something, with all their words."""
    effects: tuple[CommandEffect, ...] = ()
    """What the changes do to which service."""
    allowed_from: int = 0
    """The lowest tier that would run a denied vector; 0 if there is none."""
    remedy: RemedyCall | None = None
    """The remedy that runs; its vector, grants and time limit hold instead of those above."""
    prints: str = ""
    """Text that is printed instead of running a program."""

    @property
    def is_denied(self) -> bool:
        return self.verdict == Verdict.DENY

    def asking(self, rule: str, reason: str) -> Decision:
        """Return this decision with the need for approval."""
        return replace(self, verdict=Verdict.ASK, rule=rule, reason=reason)


def judged(own: CommandPolicy, others: Sequence[CommandPolicy], request: ExecRequest) -> Decision:
    """Decide; for a denied vector, add the lowest other policy that would run it."""
    decision = decide(own, request)
    if decision.verdict != Verdict.DENY:
        return decision
    willing = (policy for policy in others if decide(policy, request).verdict != Verdict.DENY)
    return replace(decision, allowed_from=min((policy.tier for policy in willing), default=0))


def decide(policy: CommandPolicy, request: ExecRequest) -> Decision:
    """Decide on a vector. If the decision fails, the vector is denied."""
    if problem := _unfit(request.argv):
        return Decision(verdict=Verdict.DENY, rule="no command", reason=problem)
    try:
        return _Judge(policy, request).decision()
    except Exception as error:  # noqa: BLE001 - an error must deny the vector
        return Decision(
            verdict=Verdict.DENY,
            rule="could not be judged",
            reason=f"This command could not be judged ({type(error).__name__}). Write it plainly.",
        )


def decide_effect(
    policy: CommandPolicy, vectors: Sequence[Argv], effect: CommandEffect, grant: str
) -> Decision:
    """Decide on a change at a broker, which the tier may make, by the rules of the operator.

    `vectors` are commands with the same effect, such as `docker restart web`.
    """
    judge = _Judge(policy, ExecRequest(argv=vectors[0], cwd=policy.workdir))
    for vector in vectors:
        judge.rules(vector, vector[:-1], in_short(vector))
    if not any(allows(rule, vector) for rule in policy.allowed for vector in vectors):
        judge.deny_unlisted(in_short(vectors[0]))
    judge.actions.append(in_short(vectors[0]))
    judge.changes.append(plainly(vectors[0]))
    judge.effects.append(effect)
    return judge.decided(Understanding(action="", argv=vectors[0], grant=grant))


def read_one_command(text: str) -> Argv | None:
    """Return the vector of a text that is one simple command without expansion, or None."""
    try:
        commands = read_commands(text.strip(), redirected=False)
    except NotUnderstood:
        return None
    return commands[0] if len(commands) == 1 else None


def _unfit(argv: Argv) -> str:
    if not argv or not argv[0]:
        return "There is no command in this."
    if sum(map(len, argv)) > MOST_CHARACTERS:
        return f"This command is longer than {MOST_CHARACTERS} characters. Put data into a file."
    if any("\0" in word for word in argv):
        return "A command cannot hold a NUL character. Leave it out."
    try:
        "".join(argv).encode()
    except UnicodeError:
        return "This command is not valid text. Write it in UTF-8."
    return ""


# Rules such as `Bash(docker restart:*)`. A denying rule matches every spelling of its vector with
# options in any order; an allowing rule matches the beginning of a vector only.

_RULE = re.compile(r"Bash\((.*)\)", re.DOTALL)
_SHORT_FOR: dict[Argv, str] = {("git", "push", "--force"): "f"}
"""Short forms of options in the default rules."""
_LONG_FOR = {"r": "--recursive", "f": "--force"}


@lru_cache(maxsize=512)
def prefix_of(rule: str) -> Argv | None:
    """Return the words of a Bash rule; none for `Bash` itself; None for other tools."""
    if rule.strip() == "Bash":
        return ()
    found = _RULE.fullmatch(rule.strip())
    if found is None:
        return None
    text = re.sub(r"(:\*|\s\*|\*)$", "", found[1].strip())
    return tuple(text.split())


def forbids(rule: str, words: Argv, action: Argv) -> bool:
    """Match a denying rule. Words behind the understood `action` may be in any order."""
    prefix = prefix_of(rule)
    if prefix is None:
        return False
    if words[: len(prefix)] == prefix:
        return True
    same = min(len(action), len(prefix))
    if not action or action[:same] != prefix[:same]:
        return False
    return all(_has(action, wanted, words[len(action) :]) for wanted in prefix[same:])


def allows(rule: str, words: Argv) -> bool:
    prefix = prefix_of(rule)
    return prefix is not None and words[: len(prefix)] == prefix


def _has(action: Argv, wanted: str, words: Argv) -> bool:
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


def plainly(words: Argv) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in " ".join(words))


def in_short(words: Argv) -> str:
    plain = plainly(words)
    return plain if len(plain) <= 120 else f"{plain[:117]}…"


def owner_in(argv: Argv) -> str:
    """Return the user of `sudo -n -u USER --`; empty for root and other programs."""
    return argv[3] if argv[1:3] == ("-n", "-u") and argv[4:] == ("--",) else ""


def program_name(word: str, policy: CommandPolicy) -> str:
    """Return the plain name of a trusted program."""
    directory, name = posixpath.split(word)
    if directory and directory not in (*_SYSTEM, *policy.programs_in):
        raise NotUnderstood(f"`{word}`, a program that may be anything")
    return name


def _as_service(argv: Argv) -> Argv:
    """Return `service nginx restart` for `/etc/init.d/nginx restart`."""
    script = _SCRIPT.fullmatch(argv[0])
    return ("service", script[1], *argv[1:]) if script else argv


def is_inside(path: str, cwd: str, roots: Sequence[str]) -> bool:
    """Return whether a path lies in one of the directories, by its text alone."""
    plain = "/" + posixpath.normpath(posixpath.join(cwd, path)).lstrip("/")
    return any(
        plain == root or plain.startswith(f"{root}/")
        for root in map(posixpath.normpath, roots)
        if root.strip("/")
    )


SECRET = re.compile(
    r"(?:\A|[/=@:])(?:\.ssh|\.gnupg|\.kube|\.aws|\.docker|g?shadow-?|\.netrc|\.pgpass|\.my\.cnf"
    r"|\.git-credentials|\.vault-token|\.env|\.azure|\.npmrc|\.pypirc|\.password-store|\.claude"
    r"|keyrings|\.\w+_history|rclone|gcloud|\.config/gh|opasswd|krb5\.keytab|\w+-secrets|\w+\.secrets"
    r"|msmtprc|wpa_supplicant|system-connections|netplan|openvpn|node-token|debian\.cnf|id_(?:rsa|dsa|ecdsa|ed25519)\w*|kubeconfig|k3s\.yaml"
    r"|admin\.conf|environ)(?:[./]|\Z)|/(?:credentials|wireguard|private|secrets?)(?:[./]|\Z)"
    r"|\A(?:wireguard|private|secrets?)/"
    r"|\.(?:pem|key|p12|pfx|jks|kdbx|kubeconfig)\Z",
    re.IGNORECASE,
)
"""Paths on another host that look like keys and passwords."""


class _Place(Enum):
    HERE = auto()
    """In a sandbox with one grant, or on the host for the grant `host`."""
    SUDO = auto()
    """On the host as another user."""
    ELSEWHERE = auto()
    """On another host or in a container."""


class _Judge:
    """Collects findings about one vector. Use a new instance for each request."""

    def __init__(self, policy: CommandPolicy, request: ExecRequest) -> None:
        self.policy, self.request = policy, request
        self.tier = LOOK if policy.changes_nothing else policy.tier
        self.denials: list[tuple[str, str]] = []
        """Pairs of rule and reason."""
        self.asks: list[tuple[str, str]] = []
        """Pairs of rule and the part that it names."""
        self.actions: list[str] = []
        self.changes: list[str] = []
        self.effects: list[CommandEffect] = []
        self._hosts: list[str] = []
        """The hosts of ssh around the vector that is judged."""

    def decision(self) -> Decision:
        if self.request.argv[0] == REMEDY:
            return self.remedy(self.request.argv)
        understood = self.vector(self.request.argv, _Place.HERE)
        return self.decided(understood, self._passed())

    def decided(
        self, understood: Understanding | None, passed: tuple[tuple[str, str], ...] = ()
    ) -> Decision:
        """Return the decision that follows from the findings."""
        found = Decision(
            verdict=Verdict.ALLOW,
            rule="understood",
            actions=tuple(self.actions),
            changes=tuple(self.changes),
            effects=tuple(self.effects),
        )
        if self.denials:
            rule, reason = self.denials[0]
            return replace(found, verdict=Verdict.DENY, rule=rule, reason=reason)
        assert understood is not None
        found = replace(
            found,
            argv=understood.argv,
            environment=(*passed, *understood.environment),
            no_input=understood.no_input,
            grant=understood.grant,
        )
        for rule, shown in self.asks[:1]:
            return found.asking(
                f"asked by {rule}",
                f"The operator must approve `{shown}` first, by the rule {rule}.",
            )
        return found

    def remedy(self, argv: Argv) -> Decision:
        """Judge a call of a remedy: the declared vector runs, or nothing."""
        if len(argv) == 1:
            text = listing(self.policy.remedies, self.tier)
            return Decision(verdict=Verdict.ALLOW, rule="understood", argv=argv, prints=text)
        shown = in_short(argv)
        try:
            call = read_call(argv, self.policy.remedies, self.tier)
        except RemedyRefused as refused:
            self._deny(refused.rule, str(refused))
            return self.decided(None)
        self.rules(argv, (REMEDY, argv[1]), shown)
        if not any(allows(rule, argv) for rule in self.policy.allowed):
            self.deny_unlisted(shown)
        self.actions.append(shown)
        if not call.looks:
            self.changes.append(plainly(argv))
            self.effects += call.effects
        self._level(call.tier, shown, f"runs `{in_short(call.argv)}`")
        for grant in sorted(call.grants):
            self._grant(grant, shown)
        grants = " ".join(sorted(call.grants))
        found = self.decided(Understanding(action=REMEDY, argv=argv, grant=grants))
        return found if found.is_denied else replace(found, remedy=call)

    def _passed(self) -> tuple[tuple[str, str], ...]:
        given = self.request.environment
        passed = [(name, given[name]) for name in programs.PASSED_VARIABLES if name in given]
        for name, value in passed:
            if not _VALUE.match(value):
                self._deny(
                    "not understood", f"Not understood: the value of {name}. Write it plainly."
                )
        return tuple(passed)

    def vector(
        self,
        argv: Argv,
        place: _Place,
        *,
        depth: int = 0,
        allowed: bool = False,
        owner: str = "",
    ) -> Understanding | None:
        """Judge a vector and those inside it; return it with the vector to execute.

        `owner` is the user, other than root, as whom `sudo` runs it.
        """
        shown = in_short(argv)
        try:
            if depth > _DEEPEST:
                raise NotUnderstood("so many commands in one")
            argv = _as_service(argv)
            argv = (program_name(argv[0], self.policy), *argv[1:])
            self.rules(argv, (), shown)
            understood = self._understood(argv, place)
        except NotUnderstood as problem:
            self._deny(
                "not understood",
                f"Not understood: {problem} in `{shown}`. It did not run: nothing is guessed. Use "
                "plain words and common options, or leave it to a person.",
            )
            return None
        understood = replace(understood, argv=understood.argv or argv)
        if place is not _Place.ELSEWHERE:
            understood = self._with_processes(understood)
        action = tuple(understood.action.split())
        plain = (*action, *understood.arguments)
        self.rules(plain, action, shown)
        if held := touches_supervisor(understood, self.policy.supervisor, self.request.environment):
            self._deny(
                "supervisor is protected",
                f"`{shown}` would end, change or reveal {held}, which runs this session: "
                "not allowed at any tier. Leave it to a person, and say so in your report.",
            )
        allowed = allowed or any(
            allows(rule, words) for rule in self.policy.allowed for words in (argv, plain)
        )
        if not understood.inner:
            self._single(understood, place, shown, plain, allowed=allowed)
        else:
            self._level(understood.level, shown, understood.why)
        if understood.elsewhere:
            self._hosts.append(understood.host)
        inside = [
            self.vector(
                inner,
                self._below(understood, place),
                depth=depth + 1,
                allowed=allowed,
                owner=owner_in(understood.argv),
            )
            for inner in understood.inner
        ]
        if understood.elsewhere:
            self._hosts.pop()
        if place is _Place.SUDO:
            return self._with_sudo(understood, shown, owner)
        if place is _Place.HERE:
            return self._here(understood, inside, shown)
        return understood

    def _understood(self, argv: Argv, place: _Place) -> Understanding:
        """Read a vector. A broker judges the requests of some clients, whoever starts them."""
        broker = BROKERED.get(argv[0])
        if broker and place is _Place.SUDO and self.policy.sandboxed:
            return Understanding(action=argv[0], arguments=argv[1:], grant=broker)
        return programs.understand(argv, elsewhere=place is _Place.ELSEWHERE)

    def _with_processes(self, understood: Understanding) -> Understanding:
        """Name the processes that are signalled by their numbers, without our own."""
        supervisor = self.policy.supervisor
        if understood.chooses and understood.level < NEVER:
            return replace(understood, argv=chosen(understood.chooses, supervisor))
        if understood.argv[0] == "kill" and understood.level > LOOK:
            argv = without_clients(understood.argv, supervisor)
            return replace(understood, argv=argv, arguments=argv[1:])
        return understood

    def _below(self, understood: Understanding, place: _Place) -> _Place:
        if understood.elsewhere or place is _Place.ELSEWHERE:
            return _Place.ELSEWHERE
        return _Place.SUDO

    def _single(
        self, understood: Understanding, place: _Place, shown: str, plain: Argv, *, allowed: bool
    ) -> None:
        """Judge a vector without others in it."""
        if not allowed:
            self.deny_unlisted(shown)
        level, why = self._level_there(understood, place, shown)
        self.actions.append(in_short(plain))
        if level > LOOK:
            self.changes.append(plainly(plain))
            host = self._hosts[0] if len(self._hosts) == 1 else ""
            self.effects += understood.effects(plainly(plain), host)
        self._level(level, shown, why)

    def _level_there(self, understood: Understanding, place: _Place, shown: str) -> tuple[int, str]:
        """Return the level in a place: writing depends on it, and sending on the hosts."""
        level, why = understood.level, understood.why
        if level == SAFE and not all(map(self._is_listed, understood.sends_to)):
            level, why = FULL, "sends data to a host that the watch does not list"
        if place is _Place.ELSEWHERE:
            if any(map(SECRET.search, understood.arguments)):
                self._deny(
                    "looks like a secret",
                    f"`{shown}` names what looks like a key or a password: not allowed at any "
                    "tier. Leave it to a person.",
                )
            if understood.writes:
                level, why = max(level, FULL), "writes a file outside of any sandbox"
            if understood.no_input:
                level, why = max(level, FULL), "sends what it reads"
        elif understood.writes and (place is _Place.SUDO or not self.policy.sandboxed):
            clears = understood.argv[0] in CLEARS and self._is_named(understood.writes)
            level = max(level, FULL if place is _Place.SUDO and not clears else SAFE)
            why = why or f"writes {understood.writes[0]}"
            self._inside(understood.writes, shown)
        return level, why

    def _is_listed(self, host: str) -> bool:
        return bool({host, re.sub(r":\d+\Z", "", host)}.intersection(self.policy.hosts))

    def _is_named(self, paths: Argv) -> bool:
        """Return whether the operator names the directories of all paths with `write:`."""
        named = self.policy.grants.writable
        return all(is_inside(path, self.request.cwd, named) for path in paths)

    def _inside(self, paths: Argv, shown: str) -> None:
        roots = (self.policy.workdir, *self.policy.grants.writable)
        for path in paths:
            if not is_inside(path, self.request.cwd, roots):
                self._deny(
                    "writes outside",
                    f"{path} lies outside the working directory, and `{shown}` would use it. The "
                    f"operator can grant `write:{path}`: say so in your report.",
                )

    def _as_owner(self, understood: Understanding, shown: str, owner: str) -> Understanding:
        """Let a user of the host read its database, with the variables that sudo removes."""
        if understood.argv[0] not in AS_OWNER:
            self._deny(
                "not as another user",
                f"`{shown}` does not run as {owner}: only services, processes and databases are "
                "reached as another user. Without `sudo` it runs as the user of the watch; if "
                "that is not enough, leave it to a person, and say so in your report.",
            )
        if understood.sends_to:
            self._deny(
                "not as another user",
                f"`{shown}` names a host: as another user only the database of this host is "
                "reached. Leave out the host, or leave out `sudo`.",
            )
        variables = (f"{name}={value}" for name, value in understood.environment)
        argv = ("env", *variables, *understood.argv) if understood.environment else understood.argv
        return replace(understood, argv=argv, environment=(), grant=HOST)

    def _with_sudo(self, understood: Understanding, shown: str, owner: str) -> Understanding:
        if owner and not understood.writes and understood.grant not in AS_OTHERS:
            return self._as_owner(understood, shown, owner)
        program = understood.argv[0]
        if understood.grant in BROKERED.values():
            return understood
        if program in (*FILE_PROGRAMS, "find") and understood.writes:
            if not self.policy.sandboxed:
                self._deny("writes outside", f"`{shown}` needs a sandbox, and there is none here.")
            return replace(understood, grant=FILES)
        if understood.grant in (HOST, BUS, PROCESSES) and not understood.inner:
            return replace(understood, grant=HOST)
        if understood.grant == "" and understood.level == LOOK and not understood.inner:
            return self._look_with_sudo(understood, shown)
        self._deny("works in the sandbox", f"`{shown}` needs no `sudo`: leave it out.")
        return understood

    def _look_with_sudo(self, understood: Understanding, shown: str) -> Understanding:
        """Let root read logs, in a sandbox that hides its secrets."""
        paths = [word for word in understood.arguments if "/" in word]
        here = (self.policy.workdir, *LOGS)  # where a word without a slash may be a file
        reads_logs = (
            understood.argv[0] in READS_LOGS
            and all(is_inside(path, "/", LOGS) for path in paths)
            and is_inside(".", self.request.cwd, here)
        )
        if not self.policy.sandboxed or not reads_logs:
            self._deny(
                "works in the sandbox",
                f"`{shown}` runs without `sudo`: leave it out. With it, only files below "
                f"{', '.join(LOGS)} are read.",
            )
        return replace(understood, grant=FILES)

    def _here(
        self, understood: Understanding, inside: list[Understanding | None], shown: str
    ) -> Understanding:
        known = self.policy.programs_in and understood.argv[0] in STAND_INS
        known = known or understood.chooses is not None
        if self.policy.sandboxed and understood.argv[0] not in programs.SHIMS and not known:
            self._deny(
                "works in the sandbox",
                f"`{shown}` needs no grant: it runs in the command sandbox itself.",
            )
        if not self.policy.sandboxed and understood.argv[0] == "git" and self.tier >= SAFE:
            self._deny(
                "not understood",
                f"`{shown}` may run what files of the repository name, and no sandbox holds it.",
            )
        if understood.inner and not understood.elsewhere and (inner := inside[0]):
            is_brokered = inner.grant in BROKERED.values()
            understood = replace(
                understood,
                argv=inner.argv if is_brokered else (*understood.argv, *inner.argv),
                environment=inner.environment,
                grant=inner.grant,
            )
        self._grant(understood.grant, shown)
        return understood

    def _grant(self, grant: str, shown: str) -> None:
        needed = PART_OF.get(grant, grant)
        if needed and needed not in self.policy.grants.names:
            self._deny(
                f"grant {needed} is missing",
                f"`{shown}` needs the grant `{needed}` ({MEANING[needed]}), which is missing. The "
                "operator can give it to this tier or watch: say so in your report.",
            )

    def rules(self, words: Argv, action: Argv, shown: str) -> None:
        for rule in self.policy.denied:
            if forbids(rule, words, action):
                self._deny(
                    f"denied by {rule}",
                    f"`{shown}` is denied at this tier by the rule {rule}. {self._instead()}",
                )
        self.asks += [(rule, shown) for rule in self.policy.ask if forbids(rule, words, action)]

    def deny_unlisted(self, shown: str) -> None:
        rules = ", ".join(rule for rule in self.policy.allowed if rule.startswith("Bash"))
        self._deny(
            "not among the allowed commands",
            f"`{shown}` is not among what this tier may run: {rules or 'nothing of Bash'}. "
            f"{self._instead()}",
        )

    def _level(self, level: int, shown: str, why: str) -> None:
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

    def _deny(self, rule: str, reason: str) -> None:
        self.denials.append((rule, reason))
