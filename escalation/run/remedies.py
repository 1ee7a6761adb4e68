"""Remedies of a watch: reads them for a run, and pins scripts as a person accepts them.

An agent never writes a remedy. Its script runs as it was when a person accepted it; a script that
differs, is gone or lies where an agent may write waits for a person.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
import time
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from difflib import unified_diff
from pathlib import Path

from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError
from django.db.models import Exists, OuterRef
from django.utils import timezone
from django.utils.crypto import constant_time_compare, salted_hmac

from escalation.agent.process import Traces
from escalation.command_policy.decision import read_one_command
from escalation.command_policy.grants import NAMES, PART_OF, grants_for
from escalation.command_policy.remedies import (
    REMEDY,
    DeclaredRemedy,
    RemedyCall,
    RemedyRefused,
    read_call,
)
from escalation.command_policy.understanding import EVERYTHING
from escalation.errors import OperationRefused, RefusalCode
from escalation.queue import installation_lock
from escalation.sandbox.edited_files import digest_of
from escalation.sandbox.setup import (
    SandboxRequest,
    current_remedies,
    read_script,
    remedy_runner,
    safe_path,
    why_writable,
)
from escalation.supervisor import remedy_runs
from escalation.supervisor.remedy_runs import REMOVED, was_removed
from escalation.tiers import get_tier
from sessions_app.history.services import one_spelling
from sessions_app.models import (
    Approval,
    Change,
    FileContent,
    Incident,
    IncidentEvent,
    Probe,
    Remedy,
    RemedyRun,
    ServiceState,
    Watch,
)
from sessions_app.models.remedy import problem_of_command, script_position
from sessions_app.redaction.encryption import EncryptedWithAnotherKey, decrypt, encrypt
from sessions_app.redaction.redact import redacted
from sessions_app.text import clean, cut
from sessions_app.tiers import highest_tier

NOT_ACCEPTED = "nobody has accepted its script"


def declared_remedies(watch: Watch | None) -> tuple[DeclaredRemedy, ...]:
    """Return the enabled remedies of a watch, each with why it waits, as for a new run."""
    if watch is None:
        return ()
    rows = Remedy.objects.filter(watch=watch, enabled=True).select_related("script")
    services = known_services(watch) if rows else ()
    return current_remedies([declared(row, services) for row in rows], writable_paths(watch))


def known_services(watch: Watch) -> tuple[str, ...]:
    """Return the names that a parameter of the type service may have."""
    found = ServiceState.objects.filter(watch=watch).values_list("service", "name")
    named = Remedy.objects.filter(watch=watch).exclude(service="").values_list("service", flat=True)
    probed = Probe.objects.filter(watch=watch).values_list("service", flat=True)
    return tuple(sorted({name for pair in found for name in pair}.union(named, probed)))


def declared(row: Remedy, services: tuple[str, ...]) -> DeclaredRemedy:
    position = script_position(row.command)
    script, waits = None, ""
    if position is not None:
        script, waits = _accepted_content(row)
    return DeclaredRemedy(
        name=row.name,
        description=row.description,
        command=tuple(row.command),
        parameters=row.declared_parameters,
        kind=row.kind,
        service=one_spelling(row.service) if row.service else "",
        tier=row.tier,
        grants=frozenset(row.grants.split()),
        seconds=row.seconds,
        services=services,
        script=script,
        script_at=position or 0,
        waits=waits,
        stamp=stamp_of(row),
    )


def stamp_of(row: Remedy) -> str:
    """Identify the declaration: another one has another stamp."""
    return f"{row.pk} {row.changed_at.isoformat()}"


def _accepted_content(row: Remedy) -> tuple[bytes, str]:
    if row.script is None:
        return b"", NOT_ACCEPTED
    try:
        return zlib.decompress(decrypt(bytes(row.script.content), str(row.script))), ""
    except (EncryptedWithAnotherKey, ValueError, zlib.error) as problem:
        return b"", f"its accepted content cannot be read ({problem})"


def writable_paths(watch: Watch) -> tuple[str, ...]:
    """Return the paths that an agent of the watch may write at some tier."""
    return (watch.workdir, *grants_for(watch_words=watch.grants).writable)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyState:
    """A remedy beside its script as it is now."""

    waits: str
    """Why a person has to look at it; empty if it may run."""
    difference: tuple[str, ...]
    """Redacted lines of a unified diff from the accepted content to the script as it is."""
    token: str
    """Identifies the content that a person sees; keyed, because it may hold a secret."""
    objection: str = ""
    """Why it cannot be accepted either; empty if it can, or if nothing waits."""


def state_of(row: Remedy) -> RemedyState:
    """Look at the script of a remedy, on this host."""
    found = declared(row, ())
    waits = current_remedies([found], writable_paths(row.watch))[0].waits
    if not row.script_path:
        return RemedyState(waits=waits, difference=(), token="", objection=waits)
    content, objection = b"", why_writable(row.script_path, writable_paths(row.watch))
    try:
        content = read_script(row.script_path)
    except (OSError, ValueError) as problem:
        objection = objection or f"{row.script_path} cannot be read: {problem}"
    before, after = (
        clean(redacted(text.decode("utf-8", "replace"))).splitlines()
        for text in (found.script or b"", content)
    )
    return RemedyState(
        waits=waits,
        difference=tuple(unified_diff(before, after, lineterm=""))[2:],
        token=salted_hmac("remedy", content, algorithm="sha256").hexdigest(),
        objection=objection,
    )


def save(row: Remedy, *, by: str) -> None:
    """Validate and store a remedy that a person wrote, with its script as it is.

    Raise ValidationError. A script that was accepted before and is still the same path stays
    pinned: a person accepts its difference on its own.
    """
    row.full_clean()
    with installation_lock():
        if was_removed(row):
            raise ValidationError(REMOVED)
        row.validate_constraints()
        if not row.script_path:
            row.script, row.accepted_by, row.accepted_at = None, "", None
        elif row.script is None or _path_before(row) != row.script_path:
            try:
                _pin(row, by=by)
            except OperationRefused as refused:
                raise ValidationError({"command": str(refused)}) from refused
        row.save()


def _path_before(row: Remedy) -> str:
    before = Remedy.objects.filter(pk=row.pk).first()
    return before.script_path if before else ""


def accept(row: Remedy, *, by: str, token: str | None = None) -> None:
    """Pin the script as it is now. `token` is that of the content that the person has seen."""
    if not row.script_path:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, f"The remedy {row.name} has no script to accept."
        )
    with installation_lock():
        if was_removed(row):
            raise OperationRefused(RefusalCode.NOT_FOUND, REMOVED)
        _pin(row, by=by, token=token)
        row.save()


def _pin(row: Remedy, *, by: str, token: str | None = None) -> None:
    path = row.script_path
    if why := why_writable(path, writable_paths(row.watch)):
        raise OperationRefused(
            RefusalCode.FILE,
            f"{why}. Move the script to a place where no agent may write, such as "
            "/usr/local/lib/claudeops.",
        )
    try:
        content = read_script(path)
    except (OSError, ValueError) as problem:
        raise OperationRefused(
            RefusalCode.FILE, f"The script {path} cannot be read: {problem}."
        ) from problem
    shown = salted_hmac("remedy", content, algorithm="sha256").hexdigest()
    if token is not None and not constant_time_compare(token, shown):
        raise OperationRefused(
            RefusalCode.FILE_CHANGED,
            f"{path} has changed since you looked at it. Look at the difference again.",
        )
    row.script, _created = FileContent.objects.get_or_create(
        digest=digest_of(content), defaults={"content": encrypt(zlib.compress(content))}
    )
    row.accepted_by, row.accepted_at = by, timezone.now()


def remove(row: Remedy) -> None:
    with installation_lock():
        row.delete()


# Runs for a person and for Tier 0, in a task of the queue.

LONGEST_OUTPUT = 20_000
REDACTED_LENGTH = 200_000
"""More is redacted than is stored, so that no secret is cut in half and missed."""
LOOK_SECONDS = 0.5
LONGEST_PROOF_SECONDS = 120
LOST_AFTER = timedelta(minutes=5)
"""Time after its own limit at which the worker of a run is taken for dead."""


def call_of(row: Remedy, arguments: Sequence[str]) -> RemedyCall:
    """Return the call of an enabled remedy; raise OperationRefused if it cannot run."""
    if not row.enabled:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, f"The remedy {row.name} is disabled.")
    found = current_remedies([declared(row, known_services(row.watch))], writable_paths(row.watch))
    try:
        return read_call((REMEDY, row.name, *arguments), found, highest_tier())
    except RemedyRefused as refused:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, refused) from refused


def ask_to_run(
    row: Remedy,
    arguments: Sequence[str],
    *,
    by: User | None,
    by_name: str,
    incident: Incident | None = None,
    in_foreground: bool = False,
) -> RemedyRun:
    """Let a worker run a remedy for a person. Raise OperationRefused for wrong arguments."""
    call_of(row, arguments)
    return remedy_runs.ask(
        row, arguments, by=by, by_name=by_name, incident=incident, in_foreground=in_foreground
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Undo:
    """The remedy that undoes a run, with its arguments."""

    remedy: Remedy
    arguments: tuple[str, ...]

    @property
    def call(self) -> str:
        return shlex.join([REMEDY, self.remedy.name, *self.arguments])


def undo_of(run: RemedyRun) -> Undo:
    """Return what undoes a run. Raise OperationRefused if nothing does.

    Parameters get the values that those of the same name had, a service that of the run.
    """
    if not run.undo_name:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE,
            f"Nothing undoes `{run.call}`: it did not run, or its remedy names no undo.",
        )
    row = Remedy.objects.filter(watch=run.watch_id, name=run.undo_name)
    found = row.select_related("watch", "script").first()
    if found is None:
        raise OperationRefused(
            RefusalCode.NOT_FOUND, f"The remedy {run.undo_name}, which undoes it, is gone."
        )
    assert run.remedy is not None, "a run without a remedy has no undo"
    declared_then = run.remedy.declared_parameters
    values = dict(zip((one.name for one in declared_then), map(str, run.arguments), strict=False))
    service = next((values.get(one.name) for one in declared_then if one.is_service), None)
    arguments = []
    for parameter in found.declared_parameters:
        value = values.get(parameter.name) or (
            (service or run.remedy.service) if parameter.is_service else None
        )
        if not value:
            raise OperationRefused(
                RefusalCode.INVALID_CHOICE,
                f"The value of {parameter.name} does not follow from `{run.call}`: "
                f"run the remedy {found.name} yourself.",
            )
        arguments.append(value)
    return Undo(remedy=found, arguments=tuple(arguments))


def ask_to_undo(
    run: RemedyRun, *, by: User | None, by_name: str, in_foreground: bool = False
) -> RemedyRun:
    """Let a worker run the remedy that undoes a run, once. Raise OperationRefused."""
    undo = undo_of(run)
    call_of(undo.remedy, undo.arguments)
    return remedy_runs.ask(
        undo.remedy,
        undo.arguments,
        by=by,
        by_name=by_name,
        incident=run.incident,
        in_foreground=in_foreground,
        undoes=run,
    )


def carry_out(number: int) -> RemedyRun | None:
    """Run a queued remedy to its end; None if another worker has taken it."""
    now = timezone.now()
    waiting = RemedyRun.objects.filter(pk=number, state=RemedyRun.State.QUEUED)
    if not waiting.update(state=RemedyRun.State.RUNNING, started_at=now):
        return None
    run = RemedyRun.objects.select_related("remedy__watch", "remedy__script", "watch").get(
        pk=number
    )
    try:
        if run.remedy is None:
            raise OperationRefused(RefusalCode.NOT_FOUND, "The remedy was removed.")
        _execute(run, run.remedy, call_of(run.remedy, run.arguments))
    except OperationRefused as refused:
        run.state, run.why = RemedyRun.State.REFUSED, redacted(str(refused))
    except Exception as error:
        run.state, run.why = RemedyRun.State.FAILED, redacted(f"Claude Ops failed: {error}")
        raise
    finally:
        run.ended_at = timezone.now()
        run.save()
    return run


def _execute(run: RemedyRun, row: Remedy, call: RemedyCall) -> None:
    request = _request(run, row)
    if missing := sorted(call.grants - request.grants.names):
        raise OperationRefused(
            RefusalCode.POLICY,
            f"The grant {missing[0]} is missing: give it to Tier {row.tier} or to the watch.",
        )
    run_call(run, call, request)


def run_call(run: RemedyRun, call: RemedyCall, request: SandboxRequest) -> None:
    """Run a call in its sandbox, and note the result in `run`, which is not saved."""
    try:
        with remedy_runner(request) as runner, tempfile.TemporaryFile() as output:
            outcome = runner.run_remedy(call, output.fileno())
            output.seek(0)
            text = output.read(REDACTED_LENGTH).decode("utf-8", "replace")
    finally:
        shutil.rmtree(request.run_directory, ignore_errors=True)
    run.output = cut(redacted(text), LONGEST_OUTPUT)
    run.exit_code = outcome.exit_code if outcome.entered else None
    run.why = outcome.ended_because
    succeeded = outcome.entered and outcome.exit_code == 0
    run.state = RemedyRun.State.SUCCEEDED if succeeded else RemedyRun.State.FAILED


def _request(run: RemedyRun, row: Remedy) -> SandboxRequest:
    directory = Path(settings.CLAUDEOPS_STATE_DIR) / "runs" / f"remedy-{run.pk}"
    config = directory / "config"
    config.mkdir(mode=0o700, parents=True, exist_ok=True)
    others = Watch.objects.exclude(pk=row.watch_id).values_list("workdir", flat=True)
    path = safe_path(os.environ.get("PATH", ""), writable_paths(row.watch))
    return SandboxRequest(
        tier=get_tier(row.tier),
        workdir=Path(row.watch.workdir),
        config_directory=config,
        run_directory=directory,
        run_environment={**os.environ, "PATH": path},
        login={},
        traces=Traces(mark=f"remedy-{run.pk}", tool_log=directory / "tools"),
        watch_grants=row.watch.grants,
        other_watches=tuple(map(Path, others)),
    )


def prove(run: RemedyRun) -> None:
    """Let the probe of the remedy look until it is up, or for as long as that should take."""
    probe = (
        Probe.objects.filter(watch=run.watch_id, name=run.remedy.probe).first()
        if run.remedy and run.remedy.probe
        else None
    )
    if probe is None or run.state == RemedyRun.State.REFUSED:
        return
    run.proof = RemedyRun.Proof.WAITS
    run.save(update_fields=["proof"])
    needed = (probe.timeout_seconds + 2) * probe.recover_after + 10
    until = time.monotonic() + min(needed, LONGEST_PROOF_SECONDS)
    asked, run.proof = None, RemedyRun.Proof.NO_HELP
    while time.monotonic() < until:
        probe.refresh_from_db(fields=["state", "last_run_at"])
        is_new = probe.last_run_at is not None and probe.last_run_at > (
            run.ended_at or run.asked_at
        )
        if is_new and probe.state == Probe.State.UP:
            run.proof = RemedyRun.Proof.HELPED
            break
        if asked is None or (probe.last_run_at and probe.last_run_at > asked):
            asked = timezone.now()
            Probe.objects.filter(pk=probe.pk).update(run_asked_at=asked)
        time.sleep(LOOK_SECONDS)
    run.save(update_fields=["proof"])


def tell(run: RemedyRun) -> None:
    """Put the result into the story of the incident."""
    if run.incident is None:
        return
    who = "Tier 0" if run.trigger == RemedyRun.Trigger.PROBE else run.by_name or "A person"
    remedy_runs.note([run.incident], f"{who} ran `{run.call}`: {run.result}.", run.by)


def end_lost() -> list[RemedyRun]:
    """End runs whose worker died, so that Tier 1 begins after Tier 0; return them."""
    lost = []
    for run in RemedyRun.objects.filter(state=RemedyRun.State.RUNNING).select_related("remedy"):
        limit = timedelta(seconds=(run.remedy.seconds if run.remedy else 0)) + LOST_AFTER
        if run.started_at and run.started_at < timezone.now() - limit:
            run.state, run.why = RemedyRun.State.FAILED, "its worker died"
            run.ended_at = timezone.now()
            run.save()
            lost.append(run)
    return lost


# Proposals: commands that people approve again and again, and that held each time.

LEAST_TIMES = 3
MOST_LOOKED_AT = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class UsedApproval:
    """A command that a person approved and that ran."""

    command: str
    tier: int
    grants: tuple[str, ...]
    is_verified: bool
    """An incident of its cycle was verified as fixed afterwards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Proposal:
    """A remedy that the record suggests."""

    command: str
    argv: tuple[str, ...]
    times: int
    tier: int
    grants: tuple[str, ...]
    kind: str
    service: str
    name: str


