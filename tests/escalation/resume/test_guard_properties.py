"""Properties of the continuation decision for any facts."""

from __future__ import annotations

import re
from decimal import Decimal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from escalation.agent.binary import ClaudeBinary, RunRequest, build_argv
from escalation.run.prompts import TASKS, EarlierRun, PromptContext, new_token, rendered
from escalation.tiers import get_tier
from sessions_app.history.resume import (
    Continuation,
    Fresh,
    Guard,
    Handoff,
    NextRun,
    ParentFacts,
    Resume,
    ResumeLimits,
    TranscriptLocation,
    continuation_from,
)
from tests.escalation.continuation_cases import FENCE, LIMITS, VERSION
from tests.escalation.rows import CONVERSATION

# No database of examples in the working directory; the fixtures are the same for every example.
quietly = settings(
    database=None,
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

CANONICAL = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
RECORD = '{"runs": ["what Tier 1 had found"], "tool_calls": []}'

canonical_ids = st.uuids().map(str)
other_spellings = st.uuids().flatmap(
    lambda value: st.sampled_from(
        [value.hex, f"{{{value}}}", f"urn:uuid:{value}", f" {value}", f"{value}\n", f"{value}0"]
    )
)
session_ids = st.one_of(
    st.just(CONVERSATION), canonical_ids, other_spellings, st.text(max_size=60), st.just("")
)
versions = st.sampled_from([VERSION, VERSION, VERSION, "2.1.197", ""])
parents = st.builds(
    ParentFacts,
    tier=st.integers(1, 3),
    session_id=session_ids,
    retired_because=st.sampled_from(["", "", "", "refused", "prompt is too long"]),
    expired=st.booleans(),
    age_seconds=st.floats(-1e6, 1e6),
    cli_version=versions,
    same_binary=st.booleans(),
    same_directory=st.booleans(),
    same_host=st.booleans(),
    in_use_by=st.one_of(st.none(), st.integers(1, 10**9)),
    context_tokens=st.integers(0, 2**53),
    transcript=st.sampled_from(TranscriptLocation),
)
healthy_parents = st.builds(
    ParentFacts,
    tier=st.integers(1, 3),
    session_id=session_ids,
    age_seconds=st.floats(-1e6, 1e5),
    cli_version=st.just(VERSION),
    context_tokens=st.integers(0, 250_000),
    transcript=st.sampled_from([TranscriptLocation.ON_DISK, TranscriptLocation.ARCHIVED]),
)
runs = st.builds(
    NextRun,
    tier=st.integers(1, 3),
    cli_version=versions,
    can_resume=st.sampled_from([True, True, False]),
    force_fresh=st.sampled_from([False, False, True]),
    context_window=st.integers(1, 2_000_000),
)
limits = st.builds(
    ResumeLimits,
    context_threshold=st.decimals("0.01", "1", places=2),
    max_age_seconds=st.integers(1, 10**7),
)
any_parent = st.one_of(st.none(), parents, healthy_parents)
binaries = st.builds(
    ClaudeBinary,
    path=st.just("/opt/claude"),
    source=st.just("PATH"),
    version=st.just(VERSION),
    flags=st.sampled_from([(), ("--resume",), ("--resume", "--fork-session")]),
)
purposes = st.sampled_from(sorted(TASKS))


def command_and_prompt(
    continuation: Continuation, *, tier: int, purpose: str, binary: ClaudeBinary
) -> tuple[list[str], str]:
    """Build command line and prompt from one decision, as `prepare` does."""
    prompt_context = PromptContext(
        tier=get_tier(tier),
        continuation=continuation,
        purpose=purpose,
        line=(EarlierRun(tier=1),),
        request="look again",
        record=RECORD if isinstance(continuation, Handoff) else "",
        token=new_token(),
    )
    request = RunRequest(
        tier=get_tier(tier),
        session_id="0b0b0b0b-0000-4000-8000-000000000002",
        resumes=continuation.session_id if isinstance(continuation, Resume) else None,
        report_schema=None,
        max_budget_usd=Decimal(1),
    )
    return build_argv(binary, request), rendered(prompt_context)


@quietly
@given(any_parent, runs, limits)
def test_a_session_is_fresh_exactly_without_a_parent(parent, run, limit):
    continuation = continuation_from(parent, run, limit)

    assert isinstance(continuation, Fresh | Resume | Handoff)
    assert isinstance(continuation, Fresh) == (parent is None)


@quietly
@given(any_parent, runs, limits)
def test_every_decision_has_a_reason(parent, run, limit):
    continuation = continuation_from(parent, run, limit)

    assert continuation.why.strip()
    assert not isinstance(continuation, Handoff) or continuation.guard in Guard


@quietly
@given(any_parent, runs, limits)
def test_the_same_facts_give_the_same_decision(parent, run, limit):
    assert continuation_from(parent, run, limit) == continuation_from(parent, run, limit)


@quietly
@given(st.one_of(parents, healthy_parents), runs, limits, purposes, binaries)
def test_a_session_with_a_parent_resumes_or_gets_a_handoff(parent, run, limit, purpose, binary):
    continuation = continuation_from(parent, run, limit)

    argv, prompt = command_and_prompt(continuation, tier=run.tier, purpose=purpose, binary=binary)

    assert ("--resume" in argv) != bool(FENCE.search(prompt))
    assert ("--resume" in argv) != ("what Tier 1 had found" in prompt)


@quietly
@given(healthy_parents, limits)
def test_id_that_is_no_uuid_is_never_resumed(parent, limit):
    run = NextRun(
        tier=2, cli_version=VERSION, can_resume=True, force_fresh=False, context_window=10**9
    )

    continuation = continuation_from(parent, run, limit)

    if isinstance(continuation, Resume):
        assert continuation.session_id == parent.session_id
        assert CANONICAL.fullmatch(continuation.session_id)


@quietly
@given(healthy_parents.filter(lambda facts: CANONICAL.fullmatch(facts.session_id)))
def test_resumes_when_no_guard_objects(parent):
    run = NextRun(
        tier=2, cli_version=VERSION, can_resume=True, force_fresh=False, context_window=10**9
    )
    limit = ResumeLimits(context_threshold=LIMITS.context_threshold, max_age_seconds=10**7)

    assert isinstance(continuation_from(parent, run, limit), Resume)


@quietly
@given(st.integers(0, 2**53), st.integers(1, 2_000_000), st.decimals("0.01", "1", places=2))
def test_req8_it_resumes_exactly_up_to_the_threshold(tokens, window, threshold):
    parent = ParentFacts(
        tier=1,
        session_id=CONVERSATION,
        cli_version=VERSION,
        context_tokens=tokens,
        transcript=TranscriptLocation.ON_DISK,
    )
    run = NextRun(
        tier=2, cli_version=VERSION, can_resume=True, force_fresh=False, context_window=window
    )
    limit = ResumeLimits(context_threshold=threshold, max_age_seconds=60)

    continuation = continuation_from(parent, run, limit)

    assert isinstance(continuation, Resume) == (tokens <= threshold * window)
