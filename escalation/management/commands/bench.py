"""Measure Claude Ops on this machine."""

from __future__ import annotations

import json
import statistics
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management import call_command
from django.core.management.base import BaseCommand

from escalation.rehearsal.benchmarks import idle, overhead
from escalation.rehearsal.scratch import is_scratch, rerun_in_scratch

OVERHEAD_AIM = 1.10
CPU_AIM_PERCENT, PICKUP_AIM_MS, MEMORY_AIM_MB = 0.30, 30, 180


class Command(BaseCommand):
    help = "Measure Claude Ops in a scratch installation: what it costs to run, and to stand still."

    def add_arguments(self, parser: ArgumentParser) -> None:
        subjects = parser.add_subparsers(dest="subject", required=True)
        running = subjects.add_parser(
            "overhead", help="a three-tier drill through the queue against the bare CLI runs"
        )
        running.add_argument("--rounds", type=int, default=10)
        standing = subjects.add_parser(
            "idle", help="processor, pick-up of a task, and memory of web server and worker"
        )
        standing.add_argument("--seconds", type=int, default=60)
        for subject in (running, standing):
            subject.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_scratch():
            sys.exit(rerun_in_scratch())
        call_command("migrate", verbosity=0)
        if options["subject"] == "idle":
            figures, sentences = _idle(max(1, options["seconds"]))
        else:
            figures, sentences = _overhead(max(1, options["rounds"]))
        self.stdout.write(json.dumps(figures) if options["json"] else sentences)


def _overhead(rounds: int) -> tuple[dict[str, Any], str]:
    found = overhead.measure(rounds)
    through = statistics.median(found.queue_seconds)
    bare = statistics.median(found.shell_seconds)
    figures = {
        "rounds": len(found.queue_seconds),
        "queue_seconds": through,
        "shell_seconds": bare,
        "ratio": found.ratio,
    }
    return figures, (
        f"three tiers through the queue: {through:.3f} s (median of {len(found.queue_seconds)})\n"
        f"the same CLI runs from a script: {bare:.3f} s\n"
        f"ratio: {found.ratio:.3f} (aim: at most {OVERHEAD_AIM:.2f})"
    )


def _idle(seconds: int) -> tuple[dict[str, Any], str]:
    found = idle.measure(seconds)
    figures = {**asdict(found), "median_ms": found.median_ms, "p95_ms": found.p95_ms}
    pss = "unknown" if found.pss_mb is None else f"{found.pss_mb:.0f} MB"
    return figures, (
        "worker and web server together, while nothing runs\n"
        f"processor: {found.cpu_percent:.2f} % of a core over {seconds} s "
        f"(aim: at most {CPU_AIM_PERCENT:.2f} %)\n"
        f"pick-up of a queued task: median {found.median_ms:.1f} ms, 95 % within "
        f"{found.p95_ms:.1f} ms, of {len(found.pickup_ms)} (aim: within {PICKUP_AIM_MS} ms)\n"
        f"memory: {pss} by share (aim: at most {MEMORY_AIM_MB} MB), "
        f"{found.rss_mb:.0f} MB resident with what is shared counted in each process"
    )
