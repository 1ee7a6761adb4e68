"""Prove that nothing is lost and nothing doubled, by letting things die."""

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

from escalation.host.operator_account import ensure_operator
from escalation.management.exit_codes import ExitCode
from escalation.management.progress import waiting
from escalation.management.terminal import TerminalCommand
from escalation.rehearsal import chaos
from escalation.rehearsal.chaos.faults import ACROSS_HOSTS, EVERY_FAULT, FAULTS, FILL_THE_DISK
from escalation.rehearsal.chaos.figures import Play, as_json, figures
from escalation.rehearsal.chaos.hosts import played_hosts, why_no_hosts
from escalation.rehearsal.chaos.installation import Installation
from escalation.rehearsal.chaos.left_behind import left_after_all
from escalation.rehearsal.chaos.prices import learned_prices
from escalation.rehearsal.chaos.rounds import Playground, Round, plans, play, warm_up
from escalation.rehearsal.chaos.website import Website
from escalation.rehearsal.own_postgres import (
    NoPostgres,
    OwnPostgres,
    newest_programs,
    own_postgres,
)
from escalation.rehearsal.scratch import is_scratch, rerun_in_scratch, why_no_small_disk

SMALL_DISK_MEGABYTES = 256
OWN_SERVER = "CLAUDEOPS_CHAOS_POSTGRES"
"""Directory and port of the server that was started for this play."""


class Command(TerminalCommand):
    help = (
        "Run drills in a scratch installation and, at random moments, kill the CLI, a worker, the "
        "whole cluster or the web server, lock the database or fill the disk; then check by raw "
        "evidence that every session has a true end. Exit code 0: every invariant held; 1: "
        "something was lost, doubled or left behind; 2: it could not be played. Where no small "
        "disk can be mounted, filling it is left out, and this is said; asked for by name with "
        "--only, that is exit code 2."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--rounds", type=int, default=10)
        parser.add_argument("--seed", type=int, default=1, help="chooses the faults")
        parser.add_argument("--at-once", type=int, default=3, help="rounds at the same time")
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
        parser.add_argument("--keep", help="a directory for the evidence of violated rounds")
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
            self.stderr.write(f"The fault {FILL_THE_DISK!r} is left out: {left_out}")
        if not faults:
            sys.exit(ExitCode.REFUSED)
        # Told to stop, it must still stop what it started.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(ExitCode.REFUSED))
        with waiting(self.stderr, "Letting things die") as self.progress:
            kept = Path(options["keep"]) if options["keep"] else None
            playground = _prepared(kept, options["hosts"])
            rounds = self._play(playground, faults, options)
        played = Play(
            seed=options["seed"],
            seconds=time.monotonic() - began,
            rounds=sorted(rounds, key=lambda entry: entry.number),
            left_behind=[
                left
                for state in (
                    playground.installation.state,
                    *playground.installation.other_states,
                )
                for left in left_after_all(state, playground.drills)
            ],
            left_out=left_out,
        )
        if options["json"]:
            self.stdout.write(json.dumps(as_json(played)))
        else:
            self._print_end(played)
        if played.violated or played.left_behind:
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
        self, playground: Playground, faults: list[str], options: dict[str, Any]
    ) -> list[Round]:
        playground.installation.start()
        try:
            if trouble := playground.installation.website.wait_until_ready():
                self.stderr.write(f"The scratch installation does not come up: {trouble}")
                sys.exit(ExitCode.REFUSED)
            playground.installation.website.log_in()
            return self._played(playground, faults, options)
        finally:
            playground.installation.stop()

    def _played(
        self, playground: Playground, faults: list[str], options: dict[str, Any]
    ) -> list[Round]:
        at_once = max(1, options["at_once"])
        quiet = warm_up(playground, at_once=at_once)
        played = [entry for entry in quiet if entry.violations]
        for entry in play(
            playground,
            plans(max(1, options["rounds"]), options["seed"], faults),
            at_once=at_once,
            chain_seconds=max(entry.settling_seconds for entry in quiet),
        ):
            played.append(entry)
            if not options["json"]:
                self._print_round(entry)
        return played

    def _print_round(self, entry: Round) -> None:
        self.progress.make_room()
        verdict = "; ".join(entry.violations) or "ok"
        also = f" (also {', '.join(entry.also)})" if entry.also else ""
        self.stdout.write(
            f"{entry.number:4} {entry.fault:20} after {entry.after_seconds:5.2f} s, over "
            f"{entry.settling_seconds:5.1f} s later  {len(entry.statuses)} sessions  "
            f"{entry.outcome:14} {verdict}{also}"
        )
        self.stdout.flush()

    def _print_end(self, played: Play) -> None:
        for one in figures(played.rounds):
            outcomes = ", ".join(f"{count} {name}" for name, count in sorted(one.outcomes.items()))
            self.stdout.write(
                f"{one.fault:20} {one.rounds:4} rounds: {outcomes}; {one.cut_off} sessions cut "
                f"off, {one.recovered} recovered; settled in {one.settling_median_seconds} s "
                f"(median), {one.settling_longest_seconds} s (longest); {one.violations} violated"
            )
        for left in played.left_behind:
            self.stdout.write(f"After all rounds, {left}.")
        self.stdout.write(
            f"{len(played.rounds)} rounds in {played.seconds:.0f} s, {played.violated} with a "
            "violation"
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
        # A place for every round and one for the housekeeping: waiting is not what is tried here.
        "CLAUDEOPS_WORKERS": str(at_once + 1),
        "CLAUDEOPS_MAX_SESSIONS": str(at_once),
        "CLAUDEOPS_MAX_TIER3_SESSIONS": str(at_once),
        **more,
    }
    return rerun_in_scratch(own, small_disk_megabytes=SMALL_DISK_MEGABYTES if small_disk else 0)


def _prepared(keep: Path | None, hosts: int) -> Playground:
    state = Path(settings.CLAUDEOPS_STATE_DIR)
    # What the scripted API saw lies beside the small disk, or filling it would blind the witness.
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
    return Playground(
        installation=Installation(
            state,
            website,
            log=state.parent / "services.log",
            others=played_hosts(hosts, state.parent, drills),
            address=os.environ["DATABASE_URL"] if hosts > 1 else "",
            postgres=_own_server(),
        ),
        prices=learned_prices([tier.model for tier in settings.CLAUDEOPS_TIERS.values()]),
        drills=drills,
        keep=keep,
    )
