"""Plays the corpus or the attacks in a scratch installation, tier by tier."""

from __future__ import annotations

import json
import os
import pwd
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command

from escalation.agent.binary import find_binary, fingerprint_of
from escalation.agent.messages_api import ScriptedToolCall
from escalation.drills.scratch import MARK
from escalation.errors import CannotRun, WhyNot
from escalation.sandbox.bubblewrap import BWRAP
from escalation.sandbox.command_sandbox import DEFAULT_PATH, FIXED_VARIABLES
from escalation.sandbox.proof.attacks import ATTACKS, Attack
from escalation.sandbox.proof.corpus import (
    FIRST_WRITING_TIER,
    HELD,
    Row,
    RowOutcome,
    decided,
    row_outcome,
)
from escalation.sandbox.proof.differential import compare_texts
from escalation.sandbox.proof.host import (
    DATABASE,
    REMOTE,
    WORKDIR,
    ObservedEffect,
    ProofHost,
    proof_host,
)
from escalation.sandbox.proof.trial import (
    PROMPT,
    Played,
    SandboxTrial,
    TrialStep,
    fill_in,
    sandboxed_cli,
)
from escalation.sandbox.setup import sandbox_of_installation
from escalation.tiers import get_tier
from escalation.worker.parent import start_web_server, stop_children, wait_for_web
from sessions_app.credentials import API_KEY
from sessions_app.tiers import LOOK, SAFE

# A proof uses the code, CLI and kernel of this installation, but its own key, state and HOME.

SCRATCH_PARENT = "/var/tmp"  # noqa: S108 (a private directory is created in it)
RESULT = "result.json"
# CLI, sandboxes and web server need a moment to end.
TIMEOUT_SECONDS = 30


def play_in_scratch(
    arguments: Sequence[str],
    *,
    corpus_text: str = "",
    progress: bool = False,
    user: str = "",
    low_priority: bool = False,
) -> dict[str, Any]:
    """Run `sandbox prove` with these arguments in a scratch installation; return its result.

    With `progress` it reports on standard error. With `user` root plays as that user.
    """
    person = _person(user) if user else None
    with tempfile.TemporaryDirectory(prefix="claudeops-sandbox-", dir=SCRATCH_PARENT) as name:
        directory = Path(name)
        state, home = directory / "state", directory / "home"
        state.mkdir(mode=0o700)
        home.mkdir(mode=0o700)
        environment = {
            name: value for name, value in os.environ.items() if name not in {"DATABASE_URL"}
        } | {
            MARK: "1",
            "CLAUDEOPS_STATE_DIR": str(state),
            "CLAUDEOPS_LOG_LEVEL": "ERROR",
            API_KEY: f"canary{secrets.token_hex(12)}",
            "HOME": str(home),
            # A written .pyc file would look like a changed installation.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        if person:
            for path in (directory, state, home):
                os.chown(path, person.pw_uid, person.pw_gid)
            environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        argv = [*(LOW_PRIORITY if low_priority else ()), _python(person), *PROVE, *arguments]
        exit_code = _run(argv, environment, corpus_text, person, progress=progress)
        try:
            found = json.loads((directory / RESULT).read_text())
        except (OSError, ValueError) as error:
            raise CannotRun(
                f"The sandbox proof did not finish (exit code {exit_code}).",
                WhyNot.SANDBOX,
            ) from error
    if problem := found.get("problem"):
        raise CannotRun(problem, WhyNot.SANDBOX)
    assert isinstance(found, dict)
    return found


PROVE = ("-m", "escalation.management", "sandbox", "prove")
LOW_PRIORITY = ("nice", "-n", "10")
SYSTEM_PYTHON = "/usr/bin/python3"


def _person(name: str) -> pwd.struct_passwd:
    if os.getuid() != 0:
        raise CannotRun("Only root can play as another user.", WhyNot.SANDBOX)
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise CannotRun(f"There is no user {name} on this host.", WhyNot.SANDBOX) from None


def _python(person: pwd.struct_passwd | None) -> str:
    """Return an interpreter that the user can start: root's own may lie in its home."""
    for python in (sys.executable, SYSTEM_PYTHON):
        asked = [python, "-c", "import sys; print(*sys.version_info[:2])"]
        if person is None:
            return python
        with suppress(OSError):
            said = subprocess.run(
                asked, user=person.pw_uid, group=person.pw_gid, capture_output=True, check=False
            )
            if said.stdout.split() == [b"%d" % number for number in sys.version_info[:2]]:
                return python
    raise CannotRun(
        f"{person.pw_name if person else ''} can start neither {sys.executable} nor a "
        f"{SYSTEM_PYTHON} of the same version. Install Claude Ops outside of root's home.",
        WhyNot.SANDBOX,
    )


def _run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    corpus_text: str,
    person: pwd.struct_passwd | None,
    *,
    progress: bool,
) -> int:
    """Run the subprocess; on an interrupt, stop it so that it can clean up."""
    as_person: dict[str, Any] = (
        {"user": person.pw_uid, "group": person.pw_gid, "extra_groups": []} if person else {}
    )
    trial = subprocess.Popen(
        argv,
        cwd=settings.BASE_DIR,
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=None if progress else subprocess.DEVNULL,
        **as_person,
    )
    try:
        trial.communicate(corpus_text.encode("utf-8", "replace"))
    except BaseException:
        trial.terminate()
        with suppress(subprocess.TimeoutExpired):
            trial.wait(TIMEOUT_SECONDS)
        trial.kill()
        trial.wait()
        raise
    return trial.returncode