def proposed(
    approvals: Sequence[UsedApproval],
    effects: Mapping[str, tuple[str, str]],
    declared: Collection[tuple[str, ...]],
) -> tuple[Proposal, ...]:
    """Return a proposal for each command that was approved and verified often enough. Pure.

    `effects` has kind and service of commands that succeeded; `declared` the vectors of remedies.
    """
    found = []
    for command in dict.fromkeys(one.command for one in approvals):
        uses = [one for one in approvals if one.command == command]
        argv = read_one_command(command)
        if len(uses) < LEAST_TIMES or not all(one.is_verified for one in uses):
            continue
        if argv is None or argv in declared or problem_of_command(argv, ()):
            continue
        kind, service = effects.get(command, (Remedy.Kind.OTHER.value, ""))
        names = {PART_OF.get(name, name) for one in uses for name in one.grants}
        found.append(
            Proposal(
                command=command,
                argv=argv,
                times=len(uses),
                tier=min(one.tier for one in uses),
                grants=tuple(name for name in NAMES if name in names),
                kind=kind,
                service=service,
                name=_proposed_name(argv, service),
            )
        )
    return tuple(found)


def _proposed_name(argv: Sequence[str], service: str) -> str:
    verb = next((word for word in argv[1:] if re.fullmatch("[a-z]+", word)), argv[0])
    plain = re.sub("[^a-z0-9]+", "-", f"{verb}-{service}".lower()).strip("-")
    return (plain if plain[:1].isalpha() else f"run-{plain}")[:40].strip("-")


