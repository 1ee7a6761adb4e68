"""Measure Claude Ops on this machine."""

from __future__ import annotations

import json
import os
import statistics
import sys
from argparse import ArgumentParser
from dataclasses import asdict
from typing import Any

from django.core.management import call_command

from escalation.drills.scratch import is_scratch
from escalation.management.output import TerminalCommand, waiting
from tests.devtools.benchmarks import (
    Tell,
    api,
    idle,
    live,
    overhead,
    pages,
    probes,
    record,
    sandbox,
    throughput,
)
from tests.devtools.benchmarks.pages import as_data, as_table
from tests.devtools.benchmarks.scratch_database import scratch_database_url
from tests.devtools.scratch import rerun_in_scratch

OVERHEAD_AIM, SLOW_OVERHEAD_AIM = 1.25, 1.03
"""With the sandbox around every run: with a model that answers at once, and after a second."""
CALL_AIM_MS, PROGRAM_AIM_MS = 20, 25
THROUGHPUT_AIM = 0.85
DECISION_AIM_MS, FIRST_BYTE_AIM_MS = 5, 5
SMALLER = 1_000
"""The number of sessions in the small database for comparison."""
LIVE_CPU_AIM_PERCENT, LINE_AIM_MS = 10, 300
PROBE_AIMS = {1_000: 5.0, 100: 1.0}
"""Percent of a core by the number of probes a minute."""
YEAR_AIM_MB = 200
CPU_AIM_PERCENT, PICKUP_AIM_MS, MEMORY_AIM_MB = 0.30, 30, 180


