"""The differential test: compares the vectors that run with a grant with the command policy.

Texts made from the corpus, a grammar and mutations run in one command sandbox, many in each Bash
call, by the real bash and the real shims. Two recorders stand at both ends, and share no code with
the command runner: the shim first writes down the argument vector that the kernel gave it, and
behind the command runner a stand-in of each program writes down the vector with which it was
executed. Each vector executed there must be one that the policy returns for a vector that a text
executed. Everything else is a difference.
"""

from __future__ import annotations

import base64
import json
import os
import random
import re
import shlex
import subprocess
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from escalation.agent.process import Traces
from escalation.command_policy import grants
from escalation.command_policy.decision import (
    BROKERED,
    STAND_INS,
    Decision,
    ExecRequest,
    decide,
)
from escalation.command_policy.programs import PASSED_VARIABLES, SHIMS
from escalation.command_policy.protected import NOTHING_CHOSEN
from escalation.command_policy.understanding import Argv
from escalation.errors import CannotRun, WhyNot
from escalation.sandbox.command_runner import CommandEnd, DecisionRecord
from escalation.sandbox.proof import corpus
from escalation.sandbox.proof.corpus import plain
from escalation.sandbox.proof.host import ProofHost
from escalation.sandbox.proof.programs import system_python, write_program
from escalation.sandbox.proof.trial import NOT_EXECUTED, emptied, request_for
from escalation.sandbox.setup import RunSandbox, in_sandbox, policy_of
from escalation.tiers import get_tier
from sessions_app.models.session import Verdict
from sessions_app.tiers import tier_numbers

# Texts.

LONGEST_TEXT = 1500
# They would wait, fill the memory or start processes without end.
ENDLESS = re.compile(
    r"sleep|\byes\b|tail -[fF]|-f\b.*log|watch|/dev/(?:zero|u?random|full)|while|until|for \(\(|"
    r":\(\)|&\s*\}|\bseq\b|\bdd\b|inotify|kill|\bread\b|\bwait\b|coproc|mkfifo|\bnc -l|\{1\.\.|"
    r"timeout|@[a-z-]+@|urandom|truncate|fallocate|ulimit|head -c|fork|speak"
)
WRAPPERS: tuple[Callable[[str], str], ...] = (
    lambda text: f"eval {shlex.quote(text)}",
    lambda text: f"bash -c {shlex.quote(text)}",
    lambda text: f"sh -c {shlex.quote(text)}",
    lambda text: f"( {text}\n)",
    lambda text: f"{{ {text}\n}}",
    lambda text: f"echo $( {text}\n)",
    lambda text: f": `{text.replace('`', '')}`",
    lambda text: f"cat <( {text}\n)",
    lambda text: f"f() {{ {text}\n}}; f",
    lambda text: f"if true; then {text}\nfi",
    lambda text: f"for i in 1 2; do {text}\ndone",
    lambda text: f"x={shlex.quote(text)}; $x",
    lambda text: f"x={shlex.quote(text)}; eval $x",
    lambda text: f"printf %s {shlex.quote(text)} | sh",
    lambda text: f"bash <<'EOT'\n{text}\nEOT",
    lambda text: f". /dev/stdin <<'EOT'\n{text}\nEOT",
    lambda text: f'set -- {text}\n"$@"',
    lambda text: f'a=({text}\n); "${{a[@]}}"',
    lambda text: f"printf '%s\\n' {shlex.quote(text)} | xargs -I% sh -c %",
    lambda text: f"xargs {text}",
    lambda text: f"printf 'web\\ndb\\n' | xargs {text}",
    lambda text: f"printf 'web\\0db' | xargs -0 -n1 {text}",
    lambda text: f"find . -maxdepth 1 -name README.md -exec {text} \\;",
    lambda text: f"awk 'BEGIN{{system(ARGV[1])}}' {shlex.quote(text)}",
    lambda text: f"env {text}",
    lambda text: f"env -i /bin/bash -c {shlex.quote(text)}",
    lambda text: f"command {text}",
    lambda text: f"exec {text}",
    lambda text: f"exec -a nothing {text}",
    lambda text: f"nice {text}",
    lambda text: f"nohup {text}",
    lambda text: f"setsid {text}",
    lambda text: f"trap {shlex.quote(text)} EXIT",
    lambda text: f"shopt -s expand_aliases; alias q={shlex.quote(text)}\nq",
    lambda text: f"shopt -s nullglob; {text}",
    lambda text: f"set -f; {text}",
    lambda text: f"IFS=,; {text}",
    lambda text: f"cd src; {text}",
    lambda text: f"cd /tmp; {text}",
    lambda text: f"python3 -c 'import os,sys; os.system(sys.argv[1])' {shlex.quote(text)}",
    lambda text: f"echo {_encoded(text)} | base64 -d | bash",
    lambda text: f"$'\\x{ord(text[0]):02x}'{text[1:]}" if text[:1].isascii() and text else text,
)
JOINTS = ("; ", " && ", " || ", " | ", " & ", "\n", " |& ")
ODD_WORDS = (
    *("''", '""', "--", "-", "$@", "$*", "$HOME", "~", "*", "?", "[a-z]*", "{a,b}", "$'\\n'"),
    *("$'\\x01'", "$'\\377'", "é", "\u202e", "\u00a0", "$(echo web)", "`echo db`", "${x:-web}"),
    *("$((1+1))", "-K", "--config=x", "-o", "./x", "@file", "-e", "-c", "--", "=", "\\-x"),
    *("-oProxyCommand=id", "--exec=id", "-H", "-X", "POST", "-T", "-n", "-u", "root", "-i"),
    *("'a b'", '"a  b"', "a\\ b", "#x", "\\#", "!", "$!", "%s", "\\\n", "2>&1", ">/dev/null"),
    *("</dev/null", "<<<x", "file:///etc/passwd", "http://127.0.0.1/", "lighthouse", "web", "db"),
)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode("utf-8", "replace")).decode()


