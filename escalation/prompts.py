"""Prompts are files in `prompts/`, filled in here.

Text that is not ours (manifest, instructions, an operator's question) is disarmed first: in a
prompt, `/word` at the start is a command to the CLI and `@file` pulls a file in.
"""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from django.conf import settings

from escalation.errors import PromptMissing
from escalation.tiers import Tier
from sessions_app.models import Cycle, Session

PROMPT_FILES = ("round", "role1", "role2", "role3", "escalation", "report_again")
MANIFEST_NAME = "CLAUDE-OPS.md"
MANIFEST_LENGTH = 20_000

DRY_RUN = (
    "\n**Dry run:** change nothing at all. Say what you would do and how; list it under "
    "`actions_taken` as `skipped`."
)
HISTORY = {
    2: "The whole investigation of Tier 1, with every tool output, is in this conversation above.",
    3: "The prior investigation of Tier 1 and the safe remediation attempts of Tier 2, with every "
    "tool output, are in this conversation above.",
}


def prompt_for(session: Session, tier: Tier) -> str:
    """What the run is told, by what it is for."""
    if session.purpose == Session.Purpose.REPORT:
        return fill("report_again")
    if session.parent_session is not None:
        return escalation_prompt(tier, session.parent_session.tier, session.cycle.dry_run)
    return round_prompt(session.cycle, tier)


def round_prompt(cycle: Cycle, tier: Tier) -> str:
    return fill(
        "round",
        subject=disarmed(cycle.subject),
        role=role(tier, cycle.dry_run),
        manifest=disarmed(read_manifest(Path(cycle.workdir))) or "There is none.",
        instructions=disarmed(cycle.instructions) or "None: make the usual round.",
        request=disarmed(cycle.prompt) or "Nothing in particular.",
    )


def escalation_prompt(tier: Tier, previous_tier: int, dry_run: bool) -> str:
    """The new role and nothing of the findings: those are in the conversation."""
    return fill(
        "escalation",
        tier=str(tier.number),
        tier_name=tier.name,
        previous_tier=str(previous_tier),
        history=HISTORY[tier.number],
        role=role(tier, dry_run),
    )


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
