"""Prove that nothing is lost and nothing doubled, by letting things die."""

from __future__ import annotations

import json
import secrets
import signal
import socket
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.conf import settings
from django.core.management import call_command
from django.core.management.base import BaseCommand

from escalation.host.operator_account import ensure_operator
from escalation.rehearsal import chaos
from escalation.rehearsal.chaos.faults import FAULTS, FILL_THE_DISK
from escalation.rehearsal.chaos.figures import Play, as_json, figures
from escalation.rehearsal.chaos.installation import Installation
from escalation.rehearsal.chaos.left_behind import left_after_all
from escalation.rehearsal.chaos.prices import learned_prices
from escalation.rehearsal.chaos.rounds import Playground, Round, plans, play, warm_up
from escalation.rehearsal.chaos.website import Website
from escalation.rehearsal.scratch import is_scratch, rerun_in_scratch, why_no_small_disk

SMALL_DISK_MEGABYTES = 256


class Command(BaseCommand):
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
            "--only", action="append", choices=list(FAULTS), help="these faults alone"
        )
        parser.add_argument("--keep", help="a directory for the evidence of violated rounds")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_scratch():
            sys.exit(_rerun(at_once=max(1, options["at_once"])))
        began = time.monotonic()
        left_out = why_no_small_disk()
        faults = list(options["only"] or FAULTS)
        if left_out and FILL_THE_DISK in faults:
            faults.remove(FILL_THE_DISK)
            self.stderr.write(f"The fault {FILL_THE_DISK!r} is left out: {left_out}")
        if not faults:
            sys.exit(2)
        # Told to stop, it must still stop what it started.
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(2))
        playground = _prepared(Path(options["keep"]) if options["keep"] else None)
        rounds = self._play(playground, faults, options)
        played = Play(
            seed=options["seed"],
            seconds=time.monotonic() - began,
            rounds=sorted(rounds, key=lambda entry: entry.number),
            left_behind=left_after_all(playground.installation.state, playground.drills),
            left_out=left_out,
        )
        if options["json"]:
            self.stdout.write(json.dumps(as_json(played)))
        else:
            self._print_end(played)
        if played.violated or played.left_behind:
            sys.exit(1)

    def _play(
        self, playground: Playground, faults: list[str], options: dict[str, Any]
    ) -> list[Round]:
        playground.installation.start()
        try:
            if trouble := playground.installation.website.wait_until_ready():
                self.stderr.write(f"The scratch installation does not come up: {trouble}")
                sys.exit(2)
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


def _rerun(*, at_once: int) -> int:
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
    }
    return rerun_in_scratch(own, small_disk_megabytes=SMALL_DISK_MEGABYTES)


def _prepared(keep: Path | None) -> Playground:
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
        installation=Installation(state, website, log=state.parent / "services.log"),
        prices=learned_prices([tier.model for tier in settings.CLAUDEOPS_TIERS.values()]),
        drills=drills,
        keep=keep,
    )
