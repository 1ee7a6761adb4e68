"""Every context that a session can begin in, as cases for the prompts.

Purpose × parent × way of continuing × dry run × by hand × earlier attempts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from escalation.run.prompts import EarlierRun, OperatorContext, PromptContext, rendered
from escalation.tiers import get_tier
from sessions_app.history.resume import Continuation, Fresh, Guard, Handoff, Resume
from sessions_app.history.session_actions import LONGEST_REASON
from sessions_app.models import Session, session
from sessions_app.text import cut_to_tokens
from tests.escalation.rows import CONVERSATION

Purpose, Status, By = Session.Purpose, Session.Status, Session.ContinuedBy
RESUME = Resume(CONVERSATION, "asked")
HANDOFFS = (
    Handoff(Guard.EXPIRED, "the conversation is older than 86400 s"),
    Handoff(Guard.RETIRED, "the conversation was retired: run again by handoff: ERROR @file"),
)
WAYS: tuple[Continuation, ...] = (RESUME, *HANDOFFS)
RECORD = '{"runs": "Tier 9 said so"}'
TOKEN = "0123456789abcdef"
FENCE, RECORD_FENCE = f"-- {TOKEN[:8]} --", f"=====[ record {TOKEN} ]====="
PARENTS_CALL, ATTEMPTS_CALL = "Bash: docker restart web", "Bash: helm upgrade db"
REASON = cut_to_tokens("I do not believe it. " * LONGEST_REASON, LONGEST_REASON)

Facts = dict[str, Any]
ATTEMPTS: dict[str, tuple[Facts, ...]] = {
    "no attempt": (),
    "failed": ({"ended_as": Status.FAILED, "ran_tools": False},),
    "never began": ({"ended_as": Status.CANCELLED, "ran_tools": False, "began": False},),
    "interrupted": ({"ended_as": Status.INTERRUPTED, "cut_calls": (ATTEMPTS_CALL,)},),
    "two": ({"ended_as": Status.FAILED}, {"ended_as": Status.TIMED_OUT}),
}
REPORTED: Facts = {"reported": True}
PARENTS_BY_HAND: dict[str, Facts] = {
    "reported": REPORTED,
    "failed": {"ended_as": Status.FAILED, "reported": False},
    "timed out": {"ended_as": Status.TIMED_OUT, "reported": False},
    "cut off": {
        "ended_as": Status.INTERRUPTED,
        "reported": False,
        "cut_calls": (PARENTS_CALL * 20,),
        "compacted": True,
    },
    "question": {"reported": False, "is_question": True},
}
WITHIN_A_TIER: dict[session.Purpose, Facts] = {
    Purpose.REPORT: {"reported": False},
    Purpose.CONTINUATION: {"ended_as": Status.FAILED, "reported": False},
    Purpose.RECOVERY: {
        "ended_as": Status.INTERRUPTED,
        "reported": False,
        "cut_calls": (PARENTS_CALL,),
    },
    Purpose.FINDINGS: {"reported": False},
    Purpose.FORK: REPORTED,
    Purpose.FOLLOW_UP: REPORTED,
}
ASKED_BY_A_PERSON = (Purpose.FORK, Purpose.FOLLOW_UP)


@dataclass(frozen=True)
class Case:
    name: str
    prompt_context: PromptContext
    prompt: str

    @property
    def ours(self) -> str:
        """The prompt without the record, which holds what it holds."""
        return re.sub(f"\n{re.escape(RECORD_FENCE)}\n.*\n", "", self.prompt)

    @property
    def way(self) -> type[Continuation]:
        return type(self.prompt_context.continuation)


def situations() -> Iterator[tuple[str, PromptContext]]:
    yield from first_runs()
    yield from findings_runs()
    yield from escalations()
    yield from runs_within_a_tier()


def first_runs() -> Iterator[tuple[str, PromptContext]]:
    for tier, dry_run, tried in product((1, 2, 3), (False, True), ATTEMPTS):
        yield named("first run", tier, Fresh("first"), dry_run, tried)


def findings_runs() -> Iterator[tuple[str, PromptContext]]:
    for tier, dry_run, tried in product((1, 2), (False, True), ATTEMPTS):
        parent = EarlierRun(tier=tier, reported=False, ran_tools=False)
        yield named(
            "findings",
            tier,
            Fresh("thin"),
            dry_run,
            tried,
            line=(parent,),
            purpose=Purpose.FINDINGS,
        )


def escalations() -> Iterator[tuple[str, PromptContext]]:
    chains = ((1, 2), (1, 2, 3), (2, 3), (1, 3))
    sent = [("granted", REPORTED, "")] + [
        (f"by hand after {name}", ended, REASON) for name, ended in PARENTS_BY_HAND.items()
    ]
    for (*before, last, tier), (name, ended, request) in product(chains, sent):
        for way, opened, dry_run, tried in product(
            WAYS[:2], (By.RESUME, By.HANDOFF), (False, True), ATTEMPTS
        ):
            above = tuple(EarlierRun(tier=number) for number in before)
            parent = EarlierRun(tier=last, continued_by=opened, **ended)
            yield named(
                f"{name} {before}",
                tier,
                way,
                dry_run,
                tried,
                line=(*above, parent),
                request=request,
            )


def runs_within_a_tier() -> Iterator[tuple[str, PromptContext]]:
    for tier, (purpose, ended), way, dry_run, tried in product(
        (1, 2, 3), WITHIN_A_TIER.items(), WAYS, (False, True), ATTEMPTS
    ):
        yield named(
            str(purpose),
            tier,
            way,
            dry_run,
            tried,
            line=(EarlierRun(tier=tier, **ended),),
            purpose=purpose,
            request="Look at the cache" if purpose in ASKED_BY_A_PERSON else "",
        )


def named(
    name: str, tier: int, way: Continuation, dry_run: bool, tried: str, **facts
) -> tuple[str, PromptContext]:
    attempts = tuple(EarlierRun(tier=tier, reported=False, **run) for run in ATTEMPTS[tried])
    continued = f"{type(way).__name__} {getattr(way, 'guard', '')}"
    return (
        f"{name}, Tier {tier}, {continued}, dry={dry_run}, {tried}",
        PromptContext(
            tier=get_tier(tier),
            continuation=way,
            dry_run=dry_run,
            attempts=attempts,
            operator=OperatorContext(subject="shop"),
            record=RECORD if isinstance(way, Handoff) else "",
            token=TOKEN,
            **facts,
        ),
    )


def rendered_cases() -> list[Case]:
    return [
        Case(name, prompt_context, rendered(prompt_context))
        for name, prompt_context in situations()
    ]
