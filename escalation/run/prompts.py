"""Prompts are files in `prompts/`, filled in here.

Text that is not ours (manifest, instructions, an operator's question) is disarmed first: in a
prompt, `/word` at the start is a command to the CLI and `@file` pulls a file in.
"""

from __future__ import annotations

import json
import re
import secrets
from pathlib import Path
from string import Template
from typing import Any

from django.conf import settings

from escalation.continuity import findings_file
from escalation.continuity.guards import Continuation, Fresh, Handoff, Resume
from escalation.errors import PromptMissing
from escalation.tiers import Tier
from sessions_app.models import Cycle, Session

PROMPT_FILES = (
    *("round", "role1", "role2", "role3", "escalation", "report_again", "findings_file"),
    *("takeover", "task_escalation", "task_continuation", "task_fork", "task_retry", "follow_up"),
    "task_interrupted",
)
MANIFEST_NAME = "CLAUDE-OPS.md"
MANIFEST_LENGTH = 20_000

DRY_RUN = (
    "\n**Dry run:** change nothing at all. Say what you would do and how; list it under "
    "`actions_taken` as `skipped`."
)
INVESTIGATION = "The prior investigation of Tier {first}"
ATTEMPTS = " and the safe remediation attempts of Tier 2"
IN_CONVERSATION = ", with every tool output, {verb} in this conversation above."
CLOSING = (
    "End with the structured report of the state after your work: summary, services with status, "
    "events, actions taken with their results, and whether escalation is needed."
)


def prompt_for(
    session: Session, tier: Tier, continuation: Continuation, record: dict[str, Any] | None
) -> str:
    """What the run is told: by how it begins, and by what it is for."""
    match continuation:
        case Fresh():
            return _round(session, tier)
        case Resume():
            return _resumed(session, tier)
        case Handoff(why=why):
            assert record is not None, "a run that cannot resume must be told what is known"
            return takeover_prompt(session, tier, why, record)


def _round(session: Session, tier: Tier) -> str:
    prompt = round_prompt(session.cycle, tier)
    if findings_file.wanted_from(session):
        prompt += "\n\n" + fill("findings_file", path=str(findings_file.prepare(session)))
    return prompt


def _resumed(session: Session, tier: Tier) -> str:
    parent = session.parent_session
    assert parent is not None, "only a run with a parent resumes"
    cycle = session.cycle
    escalation = escalation_prompt(
        tier,
        parent.tier,
        cycle.dry_run,
        first_tier=cycle.first_tier,
        by_hand=session.request if session.requested_by_id or session.request else "",
    )
    match session.purpose:
        case Session.Purpose.TIER:
            return escalation
        case Session.Purpose.RETRY:
            return f"{escalation}\n\n{fill('task_retry')}"
    return _task(session)


def _task(session: Session) -> str:
    """What the run is for, in words that hold in any conversation."""
    request = disarmed(session.request) or "(nothing in particular)"
    match session.purpose:
        case Session.Purpose.REPORT:
            return fill("report_again")
        case Session.Purpose.CONTINUATION:
            return fill("task_continuation")
        case Session.Purpose.RECOVERY:
            return fill("task_interrupted")
        case Session.Purpose.FORK:
            return fill("task_fork", request=request)
        case Session.Purpose.RETRY:
            return fill("task_retry")
        case Session.Purpose.FOLLOW_UP:
            return fill("follow_up", request=request)
    return "\n\n".join(filter(None, [fill("task_escalation"), disarmed(session.request)]))


def takeover_prompt(session: Session, tier: Tier, why: str, record: dict[str, Any]) -> str:
    """The fence is new each time: no output of a program can know it and close it."""
    parent, cycle = session.parent_session, session.cycle
    fence = f"=====[ record {secrets.token_hex(8)} ]====="
    is_question = session.purpose == Session.Purpose.FOLLOW_UP
    return fill(
        "takeover",
        tier=str(tier.number),
        tier_name=tier.name,
        previous_tier=str(parent.tier if parent else tier.number),
        why=disarmed(why),
        role=role(tier, cycle.dry_run),
        task=_task(session),
        manifest=disarmed(read_manifest(Path(cycle.workdir))) or "There is none.",
        instructions=disarmed(cycle.instructions) or "None: make the usual round.",
        fence=fence,
        record=disarmed(json.dumps(record["content"], indent=1, ensure_ascii=False)),
        closing="" if is_question else CLOSING,
    )


def round_prompt(cycle: Cycle, tier: Tier) -> str:
    return fill(
        "round",
        subject=disarmed(cycle.subject),
        role=role(tier, cycle.dry_run),
        manifest=disarmed(read_manifest(Path(cycle.workdir))) or "There is none.",
        instructions=disarmed(cycle.instructions) or "None: make the usual round.",
        request=disarmed(cycle.prompt) or "Nothing in particular.",
    )


def escalation_prompt(
    tier: Tier, previous_tier: int, dry_run: bool, first_tier: int = 1, by_hand: str = ""
) -> str:
    """The new role and nothing of the findings: those are in the conversation."""
    granted = f"The supervisor granted the escalation that Tier {previous_tier} asked for."
    if by_hand:
        granted = f"An operator escalated from Tier {previous_tier}: {disarmed(by_hand)}\n\n"
    return fill(
        "escalation",
        tier=str(tier.number),
        tier_name=tier.name,
        previous_tier=str(previous_tier),
        granted=granted,
        history=history(first_tier, previous_tier),
        role=role(tier, dry_run),
    )


def history(first_tier: int, previous_tier: int) -> str:
    """What the conversation holds, by the tiers that have been in it."""
    attempted = first_tier < 2 <= previous_tier
    text = INVESTIGATION.format(first=first_tier) + (ATTEMPTS if attempted else "")
    return text + IN_CONVERSATION.format(verb="are" if attempted else "is")


def role(tier: Tier, dry_run: bool) -> str:
    return fill(f"role{tier.number}", dry_run=DRY_RUN if dry_run else "")


def fill(name: str, **values: str) -> str:
    path = Path(settings.CLAUDEOPS_PROMPTS_DIR) / f"{name}.md"
    try:
        return Template(path.read_text()).substitute(values).strip()
    except OSError as error:
        raise PromptMissing(
            f"The prompt file {path} cannot be read ({error.strerror}). Restore it, or correct "
            "CLAUDEOPS_PROMPTS_DIR."
        ) from error
    except (KeyError, ValueError) as error:
        raise PromptMissing(
            f"The prompt file {path} has an unknown placeholder: {error}."
        ) from error


def disarmed(text: str) -> str:
    """The same words, which the CLI cannot take for a command or a file to pull in."""
    without_mentions = re.sub(
        r"(?<![^\s\ufeff])@+(?=\S)", lambda found: "@ " * len(found[0]), text.strip()
    )
    return re.sub(r"(?m)^/(?=\w)", " /", without_mentions)


def read_manifest(workdir: Path) -> str:
    """The house rules, where the working directory has them; cut when somebody wrote a book."""
    try:
        with (workdir / MANIFEST_NAME).open(encoding="utf-8", errors="replace") as manifest:
            text = manifest.read(MANIFEST_LENGTH + 1)
    except OSError:
        return ""
    if len(text) > MANIFEST_LENGTH:
        return text[:MANIFEST_LENGTH] + f"\n(cut here: read {MANIFEST_NAME} for the rest)"
    return text
