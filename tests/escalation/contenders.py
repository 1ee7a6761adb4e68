"""Real processes that try the same thing in the same database at the same moment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
CONTENDERS = 4

# One interpreter loads everything, then forks: no connection is open at that moment.
PROGRAM = """
import json, os, time
from multiprocessing import get_context
import django
django.setup()
from django.db import connection
from sessions_app.models import *
from escalation.next_step.cycles import leave_to_caller

def queued(name, tier=1):
    watch = Watch.objects.create(name=name, workdir="/tmp")
    cycle = Cycle.objects.create(watch=watch, trigger="manual", workdir="/tmp")
    return Session.objects.create(cycle=cycle, tier=tier, model="haiku", workdir="/tmp")

{setup}
connection.close()
context = get_context("fork")
gate, answers = context.Barrier({contenders}), context.Queue()

def contend(number):
{before}
    gate.wait(30)
{attempt}
    answers.put(answer)

processes = [context.Process(target=contend, args=(n,)) for n in range({contenders})]
for process in processes:
    process.start()
heard = [answers.get(timeout=40) for _ in processes]
for process in processes:
    process.join()
{look}
print(json.dumps([heard, seen]))
"""


class Contest:
    """A database of its own, with real processes around it."""

    def __init__(self, directory: Path, database_url: str = "") -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._environment = {
            **kept,
            "CLAUDEOPS_STATE_DIR": str(directory),
            "CLAUDEOPS_WORKDIR": str(directory),
            "CLAUDEOPS_LOG_LEVEL": "ERROR",
            "DJANGO_SETTINGS_MODULE": "claudeops.settings",
            "DATABASE_URL": database_url,
        }
        self._python("manage.py", "migrate", "-v0")

    def race(self, *, setup: str, before: str = "pass", attempt: str, look: str) -> tuple[Any, Any]:
        """All get ready, then all try at once; each leaves its result in `answer`.

        Gives the answers, and what was `seen` in the database afterwards.
        """
        program = PROGRAM.format(
            contenders=CONTENDERS,
            setup=setup,
            before=_indented(before),
            attempt=_indented(attempt),
            look=look,
        )
        answers, seen = json.loads(self._python("-c", program).splitlines()[-1])
        return answers, seen

    def _python(self, *arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, *arguments],
            cwd=PROJECT,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def _indented(program: str) -> str:
    return "\n".join(f"    {line}" for line in program.strip().splitlines())
