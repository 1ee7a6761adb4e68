from __future__ import annotations

import os
import subprocess
import sys

import pytest

from escalation.worker import installation
from escalation.worker.parent import PROJECT


@pytest.fixture
def taken(tmp_path):
    descriptor = installation.take(tmp_path, "http://127.0.0.1:8000/")
    yield tmp_path
    os.close(descriptor)


def test_a_new_directory_is_not_locked(tmp_path):
    assert installation.holder_of(tmp_path) is None


def test_the_holder_of_the_lock_has_address_and_process(taken):
    holder = installation.holder_of(taken)

    assert holder is not None
    assert (holder.pid, holder.address) == (os.getpid(), "http://127.0.0.1:8000/")


def test_a_second_start_is_refused_with_the_address_of_the_first(taken):
    with pytest.raises(installation.Taken, match=f"http://127.0.0.1:8000/, process {os.getpid()}"):
        installation.take(taken, "http://127.0.0.1:9000/")


def test_another_directory_is_another_installation(taken, tmp_path):
    other = tmp_path / "other"
    other.mkdir()

    os.close(installation.take(other, "http://127.0.0.1:9000/"))


def test_a_killed_process_leaves_no_lock(tmp_path):
    program = (
        "import os, sys, django; django.setup(); from pathlib import Path;"
        "from escalation.worker import installation;"
        "installation.take(Path(sys.argv[1]), 'x'); os.kill(os.getpid(), 9)"
    )

    subprocess.run([sys.executable, "-c", program, str(tmp_path)], cwd=PROJECT, check=False)

    assert (tmp_path / installation.NAME).exists()
    assert installation.holder_of(tmp_path) is None


def test_the_lock_survives_exec(tmp_path):
    """As `up` turns into the parent of its children."""
    program = (
        "import os, sys, django; django.setup(); from pathlib import Path;"
        "from escalation.worker import installation;"
        "installation.take(Path(sys.argv[1]), 'x');"
        "os.execv('/bin/sh', ['sh', '-c', 'echo held; read line'])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    process.stdout.readline()

    holder = installation.holder_of(tmp_path)
    process.communicate(b"end\n")

    assert holder is not None
    assert holder.pid == process.pid
    assert installation.holder_of(tmp_path) is None


def test_a_lock_file_without_content_is_a_lock(taken):
    (taken / installation.NAME).write_text("")

    assert installation.holder_of(taken) is not None
