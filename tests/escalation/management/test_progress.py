from __future__ import annotations

import io
import threading

import pytest

from escalation.management import output
from escalation.management.output import PlainOutput, waiting

ERASED = "\x1b[2K"
CURSOR_HIDDEN, CURSOR_SHOWN = "\x1b[?25l", "\x1b[?25h"


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.was_written = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.was_written.set()
        return super().write(text)


class Pipe(Terminal):
    def isatty(self) -> bool:
        return False


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(output, "TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(output, "STEP_SECONDS", 0.005)


def test_progress_appears_after_a_while_and_is_removed(impatient):
    out = Terminal()

    with waiting(PlainOutput(out), "Copying"):
        assert out.was_written.wait(5)

    assert "Copying … 0 s" in out.getvalue()
    assert out.getvalue().endswith(ERASED)
    assert out.getvalue().rfind(CURSOR_SHOWN) > out.getvalue().rfind(CURSOR_HIDDEN)


def test_a_quick_step_shows_no_progress():
    out = Terminal()

    with waiting(PlainOutput(out), "Copying"):
        pass

    assert out.getvalue() == ""


def test_a_quick_step_writes_nothing_into_a_pipe(impatient):
    out = io.StringIO()

    with waiting(PlainOutput(out), "Copying") as line:
        line.make_room()

    assert out.getvalue() == ""


def test_a_long_step_writes_plain_lines_into_a_pipe(monkeypatch):
    monkeypatch.setattr(output, "FIRST_LINE_SECONDS", 0.0)
    monkeypatch.setattr(output, "NEXT_LINE_SECONDS", 0.005)
    out = Pipe()

    with waiting(PlainOutput(out), "Copying") as line:
        assert out.was_written.wait(5)
        line.tell("Checking")
        out.was_written.clear()
        assert out.was_written.wait(5)
    ended = out.getvalue()

    assert ended.startswith("Copying … 0 s\n")
    assert ended.endswith("Checking … 0 s\n")
    assert "\x1b" not in ended


def test_progress_is_removed_before_other_output(impatient, monkeypatch):
    out = Terminal()

    with waiting(PlainOutput(out), "Copying") as line:
        assert out.was_written.wait(5)
        monkeypatch.setattr(output, "TIMEOUT_SECONDS", 60.0)
        line.make_room()

        assert out.getvalue().endswith(ERASED)


def test_the_text_of_progress_can_change(impatient):
    out = Terminal()

    with waiting(PlainOutput(out), "Copying") as line:
        assert out.was_written.wait(5)
        line.tell("Checking")

    assert "Checking … 0 s" in out.getvalue()


def test_a_long_line_is_shortened_to_the_width_of_the_terminal(impatient, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    out = Terminal()

    with waiting(PlainOutput(out), "Copying a file with a long name"):
        assert out.was_written.wait(5)

    assert "Copying a file with" in out.getvalue()
    assert "long name" not in out.getvalue()
