from __future__ import annotations

import io
import threading

import pytest

from escalation.management import progress
from escalation.management.progress import ERASED, waiting
from escalation.management.terminal import PlainOutput


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.was_written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.was_written.set()
        return super().write(text)


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(progress, "PATIENCE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "STEP_SECONDS", 0.005)


def test_what_takes_long_says_so_and_leaves_nothing_behind(impatient):
    out = Terminal()

    with waiting(PlainOutput(out), "Copying"):
        assert out.was_written.wait(5)

    assert out.getvalue().startswith(f"{ERASED}Copying … 0 s")
    assert out.getvalue().endswith(ERASED)


def test_what_is_quick_says_nothing():
    out = Terminal()

    with waiting(PlainOutput(out), "Copying"):
        pass

    assert out.getvalue() == ""


def test_nothing_is_shown_in_a_pipe(impatient):
    out = io.StringIO()

    with waiting(PlainOutput(out), "Copying") as line:
        line.make_room()

    assert out.getvalue() == ""


def test_room_is_made_for_other_lines(impatient):
    out = Terminal()

    with waiting(PlainOutput(out), "Copying") as line:
        assert out.was_written.wait(5)
        line.make_room()

        assert out.getvalue().endswith(ERASED) or "… 0 s" in out.getvalue()