def texts(count: int, seed: int) -> list[str]:
    """Return different texts; the same for the same seed."""
    source = _Texts(random.Random(seed))  # noqa: S311 (reproducible, nothing secret)
    found: dict[str, None] = {}
    while len(found) < count:
        text = source.one()
        if text.strip() and len(text) <= LONGEST_TEXT and not ENDLESS.search(text):
            found.setdefault(text.encode("utf-8", "replace").decode().replace("\0", ""))
    return list(found)


class _Texts:
    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        rows = corpus.read(find=str).rows
        self._commands = [row.command for row in rows if not ENDLESS.search(row.command)]
        self._words: dict[str, list[str]] = {}
        for command in self._commands:
            for part in re.split(r"[;|&\n]+", command):
                self._learn(part.split())
        self._programs = sorted(SHIMS)
        self._all = [word for words in self._words.values() for word in words]

    def _learn(self, words: Sequence[str]) -> None:
        for at, word in enumerate(words):
            if word in SHIMS:
                self._words.setdefault(word, []).extend(words[at + 1 :])

    def one(self) -> str:
        kind = self._chance.random()
        if kind < 0.35:
            text = self._made()
        elif kind < 0.8:
            text = self._changed(self._chance.choice(self._commands))
        else:
            joint = self._chance.choice(JOINTS)
            text = f"{self._part()}{joint}{self._part()}"
        for _ in range(self._chance.choice((0, 0, 1, 1, 2))):
            text = self._chance.choice(WRAPPERS)(text)
        return text

    def _part(self) -> str:
        return self._made() if self._chance.random() < 0.5 else self._chance.choice(self._commands)

    def _made(self) -> str:
        """Return a program with words that the corpus gives to it, and some others."""
        program = self._chance.choice(self._programs)
        own = self._words.get(program) or self._all
        words = [
            self._chance.choice(own if self._chance.random() < 0.8 else ODD_WORDS)
            for _ in range(self._chance.randrange(6))
        ]
        return " ".join((self._spelt(program), *words))

    def _spelt(self, program: str) -> str:
        ways = (
            program,
            program,
            f"/usr/bin/{program}",
            f"\\{program}",
            f"'{program}'",
            f"{program[:1]}''{program[1:]}",
            f'"{program[:2]}"{program[2:]}',
            f"${{x:-{program}}}",
            f"$(echo {program})",
            f"/usr/bin/../bin/{program}",
            f"{{{program},}}",
        )
        return self._chance.choice(ways)

    def _changed(self, text: str) -> str:
        for _ in range(self._chance.randrange(4)):
            words = text.split(" ")
            at = self._chance.randrange(len(words))
            change = self._chance.randrange(8)
            if change == 0:
                words.insert(at, self._chance.choice(ODD_WORDS))
            elif change == 1:
                words[at] = self._chance.choice(self._all)
            elif change == 2:
                del words[at]
            elif change == 3:
                words.insert(at, words[at])
            elif change == 4:
                other = self._chance.randrange(len(words))
                words[at], words[other] = words[other], words[at]
            elif change == 5:
                words[at] = "".join(
                    f"\\{letter}" if self._chance.random() < 0.3 else letter for letter in words[at]
                )
            elif change == 6:
                words[at] = f"{words[at][:1]}''{words[at][1:]}"
            else:
                letter = self._chance.choice("'\"\\$`{}()<>|&;!*?[]~#=%\t\n-/ aé\u202e")
                place = self._chance.randrange(len(words[at]) + 1)
                words[at] = f"{words[at][:place]}{letter}{words[at][place:]}"
            text = self._chance.choice((" ", " ", " ", "\t", "  ", "${IFS}")).join(words)
        return text