class Command(TerminalCommand):
    help = (
        "Measure Claude Ops in a scratch installation: overhead of runs and of the sandbox, idle "
        "cost, throughput, pages and API with a large database, and many live viewers."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        subjects = parser.add_subparsers(dest="subject", required=True)
        running = subjects.add_parser(
            "overhead", help="a three-tier drill through the queue against the bare CLI runs"
        )
        running.add_argument("--rounds", type=int, default=10)
        running.add_argument(
            "--answer-seconds", type=float, default=0.0, help="time of the model for each answer"
        )
        standing = subjects.add_parser(
            "idle", help="processor, pick-up of a task, and memory of web server and worker"
        )
        standing.add_argument("--seconds", type=int, default=60)
        held = subjects.add_parser(
            "sandbox",
            aliases=["walls"],
            help="a Bash call inside and outside, a decision, the API proxy",
        )
        held.add_argument("--rounds", type=int, default=30)
        shown = subjects.add_parser(
            "pages", help="every page with so many sessions, against the same with 1,000"
        )
        shown.add_argument("--sessions", type=int, default=100_000)
        read = subjects.add_parser(
            "api", help="every reading operation of the API with so many sessions"
        )
        read.add_argument("--sessions", type=int, default=100_000)
        watched = subjects.add_parser("live", help="many viewers of the output of one run")
        watched.add_argument("--viewers", type=int, default=200)
        watched.add_argument("--seconds", type=int, default=30)
        saturated = subjects.add_parser(
            "throughput", help="cycles a minute at saturation, against the same CLI runs by xargs"
        )
        saturated.add_argument("--cycles", type=int, default=24)
        saturated.add_argument("--at-once", type=int, default=2 * (os.cpu_count() or 1))
        saturated.add_argument("--rounds", type=int, default=3)
        looking = subjects.add_parser(
            "probes", help="processor of 1,000 and 100 probes a minute, size of a year of 100"
        )
        looking.add_argument("--seconds", type=int, default=60)
        for subject in (running, standing, held, shown, read, watched, saturated, looking):
            subject.add_argument("--json", action="store_true")

    def handle(self, *args: Any, **options: Any) -> None:
        if not is_scratch():
            sys.exit(_in_scratch(options))
        with waiting(self.stderr, f"Measuring {options['subject']}") as line:
            call_command("migrate", verbosity=0)
            figures, sentences = _measured(options, line.tell)
        self.stdout.write(json.dumps(figures) if options["json"] else sentences)


def _in_scratch(options: dict[str, Any]) -> int:
    """Rerun in a scratch installation; pages use the same kind of database."""
    subject = options["subject"]
    if subject == "throughput":
        return rerun_in_scratch(_limits(max(1, options["at_once"])))
    if subject == "overhead" and options["answer_seconds"]:
        with overhead.slow_answers(options["answer_seconds"]) as directory:
            return rerun_in_scratch({"CLAUDEOPS_SCENARIOS_DIR": str(directory)})
    if subject not in ("api", "pages"):
        return rerun_in_scratch()
    with scratch_database_url() as address:
        return rerun_in_scratch({"DATABASE_URL": address} if address else None)


def _limits(at_once: int) -> dict[str, str]:
    names = ("CLAUDEOPS_WORKERS", "CLAUDEOPS_MAX_SESSIONS")
    return dict.fromkeys(names, str(at_once))


def _measured(options: dict[str, Any], tell: Tell) -> tuple[dict[str, Any], str]:
    match options["subject"]:
        case "idle":
            return _idle(max(1, options["seconds"]))
        case "sandbox" | "walls":
            return _sandbox(max(2, options["rounds"]), tell)
        case "pages":
            return _pages(max(SMALLER + 1, options["sessions"]), tell)
        case "api":
            return _api(max(1, options["sessions"]), tell)
        case "live":
            return _live(max(1, options["viewers"]), max(2, options["seconds"]))
        case "throughput":
            return _throughput(options, tell)
        case "probes":
            return _probes(max(5, options["seconds"]), tell)
        case _:
            return _overhead(max(1, options["rounds"]), options["answer_seconds"], tell)


def _pages(sessions: int, tell: Tell) -> tuple[dict[str, Any], str]:
    record.seed(SMALLER, tell)
    small = pages.measure(tell=tell)
    call_command("flush", interactive=False, verbosity=0)
    record.seed(sessions, tell)
    found = pages.compared(small, pages.measure(tell=tell))
    return as_data(found, sessions, SMALLER), as_table(found, sessions, SMALLER)


def _api(sessions: int, tell: Tell) -> tuple[dict[str, Any], str]:
    record.seed(sessions, tell)
    found = api.measure(tell=tell)
    return api.as_data(found, sessions), api.as_table(found, sessions)


def _live(viewers: int, seconds: int) -> tuple[dict[str, Any], str]:
    found = live.measure(viewers, seconds)
    figures = {**asdict(found), "p50_ms": found.p50_ms, "p95_ms": found.p95_ms}
    return figures, (
        f"{found.viewers} viewers of one run that prints {live.LINES_A_SECOND} lines a second, "
        f"{seconds} s\n"
        f"processor of the web server: {found.cpu_percent:.1f} % of a core "
        f"(aim: under {LIVE_CPU_AIM_PERCENT} %)\n"
        f"from line to browser: median {found.p50_ms:.0f} ms, 95 % within {found.p95_ms:.0f} ms "
        f"(aim: under {LINE_AIM_MS} ms)\n"
        f"lines: {found.lines} written, {found.missed} missed, {found.doubled} doubled; "
        f"threads of the web server: {found.threads}"
    )


def _overhead(rounds: int, answer_seconds: float, tell: Tell) -> tuple[dict[str, Any], str]:
    found = overhead.measure(rounds, tell)
    through = statistics.median(found.queue_seconds)
    bare = statistics.median(found.shell_seconds)
    figures = {
        "rounds": len(found.queue_seconds),
        "queue_seconds": through,
        "shell_seconds": bare,
        "ratio": found.ratio,
        "answer_seconds": answer_seconds,
    }
    aim = SLOW_OVERHEAD_AIM if answer_seconds >= 1 else OVERHEAD_AIM
    return figures, (
        f"each answer of the model takes {answer_seconds:g} s\n"
        f"three tiers through the queue: {through:.3f} s (median of {len(found.queue_seconds)})\n"
        f"the same CLI runs from a script: {bare:.3f} s\n"
        f"ratio: {found.ratio:.3f} (aim: at most {aim:.2f})"
    )


def _throughput(options: dict[str, Any], tell: Tell) -> tuple[dict[str, Any], str]:
    found = throughput.measure(
        max(1, options["cycles"]), max(1, options["at_once"]), max(1, options["rounds"]), tell
    )
    figures = {
        **asdict(found),
        "cycles_a_minute": found.cycles_a_minute,
        "bare_a_minute": found.bare_a_minute,
        "ratio": found.ratio,
    }
    return figures, (
        f"{found.cycles} cycles of one tier, {found.at_once} at once, {options['rounds']} times\n"
        f"through the queue: {found.cycles_a_minute:.0f} cycles a minute\n"
        f"the same CLI runs by xargs -P {found.at_once}: {found.bare_a_minute:.0f} a minute\n"
        f"ratio: {found.ratio:.2f} (aim: at least {THROUGHPUT_AIM:.2f})"
    )


def _sandbox(rounds: int, tell: Tell) -> tuple[dict[str, Any], str]:
    found = sandbox.measure(rounds, tell)
    inside, outside = (statistics.median(side) for side in (found.inside_ms, found.outside_ms))
    figures = {
        "rounds": rounds,
        "inside_ms": inside,
        "outside_ms": outside,
        "call_more_ms": found.call_more_ms,
        "program_more_ms": found.program_more_ms,
        "decision_p99_ms": found.decision_p99_ms,
        "first_byte_ms": found.first_byte_ms,
    }
    return figures, (
        f"a Bash call: {inside:.1f} ms inside, {outside:.1f} ms outside (medians of {rounds}), "
        f"{found.call_more_ms:.1f} ms more (aim: at most {CALL_AIM_MS} ms)\n"
        f"a judged program in it: {found.program_more_ms:.1f} ms more "
        f"(aim: at most {PROGRAM_AIM_MS} ms)\n"
        f"a decision: 99 % within {found.decision_p99_ms:.2f} ms, of {len(found.decision_ms)} "
        f"(aim: under {DECISION_AIM_MS} ms)\n"
        f"first byte through the API proxy: {found.first_byte_ms:.2f} ms later "
        f"(aim: under {FIRST_BYTE_AIM_MS} ms)"
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


def _probes(seconds: int, tell: Tell) -> tuple[dict[str, Any], str]:
    found = [probes.measure_processor(number, seconds, tell) for number in PROBE_AIMS]
    year = probes.measure_year(tell)
    figures = {"processor": [asdict(one) for one in found], "year_mb": year}
    lines = [
        f"{one.probes} HTTP probes a minute: {one.cpu_percent:.2f} % of a core over {seconds} s, "
        f"{one.runs} runs stored (aim: under {PROBE_AIMS[one.probes]:g} %)"
        for one in found
    ]
    lines.append(f"a year of 100 probes: {year:.0f} MB (aim: under {YEAR_AIM_MB} MB)")
    return figures, "\n".join(lines)