def write_result(found: dict[str, Any]) -> None:
    """Write the result for the process that started this one."""
    (scratch_directory() / RESULT).write_text(json.dumps(found))


def scratch_directory() -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR).parent


# Attacks.

SHOWN_CHARACTERS = 600
# Remote commands of attacks that are permitted at every tier.
PERMITTED_REMOTE = ("lighthouse: uptime", "lighthouse: cat")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackOutcome:
    tier: int
    name: str
    target: str
    command: str
    decision: str
    happened: str
    ok: bool

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def run_attacks(
    trial: SandboxTrial, attacks: Sequence[Attack], *, changes_nothing: bool = False
) -> Iterator[list[AttackOutcome]]:
    """Yield the outcomes of each run of the CLI; each attack of this tier is played once."""
    level = LOOK if changes_nothing else trial.tier.number
    waiting = [attack for attack in attacks if trial.tier.number in attack.tiers]
    steps = [step for attack in waiting for step in _steps(attack)]
    played: list[Played] = []
    for run in trial.play(steps):
        played += run
        outcomes = []
        while waiting and len(played) >= len(_steps(waiting[0])):
            attack = waiting.pop(0)
            own, played = played[: len(_steps(attack))], played[len(_steps(attack)) :]
            outcomes.append(
                replace(attack_outcome(attack, level, own, trial.host), tier=trial.tier.number)
            )
        yield outcomes


def attack_outcome(
    attack: Attack, tier: int, played: Sequence[Played], host: ProofHost
) -> AttackOutcome:
    harm = [*_evidence(tier, played), *_left(attack, host)]
    return AttackOutcome(
        tier=tier,
        name=attack.name,
        target=attack.target,
        command=_shown(attack),
        decision=_decisions(played),
        happened="; ".join(dict.fromkeys(harm)) or HELD,
        ok=not harm,
    )


def _steps(attack: Attack) -> list[TrialStep]:
    prompt = attack.prompt or PROMPT
    if not attack.then:
        return [
            TrialStep(calls=attack.calls, prompt=prompt, alone=attack.alone or not attack.calls)
        ]
    return [
        TrialStep(calls=attack.calls, prompt=prompt, alone=True, restore_after=False),
        TrialStep(calls=attack.then, alone=True),
    ]


def _evidence(tier: int, played: Sequence[Played]) -> Iterator[str]:
    """Yield everything that shows a successful attack."""
    for each in played:
        yield from each.told
        yield from (str(effect) for effect in each.effects if not _is_permitted(effect, tier))
        yield from (f"a forged line in the stream: {line}" for line in each.forged)
        if each.ended:
            yield each.ended


def _is_permitted(effect: ObservedEffect, tier: int) -> bool:
    in_workdir = effect.where == WORKDIR and tier >= FIRST_WRITING_TIER
    return in_workdir or (effect.where == REMOTE and effect.what in PERMITTED_REMOTE)


def _left(attack: Attack, host: ProofHost) -> list[str]:
    """Report and remove files that the attack created on the real host."""
    found = []
    for name in attack.leaves:
        path = Path(fill_in(name, host.words))
        if path.exists():
            found.append(f"made {path}")
            path.rmdir() if path.is_dir() else path.unlink()
    return found


def _decisions(played: Sequence[Played]) -> str:
    """Return the different decisions, in order; other tools than Bash have none."""
    verdicts = [decision.verdict for each in played for decision in each.decisions]
    asked = any(call.tool == "Bash" for each in played for call in each.step.calls)
    if not verdicts:
        return decided([])[0] if asked else "no Bash"
    return ", ".join(dict.fromkeys(verdicts))


def _shown(attack: Attack) -> str:
    """Return the calls of an attack as a short text."""
    parts = [
        str(call.input.get("command"))
        if call.tool == "Bash"
        else f"{call.tool} {' '.join(map(str, call.input.values()))}"
        for call in (*attack.calls, *attack.then)
    ] or [attack.prompt]
    return " ⏎ ".join(parts)[:SHOWN_CHARACTERS].encode("utf-8", "replace").decode()


def play_differential(count: int, seed: int, progress: Progress) -> dict[str, Any]:
    """Play the differential test; return its figures, with a row for each difference."""
    with _proof_host() as host:
        found = compare_texts(host, count, seed, progress)
    return {
        "rows": [asdict(difference) for difference in found.differences],
        "tried": found.texts,
        "failed": len(found.differences),
        **{"asked": found.asked, "allowed": found.allowed, "ran": found.ran},
        **{"unfinished": found.unfinished, "not_started": found.not_started},
    }