# Recorders. A record is the number of its fields, and the fields, in one write: a pipe takes up to
# 4096 bytes at once. Longer vectors are written down as such.

LONGEST_RECORD = 3500
TOO_LONG = "too long to be recorded"
_STAND_IN = """\
#!/bin/sh
all="$*"
[ ${{#all}} -le {longest} ] && [ $# -le 400 ] || set -- {too_long!r}
printf '=%s\\0' "ran $#" "${{0##*/}}" "$@" > {pipe}
"""
_IN_SHIM = """\
def _record():
    import posix
    # The client of pgrep and pkill executes itself again, without the words.
    if b"CLAUDEOPS_WORDS" in posix.environ:
        return
    number = posix.open("/proc/self/cmdline", 0)
    data = b""
    while piece := posix.read(number, 65536):
        data += piece
    posix.close(number)
    words = data.split(b"\\0")[2:-1]
    if words[0].endswith(b"/shim"):
        return
    fields = [posix.getcwdb(), b"\\1".join(
        name + b"=" + value for name, value in posix.environ.items() if name in {variables!r}
    )]
    if sum(map(len, words + fields)) > {longest} or len(words) > 400:
        words = [words[0], {too_long!r}]
    record = [b"asked %d" % (len(words) + 1), *fields, *words]
    number = posix.open({pipe!r}, posix.O_WRONLY)
    posix.write(number, b"".join(b"=" + field + b"\\0" for field in record))
    posix.close(number)


_record()
del _record
"""
_DRIVER = """\
import concurrent.futures, json, os, signal, subprocess, sys, time

texts = json.load(open(sys.argv[1]))
# Not for the supervisor, whose own programs are no stand-ins.
variables = dict(os.environ, PATH=os.path.dirname(sys.argv[0]) + ":" + os.environ["PATH"])


def run(text):
    shell = subprocess.Popen(
        ["/bin/bash", "--noprofile", "--norc", "-c", text], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        env=variables,
    )
    try:
        shell.wait({seconds})
        return 0
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        return 1


def left():
    own = {{1, os.getpid(), os.getppid()}}
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if pid not in own]


with concurrent.futures.ThreadPoolExecutor({at_once}) as pool:
    unfinished = sum(pool.map(run, texts))
until = time.monotonic() + {seconds}
while left() and time.monotonic() < until:
    time.sleep(0.02)
print(unfinished + len(left()), flush=True)
"""
TEXT_SECONDS = 5
MARK_SECONDS = 30.0
AT_ONCE = 6
BATCH = 500
NOT_THERE = Decision(verdict=Verdict.DENY, rule="not there")
"""On the host nothing runs outside the directories of the run."""
NO_API = "http://127.0.0.1:9"
"""No model takes part."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A vector that a text executed as a shim."""

    argv: Argv
    cwd: str
    environment: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class Records:
    """The records of both recorders."""

    asked: list[Asked] = field(default_factory=list)
    ran: list[Argv] = field(default_factory=list)

    def add(self, fields: Sequence[bytes]) -> None:
        kind, words = fields[0].split()[0], [os.fsdecode(word) for word in fields[1:]]
        if kind == b"ran":
            self.ran.append(tuple(words))
            return
        cwd, variables, program, *rest = words
        pairs = (pair.partition("=") for pair in variables.split("\1") if pair)
        self.asked.append(
            Asked(
                argv=(os.path.basename(program), *rest),
                cwd=cwd,
                environment=tuple((name, value) for name, _sign, value in pairs),
            )
        )


