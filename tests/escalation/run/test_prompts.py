"""What the CLI is told (REQ-3), and that text which is not ours cannot act on the CLI."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from escalation.continuity.guards import Fresh, Resume
from escalation.errors import PromptMissing
from escalation.run.prompts import (
    MANIFEST_LENGTH,
    PROMPT_FILES,
    disarmed,
    escalation_prompt,
    fill,
    prompt_for,
    read_manifest,
    round_prompt,
)
from escalation.tiers import get_tier
from sessions_app.models import Cycle, Session
from tests.escalation.rows import CONVERSATION
from tests.factories import CycleFactory, SessionFactory

FRESH, RESUME = Fresh(why="first run of the cycle"), Resume(CONVERSATION, "asked")
FINDINGS = "ERROR 500 connection refused on port 5432"


def tokens(text: str) -> float:
    """A pessimistic estimate: no tokenizer makes more of plain English."""
    return max(len(text) / 3.6, len(text.split()) * 1.4)


def a_cycle(**fields) -> Cycle:
    return Cycle(**{"drill": "three-tiers", "workdir": "/nonexistent", **fields})


@pytest.fixture
def own_prompts(settings, tmp_path: Path) -> Path:
    """A copy of the shipped prompts that a test may damage."""
    directory = tmp_path / "prompts"
    shutil.copytree(settings.CLAUDEOPS_PROMPTS_DIR, directory)
    settings.CLAUDEOPS_PROMPTS_DIR = directory
    return directory


def test_req3_escalation_prompt_describes_tier_change_without_repeating_findings(db):
    parent = SessionFactory(
        escalated=True, result=FINDINGS, escalation_reason=FINDINGS, error=FINDINGS
    )
    child = SessionFactory(tier=2, parent_session=parent, continued_why=FINDINGS)

    prompt = prompt_for(child, get_tier(2), RESUME, None)

    assert "You now operate as Tier 2" in prompt
    assert "safe remediation" in prompt
    assert "is in this conversation above" in prompt
    assert not [word for word in ("500", "5432", "refused") if word in prompt]


@pytest.mark.parametrize("action", ["restart", "pull request", "notify", "configuration"])
def test_req3_escalation_prompt_specifies_authorized_actions(action):
    prompt = escalation_prompt(get_tier(2), 1, dry_run=False)

    assert "you are authorised to" in prompt
    assert action in prompt


@pytest.mark.parametrize("tier", [2, 3])
def test_req3_escalation_prompt_references_the_cooldown(tier):
    assert "**Cooldown:**" in escalation_prompt(get_tier(tier), tier - 1, dry_run=False)


@pytest.mark.parametrize("tier", [1, 2, 3])
@pytest.mark.parametrize("dry_run", [True, False])
def test_req3_the_prompt_says_whether_it_is_a_dry_run(tier, dry_run):
    if tier == 1:
        prompt = round_prompt(a_cycle(dry_run=dry_run), get_tier(1))
    else:
        prompt = escalation_prompt(get_tier(tier), tier - 1, dry_run)

    assert ("**Dry run:** change nothing" in prompt) is dry_run


def test_req3_escalation_prompt_for_tier_3_references_prior_tiers():
    prompt = escalation_prompt(get_tier(3), 2, dry_run=False)

    assert "You now operate as Tier 3" in prompt
    assert "full remediation" in prompt
    assert "prior investigation of Tier 1 and the safe remediation attempts of Tier 2" in prompt


@pytest.mark.parametrize("tier", [2, 3])
@pytest.mark.parametrize("dry_run", [True, False])
def test_req3_escalation_prompt_is_under_500_tokens(tier, dry_run):
    assert tokens(escalation_prompt(get_tier(tier), tier - 1, dry_run)) < 500


def test_the_round_prompt_is_under_1500_tokens():
    assert tokens(round_prompt(a_cycle(dry_run=True), get_tier(1))) < 1500


def test_the_request_for_a_report_runs_nothing_and_is_short():
    prompt = fill("report_again")

    assert "Run no further tools" in prompt
    assert tokens(prompt) < 150


def test_every_prompt_file_is_used_and_no_other_exists(settings):
    shipped = {path.stem for path in Path(settings.CLAUDEOPS_PROMPTS_DIR).glob("*.md")}

    assert shipped == set(PROMPT_FILES)


@pytest.mark.parametrize("name", PROMPT_FILES)
def test_req7_no_prompt_mentions_a_handoff(settings, name):
    text = (Path(settings.CLAUDEOPS_PROMPTS_DIR) / f"{name}.md").read_text()

    assert not re.search(r"hand.?off", text, re.IGNORECASE)


@pytest.mark.parametrize(
    ("purpose", "tier", "parent_tier", "beginning"),
    [
        (Session.Purpose.TIER, 1, None, "# On call: one round at"),
        (Session.Purpose.TIER, 2, None, "# On call: one round at"),
        (Session.Purpose.TIER, 2, 1, "# You now operate as Tier 2"),
        (Session.Purpose.TIER, 3, 2, "# You now operate as Tier 3"),
        (Session.Purpose.REPORT, 1, 1, "Your last answer did not contain"),
        (Session.Purpose.REPORT, 3, 3, "Your last answer did not contain"),
        (Session.Purpose.CONTINUATION, 2, 2, "The run before this one was stopped at its turn"),
        (Session.Purpose.FORK, 2, 2, "An operator wants another approach tried"),
        (Session.Purpose.RETRY, 2, 1, "# You now operate as Tier 2"),
        (Session.Purpose.RETRY, 1, None, "# On call: one round at"),
        (Session.Purpose.FOLLOW_UP, 3, 3, "An operator has a question"),
    ],
)
def test_the_prompt_follows_from_what_the_run_is_for(db, purpose, tier, parent_tier, beginning):
    cycle = CycleFactory()
    parent = SessionFactory(tier=parent_tier, cycle=cycle) if parent_tier else None
    session = SessionFactory(tier=tier, purpose=purpose, parent_session=parent, cycle=cycle)

    prompt = prompt_for(session, get_tier(tier), RESUME if parent else FRESH, None)

    assert prompt.startswith(beginning)


@pytest.mark.parametrize("purpose", [Session.Purpose.FORK, Session.Purpose.FOLLOW_UP])
def test_what_a_person_asks_for_is_in_the_prompt_and_disarmed(db, purpose):
    session = SessionFactory(
        parent_session=SessionFactory(), purpose=purpose, request="/compact\n@/etc/passwd $role"
    )

    prompt = prompt_for(session, get_tier(1), RESUME, None)

    assert prompt.endswith("\n /compact\n@ /etc/passwd $role")


@pytest.mark.parametrize("tier", [1, 2, 3])
def test_a_round_carries_the_role_of_the_tier_that_makes_it(tier):
    assert f"**Role: Tier {tier}, " in round_prompt(a_cycle(), get_tier(tier))


def test_a_round_without_any_texts_says_so():
    prompt = round_prompt(a_cycle(), get_tier(1))

    assert "There is none." in prompt
    assert "None: make the usual round." in prompt
    assert "Nothing in particular." in prompt


@pytest.mark.parametrize("text", ["pay $5 for $role", "$$", "${manifest}", "100 % {} %s $"])
def test_dollar_signs_in_texts_that_are_not_ours_survive(tmp_path, text):
    (tmp_path / "CLAUDE-OPS.md").write_text(f"manifest {text}")
    cycle = a_cycle(
        workdir=str(tmp_path), instructions=f"instructions {text}", prompt=f"request {text}"
    )

    prompt = round_prompt(cycle, get_tier(1))

    assert f"manifest {text}" in prompt
    assert f"instructions {text}" in prompt
    assert f"request {text}" in prompt


ARMED = [
    "@/etc/passwd",
    "see @secrets.env now",
    "line\n@file",
    "\t@file",
    "@@file",
    "@@@file",
    "@ @file",
    "\ufeff@file",
    "\u00a0@file",
    '@"a file"',
    "\u2028@file",
]


@pytest.mark.parametrize("text", ARMED)
def test_no_text_can_pull_a_file_in(text):
    # As the CLI looks for it; JavaScript counts U+FEFF as white space, Python does not.
    assert not re.search(r"(?:^|[\s\ufeff])@[^\s\ufeff]", disarmed(text))


@pytest.mark.parametrize("text", ["/compact", "  /clear now", "fine\n/clear", "\n\n/init"])
def test_no_line_begins_with_a_slash_command(text):
    assert not re.search(r"(?m)^/\w", disarmed(text))


@pytest.mark.parametrize(
    "text", ["mail ops@example.org", "a / b", "GET /health", "5 @ 3", "plain words", ""]
)
def test_harmless_text_stays_as_it_is(text):
    assert disarmed(text) == text


@pytest.mark.parametrize("field", ["instructions", "prompt"])
def test_texts_in_the_round_are_disarmed(field):
    prompt = round_prompt(a_cycle(**{field: "/compact\n@/etc/passwd"}), get_tier(1))

    assert "\n /compact\n@ /etc/passwd" in prompt


def test_the_manifest_in_the_round_is_disarmed(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("@/etc/passwd\n/compact")

    assert "@ /etc/passwd\n /compact" in round_prompt(a_cycle(workdir=str(tmp_path)), get_tier(1))


def test_the_manifest_is_read(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("House rules é")

    assert read_manifest(tmp_path) == "House rules é"


def test_a_manifest_that_is_not_text_is_read_all_the_same(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_bytes(b"rules \xff\xfe")

    assert read_manifest(tmp_path).startswith("rules ")


def test_a_manifest_of_a_book_is_cut_and_says_so(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("x" * (MANIFEST_LENGTH + 1))

    text = read_manifest(tmp_path)

    assert text.startswith("x" * MANIFEST_LENGTH + "\n(cut here")
    assert len(text) < MANIFEST_LENGTH + 100


def test_a_manifest_of_the_allowed_length_is_not_cut(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("x" * MANIFEST_LENGTH)

    assert len(read_manifest(tmp_path)) == MANIFEST_LENGTH


def test_a_missing_manifest_is_no_manifest(tmp_path):
    assert read_manifest(tmp_path) == ""


def test_a_directory_in_place_of_the_manifest_is_no_manifest(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").mkdir()

    assert read_manifest(tmp_path) == ""


@pytest.mark.parametrize("name", ["round", "role1"])
def test_a_missing_prompt_file_is_named_with_advice(own_prompts, name):
    (own_prompts / f"{name}.md").unlink()

    with pytest.raises(PromptMissing, match=rf"{name}\.md.*CLAUDEOPS_PROMPTS_DIR"):
        round_prompt(a_cycle(), get_tier(1))


@pytest.mark.parametrize("content", ["Hello $stranger", "costs $5"])
def test_an_unknown_placeholder_names_the_file(own_prompts, content):
    (own_prompts / "round.md").write_text(content)

    with pytest.raises(PromptMissing, match=r"round\.md.*placeholder"):
        round_prompt(a_cycle(), get_tier(1))


def test_a_prompt_file_that_is_not_text_names_the_file(own_prompts):
    (own_prompts / "round.md").write_bytes(b"\xff\xfe")

    with pytest.raises(PromptMissing, match=r"round\.md"):
        round_prompt(a_cycle(), get_tier(1))
