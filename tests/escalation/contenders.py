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

# One interpreter loads everything. Each race is a fork of it, and each contender a fork of that: no
# connection is open at those moments.
ARENA = """
import json, os, sys, time, traceback
from multiprocessing import get_context
import django
django.setup()
from django.db import connection
from sessions_app.models import *

def queued(name, tier=1):
    watch = Watch.objects.create(name=name, workdir="/tmp", max_tier=3, dry_run=False)
    cycle = Cycle.objects.create(watch=watch, trigger="manual", workdir="/tmp")
    return Session.objects.create(cycle=cycle, tier=tier, model="haiku", workdir="/tmp")

connection.close()
for line in sys.stdin:
    race = os.fork()
    if not race:
        try:
            exec(json.loads(line), {**globals()})
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            print(json.dumps(traceback.format_exc()), flush=True)
            os._exit(1)
    os.waitpid(race, 0)
"""

RACE = """
{setup}
connection.close()
context = get_context("fork")
barrier, answers = context.Barrier({contenders}), context.Queue()

def contend(number):
{before}
    barrier.wait(30)
{attempt}
    answers.put(answer)

processes = [context.Process(target=contend, args=(n,)) for n in range({contenders})]
for process in processes:
    process.start()
heard = [answers.get(timeout={timeout}) for _ in processes]
for process in processes:
    process.join()
{look}
print(json.dumps([heard, seen]))
"""


class Contest:
    """Real processes around a database that is migrated: an address, or a file in the directory."""

    def __init__(self, directory: Path, database_url: str = "") -> None:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._arena = subprocess.Popen(
            [sys.executable, "-c", ARENA],
            cwd=PROJECT,
            env={
                **kept,
                "CLAUDEOPS_STATE_DIR": str(directory),
                "CLAUDEOPS_LOG_LEVEL": "ERROR",
                "DJANGO_SETTINGS_MODULE": "claudeops.settings",
                "DATABASE_URL": database_url,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def race(
        self, *, setup: str, before: str = "pass", attempt: str, look: str, timeout: int = 40
    ) -> tuple[Any, Any]:
        """Let all get ready and try at once; each leaves its result in `answer`.

        Gives the answers, and what was `seen` in the database afterwards.
        """
        program = RACE.format(
            contenders=CONTENDERS,
            timeout=timeout,
            setup=setup,
            before=_indented(before),
            attempt=_indented(attempt),
            look=look,
        )
        assert self._arena.stdin is not None
        assert self._arena.stdout is not None
        self._arena.stdin.write(json.dumps(program) + "\n")
        self._arena.stdin.flush()
        said = json.loads(self._arena.stdout.readline())
        assert isinstance(said, list), said
        answers, seen = said
        return answers, seen

    def close(self) -> None:
        self._arena.communicate(timeout=30)


def _indented(program: str) -> str:
    return "\n".join(f"    {line}" for line in program.strip().splitlines())
