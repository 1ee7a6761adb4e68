"""After a run was cut off by a death: go on, or ask a person? A pure function with a table.

Going on resumes the same conversation with the words "check the state first". That is safe while
only looking was going on. Where a remediation may have been half done, nobody knows what the next
command would meet, so a person looks first.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CutOff:
    """What is known about a run whose runner is gone."""

    tier: int
    tool_was_running: bool
    """A tool call had begun and its result never came."""
    can_be_continued: bool
    """There is a conversation: the CLI had confirmed its id."""
    interruptions: int
    """How often this tier has been cut off in this cycle, this time included."""
    is_question: bool = False


@dataclass(frozen=True, slots=True)
class GoOnAfterCutOff:
    reason: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    reason: str


def after_cut_off(cut: CutOff, *, limit: int) -> GoOnAfterCutOff | AskPerson:
    if cut.is_question:
        return AskPerson("the question was cut off; ask it again")
    if cut.tier > 1 and cut.tool_was_running:
        return AskPerson(
            f"a tool was running at Tier {cut.tier}: a remediation may be half done, so a person "
            "must look first"
        )
    if cut.interruptions > limit:
        return AskPerson(f"Tier {cut.tier} was cut off {cut.interruptions} times")
    if not cut.can_be_continued:
        return AskPerson("the run was cut off before its conversation began")
    return GoOnAfterCutOff("resumes the same conversation and checks the state first")
