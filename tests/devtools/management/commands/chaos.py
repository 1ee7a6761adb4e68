"""Cause faults in a scratch installation and check that nothing is lost or doubled."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet
from django.conf import settings
from django.core.management import call_command

from escalation.alerts import sources
from escalation.drills.scratch import is_scratch
from escalation.management.output import ExitCode, TerminalCommand, waiting
from escalation.probes.manage import add
from escalation.worker.installation import ensure_operator
from sessions_app.models import Probe, Source, Watch
from sessions_app.models.alert import SourceKind
from tests.devtools import chaos
from tests.devtools.chaos.experiments import ChaosSetup, Experiment, plans, play, warm_up
from tests.devtools.chaos.faults import ACROSS_HOSTS, EVERY_FAULT, FAULTS, FILL_THE_DISK
from tests.devtools.chaos.figures import ChaosResult, as_json, figures
from tests.devtools.chaos.hosts import played_hosts, why_no_hosts
from tests.devtools.chaos.installation import Installation
from tests.devtools.chaos.leftovers import left_after_all
from tests.devtools.chaos.outside import Outside
from tests.devtools.chaos.prices import learned_prices
from tests.devtools.chaos.website import Website
from tests.devtools.postgres import NoPostgres, OwnPostgres, newest_programs, own_postgres
from tests.devtools.scratch import rerun_in_scratch, why_no_small_disk

SMALL_DISK_MEGABYTES = 256
OWN_SERVER = "CLAUDEOPS_CHAOS_POSTGRES"
"""Directory and port of the PostgreSQL server that was started."""


class Command(TerminalCommand):
    help = (
        "Run drills in a scratch installation and, at random moments, kill the CLI, a worker, the "
        "whole cluster or the web server, lock the database, fill the disk, send an alert storm or "
        "break the target of a probe; then check by raw evidence that every session ended "
        "correctly and every delivery is accounted for. Exit code 0: every invariant held; 1: "
        "something was lost, doubled or left behind; 2: it could not be played. Where no small "
        "disk can be mounted, filling it is left out, and this is said; asked for by name with "
        "--only, that is exit code 2."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--experiments", type=int, default=10)
        parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
        parser.add_argument("--at-once", type=int, default=3, help="experiments at the same time")
        parser.add_argument(
            "--hosts",
            type=int,
            default=1,
            help="so many hosts with state directories of their own, on a PostgreSQL server that "
            "is started for it; then a host is killed and the server restarted, too",
        )
        parser.add_argument(
            "--only", action="append", choices=list(EVERY_FAULT), help="these faults alone"
        )
        parser.add_argument("--keep", help="a directory for the evidence of violated experiments")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_scratch():
            sys.exit(self._rerun(at_once=max(1, options["at_once"]), hosts=options["hosts"]))
        began = time.monotonic()
        left_out = why_no_small_disk()
        possible = ACROSS_HOSTS if options["hosts"] > 1 else FAULTS
        faults = [fault for fault in options["only"] or possible if fault in possible]
        if left_out and FILL_THE_DISK in faults:
            faults.remove(FILL_THE_DISK)
            self.stderr.write(f"The fault {FILL_THE_DISK!r} is skipped: {left_out}")
        if not faults:
            sys.exit(ExitCode.REFUSED)
        # Exit normally, so that everything started is stopped.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ExitCode.REFUSED))
        with waiting(self.stderr, "Causing faults") as self.progress:
            kept = Path(options["keep"]) if options["keep"] else None
            setup = _prepared(kept, options["hosts"])
            experiments = self._play(setup, faults, options)
        played = ChaosResult(
            seed=options["seed"],
            seconds=time.monotonic() - began,
            experiments=sorted(experiments, key=lambda entry: entry.number),
            leftovers=[
                *self.unaccounted,
                *(
                    left
                    for state in (
                        setup.installation.state,
                        *setup.installation.other_states,
                    )
                    for left in left_after_all(state, setup.drills)
                ),
            ],
            left_out=left_out,
            deliveries=setup.installation.outside.accepted.total()
            if setup.installation.outside
            else 0,
        )
        if options["json"]:
            self.stdout.write(json.dumps(as_json(played)))
        else:
            self._print_end(played)
        if played.violated or played.leftovers:
            sys.exit(ExitCode.PERSON)

    def _rerun(self, *, at_once: int, hosts: int) -> int:
        if hosts < 2:
            return _rerun(at_once, {}, small_disk=True)
        try:
            if trouble := why_no_hosts():
                raise NoPostgres(trouble)
            with own_postgres() as server:
                return _rerun(at_once, _shared_by_hosts(server), small_disk=False)
        except NoPostgres as missing:
            self.stderr.write(str(missing))
            return 2

    def _play(
        self, setup: ChaosSetup, faults: list[str], options: dict[str, Any]
    ) -> list[Experiment]:
        setup.installation.start()
        try:
            if trouble := setup.installation.website.wait_until_ready():
                self.stderr.write(f"The scratch installation does not start: {trouble}")
                sys.exit(ExitCode.REFUSED)
            setup.installation.website.log_in()
            self.unaccounted: list[str] = []
            outside = setup.installation.outside
            if outside is None:
                return self._played(setup, faults, options)
            with outside.sending():
                played = self._played(setup, faults, options)
            self.unaccounted = outside.violations(setup.installation.record)
            return played
        finally:
            setup.installation.stop()

    def _played(
        self, setup: ChaosSetup, faults: list[str], options: dict[str, Any]
    ) -> list[Experiment]:
        at_once = max(1, options["at_once"])
        quiet = warm_up(setup, at_once=at_once)
        played = [entry for entry in quiet if entry.violations]
        for entry in play(
            setup,
            plans(max(1, options["experiments"]), options["seed"], faults),
            at_once=at_once,
            chain_seconds=max(entry.settling_seconds for entry in quiet),
        ):
            played.append(entry)
            self.progress.tell(f"Causing faults, {len(played)} experiments done")
            if not options["json"]:
                self._print_experiment(entry)
        return played

    def _print_experiment(self, entry: Experiment) -> None:
        self.progress.make_room()
        verdict = "; ".join(entry.violations) or "ok"
        also = f" (also {', '.join(entry.also)})" if entry.also else ""
        self.stdout.write(
            f"{entry.number:4} {entry.fault:20} after {entry.after_seconds:5.2f} s, over "
            f"{entry.settling_seconds:5.1f} s later  {len(entry.statuses)} sessions  "
            f"{entry.outcome:14} {verdict}{also}"
        )
        self.stdout.flush()

    def _print_end(self, played: ChaosResult) -> None:
        for one in figures(played.experiments):
            outcomes = ", ".join(f"{count} {name}" for name, count in sorted(one.outcomes.items()))
            self.stdout.write(
                f"{one.fault:20} {one.experiments:4} experiments: {outcomes}; {one.cut_off} "
                f"sessions cut off, {one.recovered} recovered; settled in "
                f"{one.settling_median_seconds} s (median), {one.settling_longest_seconds} s "
                f"(longest); {one.violations} violated"
            )
        for left in played.leftovers:
            self.stdout.write(f"After all experiments, {left}.")
        self.stdout.write(
            f"{len(played.experiments)} experiments in {played.seconds:.0f} s, "
            f"{played.violated} with a violation; {played.deliveries} deliveries of alerts accepted"
        )


def _shared_by_hosts(server: OwnPostgres) -> dict[str, str]:
    return {
        "DATABASE_URL": server.new_database(),
        OWN_SERVER: f"{server.directory}:{server.port}",
        "CLAUDEOPS_SECRET_KEY": secrets.token_urlsafe(40),
        "CLAUDEOPS_ENCRYPTION_KEY": Fernet.generate_key().decode(),
    }


def _own_server() -> OwnPostgres | None:
    directory, _, port = os.environ.get(OWN_SERVER, "").rpartition(":")
    return OwnPostgres(Path(directory), newest_programs(), int(port)) if directory else None


def _rerun(at_once: int, more: dict[str, str], *, small_disk: bool) -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {
        "CLAUDEOPS_SCENARIOS_DIR": str(Path(chaos.__file__).parent / "scenarios"),
        "CLAUDEOPS_HOST": "127.0.0.1",
        "CLAUDEOPS_PORT": str(port),
        "CLAUDEOPS_ADMIN_PASSWORD": secrets.token_urlsafe(12),
        # One worker for each experiment and one for housekeeping, so that no experiment waits.
        "CLAUDEOPS_WORKERS": str(at_once + 1),
        "CLAUDEOPS_MAX_SESSIONS": str(at_once),
        "CLAUDEOPS_MAX_TIER3_SESSIONS": str(at_once),
        **more,
    }
    return rerun_in_scratch(own, small_disk_megabytes=SMALL_DISK_MEGABYTES if small_disk else 0)


def _outside(directory: Path) -> Outside:
    """Make a source of alerts and a probe of a file, for a paused watch: no cycle starts."""
    target = directory / "probed"
    target.touch()
    watch = Watch.objects.create(name="outside", workdir=str(directory), enabled=False)
    add(
        watch,
        name="file",
        service="file",
        kind=Probe.Kind.FILE,
        target=str(target),
        interval_seconds=5,
        fail_after=1,
        recover_after=1,
    )
    made = sources.add(Source(name="sender", kind=SourceKind.ALERTMANAGER, watch=watch))
    address = f"http://127.0.0.1:{settings.CLAUDEOPS_PORT}/in/{made.token}"
    return Outside(address, made.secret, target)


def _prepared(keep: Path | None, hosts: int) -> ChaosSetup:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    # The log of the scripted API is not on the small disk, which may be filled.
    drills = state.parent / "drills"
    drills.mkdir()
    (state / "drills").symlink_to(drills)
    call_command("migrate", verbosity=0)
    ensure_operator()
    website = Website(
        f"http://127.0.0.1:{settings.CLAUDEOPS_PORT}",
        settings.CLAUDEOPS_ADMIN_USER,
        settings.CLAUDEOPS_ADMIN_PASSWORD,
    )
    return ChaosSetup(
        installation=Installation(
            state,
            website,
            log=state.parent / "services.log",
            others=played_hosts(hosts, state.parent, drills),
            address=os.environ["DATABASE_URL"] if hosts > 1 else "",
            postgres=_own_server(),
            outside=_outside(state.parent) if hosts < 2 else None,
        ),
        prices=learned_prices([tier.model for tier in settings.CLAUDEOPS_TIERS.values()]),
        drills=drills,
        keep=keep,
    )
