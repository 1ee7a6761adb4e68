"""Prompts: the words are files in `prompts/`, chosen and filled in from the facts of a situation.

Nothing is looked up here but the files themselves: the same situation gives the same prompt.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from django.conf import settings

from escalation.continuity.guards import Continuation, Fresh, Guard, Handoff, Resume
from escalation.errors import PromptMissing
from escalation.next_step.lineage import Lineage
from escalation.run.foreign_text import disarmed
from escalation.run.situation import EarlierRun, Situation, situation_of
from escalation.tiers import LOWEST_TIER, Tier
from sessions_app.models import Session
from sessions_app.reading.plain_text import one_line

PROMPT_FILES = (
    *("round", "role1", "role2", "role3", "dry_run", "live_run", "findings_file", "closing"),
    *("escalation", "takeover", "granted", "by_hand", "report_is_done", "no_report"),
    *("earlier_attempt", "earlier_attempts", "traces", "cut_calls", "failed_remedies"),
    *("task_escalation", "task_report", "task_continuation", "task_interrupted", "task_findings"),
    *("task_fork", "task_plan", "follow_up"),
)
TASKS = {
    Session.Purpose.TIER: "task_escalation",
    Session.Purpose.REPORT: "task_report",
    Session.Purpose.CONTINUATION: "task_continuation",
    Session.Purpose.RECOVERY: "task_interrupted",
    Session.Purpose.FINDINGS: "task_findings",
    Session.Purpose.FORK: "task_fork",
    Session.Purpose.FOLLOW_UP: "follow_up",
    Session.Purpose.PLAN: "task_plan",
}
LOOKING_BACK = (Session.Purpose.REPORT, Session.Purpose.FOLLOW_UP)
"""What these are for is in the past: they act on nothing."""
INVESTIGATION = "prior investigation"
REMEDIATION = "safe remediation attempts"
PROPOSALS = "proposals"
ENDINGS = {
    Session.Status.FAILED: "failed",
    Session.Status.TIMED_OUT: "ran into its time limit",
    Session.Status.INTERRUPTED: "was interrupted",
    Session.Status.CANCELLED: "was cancelled",
    Session.Status.EXPIRED: "waited too long",
}
# Characters of commands that were cut off; an escalation prompt must stay under 500 tokens.
ROOM_FOR_CALLS = 600
ROOM_IN_ESCALATION = 100


def prompt_for(
    lineage: Lineage,
    tier: Tier,
    continuation: Continuation,
    record: Mapping[str, Any] | None,
    findings_path: str = "",
) -> str:
    """What the run is told: by how it begins, and by what it is for."""
    return rendered(situation_of(lineage, tier, continuation, record, findings_path))


def rendered(situation: Situation) -> str:
    match situation.continuation:
        case Fresh():
            return _round(situation)
        case Resume():
            return _escalation(situation) if situation.is_escalation else _task(situation)
        case Handoff() as handoff:
            assert situation.record, "a run that cannot resume must be told what is known"
            return _takeover(situation, handoff)


def _round(situation: Situation) -> str:
    place, findings = situation.place, situation.findings_path
    again = _task(situation) if situation.line else _before(situation)
    return _paragraphs(
        fill(
            "round",
            subject=disarmed(place.subject),
            role=role(situation),
            again=_paragraph(again),
            manifest=disarmed(place.manifest) or "There is none.",
            instructions=disarmed(place.instructions) or "None: make the usual round.",
            request=disarmed(place.asked_for) or "Nothing in particular.",
        ),
        fill("findings_file", path=findings) if findings else "",
    )


def _escalation(situation: Situation) -> str:
    """The new role and nothing of the findings: those are in the conversation."""
    return fill(
        "escalation",
        tier=str(situation.tier.number),
        tier_name=situation.tier.name,
        sent=_sent(situation),
        history=history(situation),
        before=_paragraph(_before(situation, ROOM_IN_ESCALATION)),
        role=role(situation),
        reports=_reports(situation),
    )


def _takeover(situation: Situation, handoff: Handoff) -> str:
    place = situation.place
    return fill(
        "takeover",
        tier=str(situation.tier.number),
        tier_name=situation.tier.name,
        previous=_name_of_parent(situation),
        ended=_ended(situation.parent),
        why=_why(handoff),
        role=_paragraph("" if situation.is_question else role(situation)),
        task=_task(situation),
        manifest=disarmed(place.manifest) or "There is none.",
        instructions=disarmed(place.instructions) or "None: make the usual round.",
        fence=f"=====[ record {situation.token} ]=====",
        record=disarmed(situation.record),
        closing="" if situation.is_question else fill("closing"),
    )


def _task(situation: Situation) -> str:
    """What the run is for, in words that hold in the conversation and outside of it."""
    resumes = isinstance(situation.continuation, Resume)
    purpose = Session.Purpose(situation.purpose)
    # Where the role is given anew, it says by itself whether this is a dry run.
    dryness = _dryness(situation) if resumes and purpose not in LOOKING_BACK else ""
    return fill(
        TASKS[purpose],
        sent=_sent(situation),
        source="this conversation" if resumes else "the record at the end",
        before=_paragraph(_paragraphs(_before(situation), dryness)),
        request=disarmed(situation.request) or "(nothing in particular)",
    )


def _sent(situation: Situation) -> str:
    """Who sent the run to its tier: the supervisor because it was asked, or a person."""
    previous = str(situation.parent.tier)
    if situation.request:
        return fill("by_hand", previous_tier=previous, request=disarmed(situation.request))
    return fill("granted", previous_tier=previous)


def history(situation: Situation) -> str:
    """What the conversation holds, by the tiers that have been in it."""
    held, recorded = situation.in_conversation, situation.in_record
    first = min(run.tier for run in (*recorded, *held))
    work = [
        f"{kind} of Tier {tier}"
        for tier in dict.fromkeys(run.tier for run in held)
        for kind in _kinds_of_work(tier, makes_round=tier == first, dry_run=situation.dry_run)
    ]
    compacted = any(run.compacted for run in held)
    outputs = "the older part as a summary" if compacted else "with every tool output"
    verb = "is" if work == [f"{INVESTIGATION} of Tier {first}"] else "are"
    above = f"The {' and the '.join(work)}, {outputs}, {verb} in this conversation above."
    return " ".join([above, *map(_from_record, dict.fromkeys(run.tier for run in recorded))])


def _kinds_of_work(tier: int, *, makes_round: bool, dry_run: bool) -> list[str]:
    investigation = [INVESTIGATION] if makes_round else []
    if tier == LOWEST_TIER:
        return investigation
    return [*investigation, PROPOSALS if dry_run else REMEDIATION]


def _from_record(tier: int) -> str:
    return f"Of earlier work of Tier {tier} it holds the supervisor's record."


def _reports(situation: Situation) -> str:
    """The resumed model is tempted to repeat the last report that it sees: it must not."""
    parent = situation.parent
    reported = [run.tier for run in situation.in_conversation if run.reported]
    done = fill("report_is_done", previous_tier=str(reported[-1])) if reported else ""
    missing = not parent.reported and not parent.is_question
    none = fill("no_report", previous_tier=str(parent.tier), ended=_ended(parent))
    return " ".join(filter(None, [done, none if missing else ""]))


def _before(situation: Situation, room: int = ROOM_FOR_CALLS) -> str:
    """What happened before and is not told by the conversation."""
    return _paragraphs(
        _attempts(situation), _cut_off(situation, room), _failed_remedies(situation, room)
    )


def _attempts(situation: Situation) -> str:
    """The runs at this same point before: not in the conversation, but perhaps in the system."""
    attempts = situation.attempts
    if not attempts:
        return ""
    name = "earlier_attempt" if len(attempts) == 1 else "earlier_attempts"
    told = fill(name, count=str(len(attempts)), ended=_ended(attempts[-1]))
    acted = any(attempt.ran_tools for attempt in attempts)
    looks_back = situation.purpose in LOOKING_BACK
    return f"{told} {fill('traces')}" if acted and not looks_back else told


def _cut_off(situation: Situation, room: int) -> str:
    """What the run before, or the last attempt, was in the middle of: as data."""
    runs = (*situation.line[-1:], *situation.attempts[-1:])
    calls = [call for run in runs for call in run.cut_calls]
    if not calls:
        return ""
    shown = [one_line(call, room // len(calls)) for call in calls]
    fence = f"----- {situation.token[:8]} -----"
    return fill("cut_calls", fence=fence, calls=disarmed("\n".join(shown)))


def _failed_remedies(situation: Situation, room: int) -> str:
    """What was done in earlier chains and did not hold: as data."""
    remedies = situation.failed_remedies
    if not remedies or situation.purpose in LOOKING_BACK:
        return ""
    shown = [one_line(remedy, room // len(remedies)) for remedy in remedies]
    fence = f"----- {situation.token[:8]} -----"
    return fill("failed_remedies", fence=fence, remedies=disarmed("\n".join(shown)))


def _name_of_parent(situation: Situation) -> str:
    tier = situation.parent.tier
    return f"an earlier run of Tier {tier}" if tier == situation.tier.number else f"Tier {tier}"


def _ended(run: EarlierRun) -> str:
    if not run.began:
        return f"{ENDINGS.get(Session.Status(run.ended_as), 'ended')} before it began"
    if run.ended_as in ENDINGS:
        return ENDINGS[Session.Status(run.ended_as)]
    if run.is_question:
        return "answered a question"
    return "ended with a report" if run.reported else "ended without a report"


def _why(handoff: Handoff) -> str:
    """Of a retired conversation the reason holds what a program said: that is no text for here."""
    return "it proved unusable" if handoff.guard == Guard.RETIRED else disarmed(handoff.why)


def role(situation: Situation) -> str:
    return fill(f"role{situation.tier.number}", dry_run=_dryness(situation))


def _dryness(situation: Situation) -> str:
    return fill("dry_run" if situation.dry_run else "live_run")


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _paragraph(text: str) -> str:
    """Where a text is missing, so is the empty line before it."""
    return f"\n\n{text}" if text else ""


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
