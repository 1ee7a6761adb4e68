"""`bench idle`: the values read of processes, and the output."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command

from escalation.drills import scratch
from tests.devtools.benchmarks import idle, usage
from tests.devtools.benchmarks.idle import Idle

FOUND = Idle(seconds=60, cpu_percent=0.123, pickup_ms=[4.0, 6.0, 20.0], pss_mb=150.4, rss_mb=420.0)
PARENT = (
    "import subprocess, sys; child = subprocess.Popen(['sleep', '60']);"
    "print(child.pid, flush=True); child.wait()"
)


@pytest.fixture
def family():
    """A process and its child."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    yield parent.pid, child
    subprocess.run(["kill", str(child)], check=True)
    parent.communicate(timeout=20)


def said(monkeypatch, *arguments: str, found: Idle = FOUND) -> str:
    monkeypatch.setenv(scratch.MARK, "1")
    monkeypatch.setattr(idle, "measure", lambda seconds: found)
    output = StringIO()
    call_command("bench", "idle", *arguments, stdout=output)
    return output.getvalue()


def test_children_of_a_process_are_found(family):
    assert usage.with_descendants([family[0]]) == list(family)


def test_processor_time_is_counted():
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    give_up = time.monotonic() + 30
    while usage.busy_seconds([process.pid]) < 0.05 and time.monotonic() < give_up:
        time.sleep(0.05)
    busy = usage.busy_seconds([process.pid])
    process.kill()
    process.wait()

    assert busy >= 0.05


def test_without_schedstat_clock_ticks_are_counted(tmp_path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text("7 (odd) name) S 1 " + "0 " * 9 + "150 50 0")
    monkeypatch.setattr(usage, "PROC", tmp_path)

    assert usage.busy_seconds([7]) == pytest.approx(2.0, rel=0.01)


def test_a_process_that_has_ended_counts_nothing():
    assert usage.busy_seconds([2**22 + 7]) == 0
    assert usage.memory_of([2**22 + 7]).rss_mb == 0


def test_shared_memory_is_divided_among_processes(family):
    memory = usage.memory_of(family)

    assert memory.pss_mb is not None
    assert 0 < memory.pss_mb < memory.rss_mb


def test_without_permission_the_resident_size_is_used(tmp_path: Path, monkeypatch):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "status").write_text("Name: x\nVmRSS:\t  2048 kB\n")
    monkeypatch.setattr(usage, "PROC", tmp_path)

    assert usage.memory_of([7]) == (2.0, None)


@pytest.mark.django_db
def test_each_figure_is_printed_with_its_target(monkeypatch):
    lines = said(monkeypatch).splitlines()

    assert lines[1] == "processor: 0.12 % of a core over 60 s (aim: at most 0.30 %)"
    assert lines[2].startswith("pick-up of a queued task: median 6.0 ms")
    assert lines[3].startswith("memory: 150 MB by share (aim: at most 180 MB), 420 MB resident")


@pytest.mark.django_db
def test_memory_that_cannot_be_read_is_unknown(monkeypatch):
    found = Idle(seconds=60, cpu_percent=0, pickup_ms=[1, 2], pss_mb=None, rss_mb=1)

    assert "memory: unknown by share" in said(monkeypatch, found=found)


@pytest.mark.django_db
def test_the_result_is_printed_as_json(monkeypatch):
    figures = json.loads(said(monkeypatch, "--json"))

    assert (figures["cpu_percent"], figures["median_ms"]) == (0.123, 6.0)