def proposals(watch: Watch) -> tuple[Proposal, ...]:
    """Read the proposals for a watch from its approvals and changes."""
    used = Approval.objects.filter(
        kind=Approval.Kind.COMMAND,
        state=Approval.State.APPROVED,
        used_at__isnull=False,
        session__cycle__watch=watch,
    )
    verified = IncidentEvent.objects.filter(
        kind=IncidentEvent.Kind.VERIFIED, incident__cycles=OuterRef("session__cycle")
    )
    rows = used.annotate(held=Exists(verified)).order_by("-pk")[:MOST_LOOKED_AT]
    approvals = [
        UsedApproval(command=command, tier=tier, grants=tuple(grants), is_verified=held)
        for command, tier, grants, held in rows.values_list(
            "command", "session__tier", "grants", "held"
        )
    ]
    if not approvals:
        return ()
    commands = {one.command for one in approvals}
    changes = Change.objects.filter(
        watch=watch, exit_code=0, command__in=commands, kind__in=Remedy.Kind.values
    )
    effects = {
        command: (kind, "" if service == EVERYTHING else service)
        for command, kind, service in changes.values_list("command", "kind", "service")
    }
    declared = {tuple(row.command) for row in Remedy.objects.filter(watch=watch)}
    return proposed(approvals, effects, declared)


def adopt(watch: Watch, command: str, *, by: str) -> Remedy:
    """Make a proposal a remedy. Raise OperationRefused if the record no longer suggests it."""
    found = next((one for one in proposals(watch) if one.command == command), None)
    if found is None:
        raise OperationRefused(
            RefusalCode.INVALID_CHOICE, "The record does not propose this command any more."
        )
    taken = set(Remedy.objects.filter(watch=watch).values_list("name", flat=True))
    names = (found.name, *(f"{found.name[:37]}-{number}" for number in range(2, 100)))
    row = Remedy(
        watch=watch,
        name=next(name for name in names if name not in taken),
        description=f"Runs `{command}`; people approved it {found.times} times, and it held.",
        command=list(found.argv),
        kind=found.kind,
        service=found.service,
        tier=found.tier,
        grants=" ".join(found.grants),
    )
    try:
        save(row, by=by)
    except ValidationError as error:
        raise OperationRefused(RefusalCode.INVALID_CHOICE, " ".join(error.messages)) from error
    return row