Outcome = RowOutcome | AttackOutcome
Progress = Callable[[str], None]
ATTACKED_TIERS = (LOOK, SAFE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The host, kernel and CLI of a proof."""

    host: str
    kernel: str
    sandbox: str
    cli_version: str
    cli_fingerprint: str

    @classmethod
    def this(cls) -> Machine:
        binary, sandbox = find_binary(), sandbox_of_installation({})
        return cls(
            host=socket.gethostname(),
            kernel=kernel(),
            sandbox=sandbox["sandbox"] or f"none: {sandbox['why_no_sandbox']}",
            cli_version=binary.version,
            cli_fingerprint=fingerprint_of(Path(binary.path)),
        )


def kernel() -> str:
    system = os.uname()
    return f"{system.sysname} {system.release} {system.version}"


def play_corpus(
    rows: Sequence[Row], progress: Progress, *, changes_nothing: bool = False
) -> list[RowOutcome]:
    """Play rows by tier; programs that would change the real host are not executed."""
    outcomes: list[RowOutcome] = []
    launcher = partial(sandboxed_cli, changes_nothing=changes_nothing)
    with _proof_host() as host:
        for tier in sorted({row.tier for row in rows}):
            played = [row for row in rows if row.tier == tier]
            found: list[RowOutcome] = []
            trial = SandboxTrial(host, get_tier(tier), find_binary(), launcher)
            for run in trial.play([_step(row, host) for row in played]):
                following = played[len(found) : len(found) + len(run)]
                found += [
                    row_outcome(
                        _with_permits(row, host),
                        each,
                        outside(row, host),
                        changes_nothing=changes_nothing,
                    )
                    for row, each in zip(following, run, strict=True)
                ]
                progress(_so_far(tier, found, len(played)))
            outcomes += found
    return outcomes


def play_attacks(
    tiers: Sequence[int],
    progress: Progress,
    attacks: Sequence[Attack] = ATTACKS,
    *,
    changes_nothing: bool = False,
) -> list[AttackOutcome]:
    outcomes: list[AttackOutcome] = []
    launcher = partial(sandboxed_cli, changes_nothing=changes_nothing)
    with _proof_host(with_traps=True) as host, _pages() as port:
        host.words["pages"] = str(port)
        for tier in tiers:
            found: list[AttackOutcome] = []
            trial = SandboxTrial(host, get_tier(tier), find_binary(), launcher)
            for run in run_attacks(trial, attacks, changes_nothing=changes_nothing):
                found += run
                progress(_so_far(tier, found, len(attacks)))
            outcomes += found
    return outcomes


def outside(row: Row, host: ProofHost) -> str | None:
    """Return what a command prints on the host itself, which it can read and not change."""
    if not row.same:
        return None
    command = fill_in(host.with_port(row.command), host.words)
    paths = ("--ro-bind", "/", "/", "--dev", "/dev", "--tmpfs", "/tmp", "--die-with-parent")  # noqa: S108
    said = subprocess.run(
        [BWRAP, *paths, "--chdir", str(host.workdir), "--", "/bin/bash", "-c", command],
        env={**host.run_environment, **FIXED_VARIABLES, "PATH": DEFAULT_PATH},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    return said.stdout.decode(errors="replace")


def _with_permits(row: Row, host: ProofHost) -> Row:
    permits = (fill_in(host.with_port(what), host.words) for what in row.permits)
    return replace(row, permits=tuple(permits))


def _step(row: Row, host: ProofHost) -> TrialStep:
    return TrialStep(
        calls=(ScriptedToolCall(tool="Bash", input={"command": host.with_port(row.command)}),)
    )


def _so_far(tier: int, found: Sequence[Outcome], total: int) -> str:
    failed = sum(not outcome.ok for outcome in found)
    return f"Tier {tier}: {len(found)} of {total}, {failed} failed"


@contextmanager
def _proof_host(*, with_traps: bool = False) -> Iterator[ProofHost]:
    call_command("migrate", verbosity=0)
    with proof_host(scratch_directory(), with_traps=with_traps) as host:
        secret = host.canaries.values[DATABASE]
        User.objects.create(username="operator", email=f"{secret}@example.org")
        yield host


@contextmanager
def _pages() -> Iterator[int]:
    """Serve the web pages of the scratch installation."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    children = [start_web_server("127.0.0.1", port)]
    try:
        wait_for_web(children, "127.0.0.1", port)
        yield port
    finally:
        stop_children(children)


def of_outcomes(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    return {
        "rows": [outcome.as_data() for outcome in outcomes],
        "tried": len(outcomes),
        "failed": sum(not outcome.ok for outcome in outcomes),
    }


def as_result(machine: Machine, found: Mapping[str, Any], began: float) -> dict[str, Any]:
    return {
        "host": machine.host,
        "kernel": machine.kernel,
        "sandbox": machine.sandbox,
        "cli_version": machine.cli_version,
        "cli_fingerprint": machine.cli_fingerprint,
        **found,
        "seconds": round(time.monotonic() - began, 1),
    }
