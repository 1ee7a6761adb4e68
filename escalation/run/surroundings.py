"""What a run finds around it besides this installation's environment.

A real run finds nothing more. Whoever plays the model's side of some sessions (the drills) says so
here at the start of the program, so that what runs in earnest needs to know nothing of rehearsals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from sessions_app.models import Session

Surroundings = Callable[[Session], AbstractContextManager[Mapping[str, str]]]
"""Environment variables for one run, for as long as it lasts."""

_for_drills: list[Surroundings] = []


def provide_for_drills(surroundings: Surroundings) -> None:
    _for_drills[:] = [surroundings]


@contextmanager
def surroundings_of(session: Session) -> Iterator[Mapping[str, str]]:
    if not session.is_drill:
        yield {}
        return
    with _for_drills[0](session) as variables:
        yield variables
