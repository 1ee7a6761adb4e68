"""A command that waits for a person, between the tool runner's thread and whoever answers.

The thread that serves the command only waits; the record is asked and written by the thread that
reads the run.
"""

from __future__ import annotations

from dataclasses import dataclass

from escalation.rooms.records import GateRecord


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    approved: bool
    words: str = ""
    """For the model: why it does not run, or what the person said besides."""


class Question:
    def __init__(self, record: GateRecord) -> None:
        self.record = record
        self.answer: Answer | None = None
        self.left = False
        """Whoever asked does not wait any more."""
        self.began = False
        """What was approved has been started."""

    def settle(self, answer: Answer) -> None:
        self.answer = answer


def nobody_to_ask(question: Question) -> None:
    question.settle(Answer(approved=False, words="Nobody can be asked here: it did not run."))
