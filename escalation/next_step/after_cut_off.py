"""After a run was cut off from outside: what now? A pure function with a table.

Continuing resumes the same conversation with the words "check the state first". That is safe while
only looking was going on. Where a remediation may be half done, nobody knows what the next command
would meet, so a person looks first. A run that was cut off before anything was said or done is
simply started again, once.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class CutOff:
    """What is known about a run that somebody or something ended."""

    tier: int
    tool_was_running: bool
    """A tool call had begun and its result never came."""
    can_be_continued: bool
    """There is a conversation: the CLI had confirmed its id."""
    answered: bool
    """The model had said something."""
    interruptions: int
    """How often this tier has been cut off in a row, this time included."""
    started_again: bool = False
    """It was started a second time already, because the first start came to nothing."""
    is_question: bool = False


@dataclass(frozen=True, slots=True)
class ContinueAfterCutOff:
    reason: str


@dataclass(frozen=True, slots=True)
class StartAgain:
    reason: str


@dataclass(frozen=True, slots=True)
class AskPerson:
    reason: str


AfterCutOff = ContinueAfterCutOff | StartAgain | AskPerson


def after_cut_off(cut: CutOff, *, limit: int) -> AfterCutOff:
    if cut.is_question:
        return AskPerson("the question was cut off; ask it again")
    if cut.tier > 1 and cut.tool_was_running:
        return AskPerson(
            f"a tool was running at Tier {cut.tier}: a remediation may be half done, so a person "
            "must look first"
        )
    if cut.interruptions > limit:
        return AskPerson(f"Tier {cut.tier} was cut off {cut.interruptions} times")
    if cut.can_be_continued:
        return ContinueAfterCutOff("resumes the same conversation and checks the state first")
    if cut.answered:
        return AskPerson("it had begun to work, and the CLI named no conversation to resume")
    if cut.started_again:
        return AskPerson("it was cut off twice before its conversation began")
    return StartAgain("is started again: nothing was said or done yet")


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitMet:
    """What is known about a run that the account's own limit ended."""

    tier: int
    until: str
    """When the limit is over, in words."""
    can_be_continued: bool
    answered: bool
    times: int
    """How often this tier has met it in a row, this time included."""
    is_question: bool = False


def after_limit(met: LimitMet, *, most: int) -> AfterCutOff:
    """No tool was running: the API refused to go on, and the CLI ended by itself."""
    if met.times > most:
        return AskPerson(f"Tier {met.tier} met the account's limit {met.times} times in a row")
    if met.can_be_continued and met.answered and not met.is_question:
        return ContinueAfterCutOff(
            f"waits for the account's limit until {met.until} and then continues its own "
            "conversation"
        )
    return StartAgain(f"waits for the account's limit until {met.until} and is then started again")