class RecordPipe:
    """Reads the named pipe of the recorders, in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        os.mkfifo(path, 0o622)
        path.chmod(0o622)
        # Also open for writing, so that reading does not end.
        self._number = os.open(path, os.O_RDWR)
        self._data = bytearray()
        self._lock = threading.Lock()
        self._marked = threading.Event()
        self._records = Records()
        threading.Thread(target=self._read, daemon=True).start()

    def taken(self) -> Records:
        """Return what was recorded since the last call: everything that came before a mark."""
        self._marked.clear()
        os.write(self._number, b"=mark 0\0")
        self._marked.wait(MARK_SECONDS)
        with self._lock:
            records, self._records = self._records, Records()
        return records

    def close(self) -> None:
        os.write(self._number, b"=end 0\0")

    def _read(self) -> None:
        while True:
            self._data += os.read(self._number, 1 << 20)
            *fields, rest = self._data.split(b"\0")
            at = 0
            with self._lock:
                while at < len(fields):
                    kind, count = fields[at][1:].split()
                    if kind == b"end":
                        os.close(self._number)
                        return
                    if kind == b"mark":
                        self._marked.set()
                        at += 1
                        continue
                    end = at + int(count) + 2
                    if end > len(fields):
                        break
                    self._records.add([bytes(field)[1:] for field in fields[at:end]])
                    at = end
            self._data = bytearray(b"".join(field + b"\0" for field in fields[at:])) + rest


# Comparison.


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    tier: int
    command: str
    """The vector that ran."""
    happened: str


@dataclass(kw_only=True, slots=True)
class DifferentialOutcome:
    texts: int = 0
    asked: int = 0
    """Vectors that texts executed as shims."""
    allowed: int = 0
    ran: int = 0
    """Vectors that ran with a grant."""
    unfinished: int = 0
    """Texts that did not end by themselves, and processes that they left."""
    not_started: int = 0
    """Allowed vectors whose sandbox could not be started, which the model is told."""
    differences: list[Difference] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.texts} texts, {self.asked} vectors executed, {self.allowed} allowed, "
            f"{self.ran} ran with a grant, {len(self.differences)} differences"
        )

    def add(self, other: DifferentialOutcome) -> None:
        self.texts += other.texts
        self.asked += other.asked
        self.allowed += other.allowed
        self.ran += other.ran
        self.unfinished += other.unfinished
        self.not_started += other.not_started
        self.differences += other.differences


def compare(
    tier: int,
    records: Records,
    decide_on: Callable[[ExecRequest], Decision],
    *,
    complete: bool,
    late: Counter[Argv] | None = None,
) -> DifferentialOutcome:
    """Compare what ran with what the policy returns for each asked vector.

    `complete` tells that no text was stopped: then every allowed vector must have run, too. If one
    was, its program may still run beside the next texts: `late` holds what was allowed and has not
    run, from one call to the next.
    """
    late = Counter() if late is None else late
    decisions = [
        decide_on(ExecRequest(argv=each.argv, cwd=each.cwd, environment=dict(each.environment)))
        for each in records.asked
        if TOO_LONG not in each.argv
    ]
    allowed = Counter(each.argv for each in decisions if _runs(each))
    ran = Counter(argv for argv in records.ran if TOO_LONG not in argv)
    more, fewer = ran - allowed, allowed - ran
    wrong = [(argv, "ran without a decision that allows it") for argv in more - late]
    late -= more
    if complete:
        wrong += [(argv, "was allowed and did not run") for argv in fewer]
    else:
        late += fewer
    return DifferentialOutcome(
        asked=len(records.asked),
        allowed=sum(allowed.values()),
        ran=len(records.ran),
        differences=[
            Difference(tier=tier, command=shlex.join(argv), happened=what) for argv, what in wrong
        ],
    )


def _runs(decision: Decision) -> bool:
    return decision.verdict == Verdict.ALLOW and decision.grant != grants.FILES


def _without_files(command: str, decision: Decision) -> Decision:
    """Deny what would be executed as root by a program that is no stand-in."""
    if decision.grant != grants.FILES or decision.is_denied:
        return decision
    return Decision(verdict=Verdict.DENY, rule=NOT_EXECUTED, reason=f"{NOT_EXECUTED}: {command}")


@dataclass(slots=True)
class Differential:
    """Runs texts in the sandbox of one tier, many in one Bash call."""

    tier: int
    sandbox: RunSandbox
    pipe: RecordPipe
    decide_on: Callable[[ExecRequest], Decision]
    programs: Path
    not_started: list[str]
    """Commands whose sandbox could not be started."""
    late: Counter[Argv] = field(default_factory=Counter)
    """Allowed vectors of texts that were stopped, which have not run."""

    def run(self, batch: Sequence[str]) -> DifferentialOutcome:
        file = self.programs / "texts.json"
        file.write_text(json.dumps(batch))
        command = f"{self.programs}/driver {file}"
        done = subprocess.run(
            [str(self.sandbox.paths.client), f"eval {shlex.quote(command)}"],
            cwd=self.sandbox.paths.workdir,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        said = done.stdout.decode(errors="replace").strip()
        records = self.pipe.taken()
        if not said.isdigit() and records.asked:
            said = str(len(batch))  # A text has ended the driver.
        if not said.isdigit():
            told = done.stderr.decode(errors="replace").strip()
            raise CannotRun(
                f"The texts of the differential test did not run (exit code {done.returncode}): "
                f"{told}",
                WhyNot.SANDBOX,
            )
        not_started = len(self.not_started)
        self.not_started.clear()
        complete = said == "0" and not not_started
        found = compare(self.tier, records, self.decide_on, complete=complete, late=self.late)
        return replace(found, texts=len(batch), unfinished=int(said), not_started=not_started)


@contextmanager
def differential(host: ProofHost, tier: int) -> Iterator[Differential]:
    """Set up the sandbox of a tier with a recorder in place of every mediated program."""
    programs = host.directory / f"recorders-{tier}"
    programs.mkdir()
    pipe = RecordPipe(programs / "pipe")
    limits = {"longest": LONGEST_RECORD, "pipe": str(pipe.path)}
    for name in (*SHIMS, *STAND_INS, *BROKERED, *NOTHING_CHOSEN):
        write_program(programs / name, _STAND_IN.format(**limits, too_long=TOO_LONG))
    driver = _DRIVER.format(seconds=TEXT_SECONDS, at_once=AT_ONCE)
    write_program(programs / "driver", f"#!{system_python()} -IS\n{driver}")
    for directory in (host.config, host.run_directory):
        emptied(directory)
    request = replace(
        request_for(host, get_tier(tier), NO_API, Traces()),
        watch_grants=f"read:{programs}",
        stand_ins=(programs,),
    )
    not_started: list[str] = []

    def note_end(record: DecisionRecord, end: CommandEnd) -> None:
        if record.verdict == Verdict.ALLOW and not end.has_run:
            not_started.append(record.command)

    with in_sandbox(
        request, on_decision=_nothing, on_end=note_end, review=_without_files
    ) as sandbox:
        variables = frozenset(map(os.fsencode, PASSED_VARIABLES))
        record = _IN_SHIM.format(**limits, variables=variables, too_long=TOO_LONG.encode())
        _record_in_shim(sandbox.paths.shim, record)
        policy = policy_of(request)

        def decide_on(wanted: ExecRequest) -> Decision:
            decision = decide(policy, wanted)
            on_host = decision.grant == grants.HOST
            is_elsewhere = on_host and not sandbox.paths.is_own_directory(wanted.cwd)
            return NOT_THERE if is_elsewhere else decision

        try:
            yield Differential(tier, sandbox, pipe, decide_on, programs, not_started)
        finally:
            pipe.close()


def _nothing(record: DecisionRecord) -> None:
    """Record no decision: the policy is asked again."""


def _record_in_shim(shim: Path, record: str) -> None:
    first, rest = shim.read_text().split("\n", 1)
    shim.unlink()
    write_program(shim, f"{first}\n{record}\n{rest}")


def compare_texts(
    host: ProofHost, count: int, seed: int, progress: Callable[[str], None]
) -> DifferentialOutcome:
    """Run texts at every tier in turn, in equal parts."""
    found = DifferentialOutcome()
    waiting = texts(count, seed)
    tiers = tier_numbers()
    share = -(-count // len(tiers))
    for tier in tiers:
        own, waiting = waiting[:share], waiting[share:]
        with differential(host, tier) as each:
            for at in range(0, len(own), BATCH):
                found.add(each.run(own[at : at + BATCH]))
                progress(f"Tier {tier}: {found}")
    return found


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each difference, and the figures."""
    for row in found["rows"]:
        yield f"FAILED Tier {row['tier']} {plain(row['command'])}: {row['happened']}"
    yield (
        f"{found['tried']} texts executed {found['asked']} vectors of mediated programs; "
        f"{found['allowed']} were allowed, {found['ran']} ran with a grant; "
        f"{found['failed']} differences"
    )
    if found["unfinished"] or found["not_started"]:
        yield (
            f"{found['unfinished']} texts were stopped, "
            f"{found['not_started']} sandboxes could not be started"
        )
