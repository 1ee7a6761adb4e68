"""A full disk refuses writes below the state directory."""

from __future__ import annotations

import subprocess
import sys
from io import StringIO

import pytest
from django.core.management import call_command

from escalation.drills.scratch import MARK
from tests.devtools import scratch
from tests.devtools.chaos.faults import FILL_THE_DISK

TRIED = """
import threading, time
from pathlib import Path
from tests.devtools.chaos.small_disk import keep_full

state = Path({state!r})
(state / "before").write_text("x")
filling = threading.Thread(target=keep_full, args=(state, 1.5))
filling.start()
time.sleep(0.7)
try:
    (state / "meanwhile").write_text("x" * 100)
except OSError as error:
    print(error.strerror)
(state / "before").unlink()
filling.join()
(state / "after").write_text("x" * 100)
print(sorted(path.name for path in state.iterdir() if path.stat().st_size))
"""


def test_a_small_disk_is_full_for_a_while_and_free_again(tmp_path):
    wrapper, trouble = scratch.small_disk_wrapper(tmp_path, megabytes=4)
    assert trouble == ""

    tried = subprocess.run(
        [*wrapper, sys.executable, "-c", TRIED.format(state=str(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
    )

    assert tried.stdout.splitlines() == ["No space left on device", "['after']"]
    assert list(tmp_path.iterdir()) == []


def test_reports_when_mounting_is_forbidden(tmp_path, monkeypatch):
    forbidding = tmp_path / "unshare"
    forbidding.write_text("#!/bin/sh\necho unshare failed: Operation not permitted >&2\nexit 1\n")
    forbidding.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    wrapper, trouble = scratch.small_disk_wrapper(tmp_path, megabytes=4)

    assert wrapper == []
    assert trouble.endswith("unshare failed: Operation not permitted")


def test_reports_when_the_program_is_missing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    wrapper, trouble = scratch.small_disk_wrapper(tmp_path, megabytes=4)

    assert wrapper == []
    assert "No such file" in trouble


def test_a_requested_fault_that_is_impossible_exits_with_2(monkeypatch):
    monkeypatch.setenv(MARK, "1")
    monkeypatch.setenv(scratch.NO_SMALL_DISK, "no small disk can be mounted here: forbidden")
    said = StringIO()

    with pytest.raises(SystemExit) as left:
        call_command("chaos", only=[FILL_THE_DISK], stderr=said)

    assert left.value.code == 2
    assert "'fill the disk'" in said.getvalue()
    assert "forbidden" in said.getvalue()
