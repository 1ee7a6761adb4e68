"""Filters of every tier before one engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from escalation.sandbox.docker_filter import DockerFilter


@contextmanager
def filters_before(engine: Path) -> Iterator[Callable[[int], Path]]:
    """Gives what opens the socket that a tier gets."""
    with ExitStack() as stack:

        def at(level: int) -> Path:
            path = engine.with_name(f"tier{level}.sock")
            made = DockerFilter(path, engine, level, hidden=("/srv/ops",))
            return stack.enter_context(made.serving())

        yield at
