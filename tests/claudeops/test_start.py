"""Tests of the modules that a start loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PROGRAM = """
import sys, django
django.setup()
import escalation.management.commands.run_cycle, escalation.tasks, claudeops.urls
from django.core.checks import run_checks
run_checks()
print([name for name in ("claude_agent_sdk", "mcp") if name in sys.modules])
"""


def test_no_start_and_no_check_loads_the_sdk(tmp_path):
    """It takes a second and 40 MB, in each process."""
    started = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
            "CLAUDEOPS_STATE_DIR": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert started.stdout.strip() == "[]"
