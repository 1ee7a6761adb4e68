"""Measures how many files of the code one session goes through:

    .venv/bin/python -m tests.measure_walk

Plays the drill `all-healthy` with the real CLI in a scratch installation, in this process, and
counts from the start of `escalation.tasks.run_session` to its end: the files that are entered, the
switches from file to file, and the database queries by file. The model's side (`drills`) is left
out. A first session, which is not counted, probes the CLI.

Kinds of switches: a *reader* opens each function once, where it is first called; a reader who reads
*thread by thread* follows one thread to its end before the next, and does not open comprehensions
and lambdas, which stand inside a function; the *program* goes into every call and back again.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile(rf"{re.escape(str(ROOT))}/((?:escalation(?!/drills)|sessions_app)/.*)")
NOT_A_QUERY = ("BEGIN", "SAVEPOINT", "RELEASE", "ROLLBACK", "COMMIT")
SCENARIO = "all-healthy"


def file_of(frame: FrameType | None) -> str:
    """The file of ours in which a frame lies, from the project's root; empty for any other."""
    found = OURS.fullmatch(frame.f_code.co_filename) if frame else None
    return found[1] if found else ""


@dataclass
class Walk:
    functions: dict[CodeType, str] = field(default_factory=dict)
    """Every function that was entered, in the order of its first call, with its file."""
    threads: dict[int, list[str]] = field(default_factory=dict)
    """Files of the named functions by the thread of their first call."""
    steps: list[str] = field(default_factory=list)
    """The file in which the program was after every call and every return."""
    queries: Counter[str] = field(default_factory=Counter)
    transactions: int = 0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """A run may use threads: each has a connection of its own."""
        from django.db import connection
        from django.db.backends.signals import connection_created

        def watch_connection(connection: Any, **_: Any) -> None:
            connection.execute_wrappers.append(self._query)

        connection_created.connect(watch_connection)
        threading.setprofile(self._step)
        sys.setprofile(self._step)
        try:
            with connection.execute_wrapper(self._query):
                yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
            connection_created.disconnect(watch_connection)

    def _step(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and (file := file_of(frame)):
            is_named = not frame.f_code.co_name.startswith("<")
            if is_named and frame.f_code not in self.functions:
                self.threads.setdefault(threading.get_ident(), []).append(file)
            self.functions.setdefault(frame.f_code, file)
            self.steps.append(file)
        elif event == "return" and file_of(frame) and (file := file_of(frame.f_back)):
            self.steps.append(file)

    def _query(self, execute: Callable[..., Any], sql: str, *rest: Any) -> Any:
        if sql.startswith(NOT_A_QUERY):
            self.transactions += 1
        else:
            self.queries[asker(sys._getframe(1))] += 1
        return execute(sql, *rest)


def asker(frame: FrameType | None) -> str:
    """The innermost file of ours that led to a query."""
    while frame is not None:
        if file := file_of(frame):
            return file
        frame = frame.f_back
    return "(none of ours)"


def switches(files: list[str]) -> int:
    return sum(before != after for before, after in pairwise(files))


def set_up(state: str) -> None:
    os.environ.pop("DATABASE_URL", None)
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "claudeops.settings",
        "CLAUDEOPS_STATE_DIR": state,
        "CLAUDEOPS_LOG_LEVEL": "WARNING",
    }
    import django
    from django.core.management import call_command

    django.setup()
    call_command("migrate", verbosity=0)


def run_one_tier(walk: Walk) -> str:
    from escalation.drills.drill import start_drill
    from escalation.tasks import run_session

    session = start_drill(SCENARIO).sessions.get()
    with walk.watched():
        return run_session(session.pk)


def table(walk: Walk) -> Iterator[str]:
    functions = Counter(walk.functions.values())
    yield f"{'functions':>9}  {'queries':>7}  file"
    for file in sorted(functions.keys() | walk.queries.keys()):
        yield f"{functions[file]:>9}  {walk.queries[file]:>7}  {file}"
    yield ""
    yield f"files                         {len(functions):>5}"
    yield f"functions                     {len(walk.functions):>5}"
    yield f"switches of a reader          {switches(list(walk.functions.values())):>5}"
    by_thread = sum(map(switches, walk.threads.values()))
    yield f"  thread by thread            {by_thread:>5}"
    yield f"switches of the program       {switches(walk.steps):>5}"
    yield f"queries                       {walk.queries.total():>5}"
    yield f"beginnings and ends of transactions {walk.transactions:>3} beside them"


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="claudeops-walk-") as state:
        set_up(state)
        run_one_tier(Walk())
        walk = Walk()
        said = run_one_tier(walk)
        print("\n".join(table(walk)))
        print(f"\n{said}")


if __name__ == "__main__":
    main()
