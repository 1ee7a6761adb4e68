"""How values look on a page."""

from __future__ import annotations

import re
import shlex
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django import template
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from sessions_app.models import Approval, Conversation, Cycle, Incident, Session, WallsProof
from sessions_app.reading import formatting
from sessions_app.reading.chain import Chain
from sessions_app.reading.claims import Finding
from sessions_app.reading.continuity import Step
from sessions_app.reading.plain_text import as_text, clean
from sessions_app.reading.walls import ALLOW, ASK, CONTAIN, DENY, Walls, read_walls

register = template.Library()

register.filter("money", formatting.money)
register.filter("duration", formatting.duration)
register.filter("tokens", formatting.tokens)
register.filter("clock", formatting.clock)
register.filter("estimate", formatting.estimate)
register.filter("exact_money", formatting.exact_money)
register.filter("exact_percent", formatting.exact_percent)

PREVIEW_LINES = 10
PREVIEW_CHARACTERS = 900

# Tone and sign of each state: the word says it, colour and sign only help to find it.
TONES: dict[str, tuple[str, str]] = {
    Session.Status.QUEUED: ("quiet", "…"),
    Session.Status.RUNNING: ("live", "●"),
    Session.Status.COMPLETED: ("good", "✓"),
    Session.Status.ESCALATED: ("up", "↑"),
    Session.Status.FAILED: ("bad", "✕"),
    Session.Status.TIMED_OUT: ("bad", "✕"),
    Session.Status.INTERRUPTED: ("warn", "!"),
    Session.Status.AWAITING_APPROVAL: ("warn", "?"),
    Session.Status.CANCELLED: ("quiet", "–"),
    Session.Status.EXPIRED: ("quiet", "–"),
    Cycle.Outcome.HEALTHY: ("good", "✓"),
    Cycle.Outcome.FIXED: ("good", "✓"),
    Cycle.Outcome.NEEDS_PERSON: ("warn", "!"),
    Cycle.Outcome.COULD_NOT_RUN: ("bad", "✕"),
    f"incident_{Incident.State.OPEN}": ("warn", "!"),
    f"incident_{Incident.State.ACKNOWLEDGED}": ("quiet", "✓"),
    f"incident_{Incident.State.WORKING}": ("live", "●"),
    f"incident_{Incident.State.VERIFYING}": ("up", "?"),
    f"incident_{Incident.State.RESOLVED}": ("good", "✓"),
    f"severity_{Incident.Severity.CRITICAL}": ("bad", "✕"),
    f"severity_{Incident.Severity.WARNING}": ("warn", "!"),
    f"severity_{Incident.Severity.NOTICE}": ("quiet", ""),
    Approval.State.WAITING: ("warn", "?"),
    Approval.State.APPROVED: ("good", "✓"),
    Approval.State.REJECTED: ("bad", "✕"),
    Approval.State.WITHDRAWN: ("quiet", "–"),
    Conversation.State.LIVE: ("good", "✓"),
    Conversation.State.RETIRED: ("warn", "!"),
}

# Words that models use for the state of a service.
REPORT_TONES = {
    "good": {"healthy", "ok", "up", "good", "success", "succeeded", "fixed", "done", "info"},
    "warn": {"degraded", "warning", "warn", "unknown", "partial"},
    "bad": {"down", "unhealthy", "critical", "error", "failed", "failure", "bad"},
}


VERDICT_TONES = {ALLOW: "good", CONTAIN: "live", DENY: "bad", ASK: "warn"}


CLAIM_TONES = {
    Finding.SEEN: ("good", "✓"),
    Finding.CLAIMED: ("quiet", "?"),
    Finding.OTHERWISE: ("bad", "✕"),
}


@register.filter
def claim_tone(finding: Finding) -> str:
    return CLAIM_TONES.get(finding, ("quiet", ""))[0]


@register.filter
def claim_sign(finding: Finding) -> str:
    return CLAIM_TONES.get(finding, ("quiet", ""))[1]


@register.filter
def verdict_tone(verdict: str) -> str:
    return VERDICT_TONES.get(verdict, "quiet")


@register.inclusion_tag("sessions_app/_walls.html")
def walls_facts(recorded: Any) -> dict[str, Walls | None]:
    """What holds a run, from the record of one or from what is in force now."""
    return {"walls": read_walls(recorded)}


@register.filter
def milliseconds(value: float | None) -> str:
    """Short times, which `duration` would round away."""
    if value is None:
        return "–"
    if value >= 1000:
        return formatting.duration(value)
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


@register.filter
def proof_time(proof: WallsProof) -> str:
    return formatting.duration((proof.finished_at - proof.started_at).total_seconds() * 1000)


@register.filter
def tone(state: str) -> str:
    return TONES.get(state, ("quiet", ""))[0]


@register.filter
def report_tone(word: str) -> str:
    return next((name for name, words in REPORT_TONES.items() if word.lower() in words), "quiet")


@register.simple_tag
def badge(state: str, label: str) -> SafeString:
    name, sign = TONES.get(state, ("quiet", ""))
    return format_html(
        '<span class="badge tone-{}"><span aria-hidden="true">{}</span> {}</span>',
        name,
        sign,
        label,
    )


@register.simple_tag
def session_badge(session: Session) -> SafeString:
    """A deliberate stop is told with its person, and is no fault."""
    if session.stopped_by:
        return badge(Session.Status.CANCELLED, f"stopped by {clean(session.stopped_by)}")
    return badge(session.status, session.get_status_display())


@register.simple_tag
def cycle_badge(cycle: Cycle) -> SafeString:
    """The outcome, or how far the cycle is while it has none."""
    if cycle.stopped_by and not cycle.is_active:
        return badge(Session.Status.CANCELLED, f"stopped by {clean(cycle.stopped_by)}")
    if cycle.outcome:
        return badge(cycle.outcome, cycle.get_outcome_display())
    return badge(cycle.state, cycle.get_state_display())


@register.simple_tag
def incident_badge(incident: Incident) -> SafeString:
    """Its state, or that it seems to be over."""
    if incident.seems_recovered:
        return badge(Session.Status.COMPLETED, "seems recovered")
    return badge(f"incident_{incident.state}", incident.get_state_display())


@register.simple_tag
def severity_badge(incident: Incident) -> SafeString:
    return badge(f"severity_{incident.severity}", incident.get_severity_display())


@register.filter
def period(value: timedelta | None) -> str:
    """A stretch of time: minutes for a repair, days for what is old."""
    return "–" if value is None else formatting.duration(value.total_seconds() * 1000)


@register.filter
def cost(session: Session) -> str:
    """What a run cost; "pending" while it may still say so, "unknown" when it never did."""
    if session.cost_usd is None and session.is_open:
        return "pending"
    return formatting.cost(session.cost_usd, session.estimated_cost_usd)


@register.filter
def chain_cost(chain: Chain) -> str:
    """The total, and whether it is all: a missing figure must not look like a small cost."""
    total = formatting.money(chain.total_cost_usd)
    if chain.cost_is_complete:
        return total
    if any(session.is_open for session in chain.sessions):
        return f"{total} so far" if chain.total_cost_usd else "pending"
    missing = [session for session in chain.sessions if session.cost_usd is None]
    parts = [total] if chain.total_cost_usd else []
    if chain.estimated_cost_usd:
        parts.append(formatting.estimate(chain.estimated_cost_usd))
    if any(session.estimated_cost_usd is None for session in missing):
        parts.append("unknown")
    return " + ".join(parts) or "unknown"


@register.filter
def cost_at(chain: Chain, tier: int) -> str:
    runs = tuple(session for session in chain.sessions if session.tier == tier)
    return chain_cost(Chain(sessions=runs))


@register.filter
def continuity(step: Step) -> str:
    """How a run came by what was known before it, and how much that was."""
    session = step.session
    if step.parent is None:
        return "began the chain"
    if session.continued_by == Session.ContinuedBy.RESUME:
        carried = step.context_carried
        size = f": {formatting.tokens(carried)} tokens of context carried over" if carried else ""
        return f"resumed the conversation{size}"
    guard = f" ({clean(session.continued_guard)})" if session.continued_guard else ""
    if session.continued_by == Session.ContinuedBy.HANDOFF:
        length = step.handoff_characters
        return f"by handoff{guard}" + (f": {length:,} characters carried over" if length else "")
    return f"fresh conversation{guard}: nothing carried over"


@register.filter
def repeated(step: Step) -> str:
    """What the duplicate-work meter says."""
    work = step.work
    if not work.is_measured:
        return "repeated work not measured: events are no longer kept"
    noun = "tool call" if work.calls == 1 else "tool calls"
    if not work.repeated:
        told = f"{work.calls or 'no'} {noun}"
        return told if step.parent is None or not work.calls else f"{told}, none repeated"
    price = (
        "at unknown cost" if work.cost_usd is None else f"about {formatting.money(work.cost_usd)}"
    )
    return f"{work.repeated} of {work.calls} {noun} repeated earlier work, {price}"


@register.filter
def short_purpose(purpose: str) -> str:
    return clean(purpose).replace("_", "-")


@register.filter
def short_model(name: str) -> str:
    """A model by the part that tells it from others: claude-haiku-4-5-20251001 is haiku-4-5."""
    return re.sub(r"-\d{8}$", "", clean(name).removeprefix("claude-"))


@register.filter
def run_time(session: Session) -> str:
    """How long a run took, or has taken until now."""
    if session.duration_ms is not None:
        return formatting.duration(session.duration_ms)
    if session.started_at is None:
        return "–"
    taken = (session.finished_at or timezone.now()) - session.started_at
    return formatting.duration(taken.total_seconds() * 1000)


@register.simple_tag
def moment(value: datetime | None) -> SafeString:
    """How long ago, with the exact time for those who point at it or read it by machine."""
    if value is None:
        return format_html("<span>{}</span>", "–")
    local = timezone.localtime(value)
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        formatting.ago(value, timezone.now()),
    )


@register.filter
def percent(share: Decimal | None) -> str:
    return "–" if share is None else f"{share * 100:.0f}%"


@register.filter
def number(share: Decimal | None) -> str:
    """For an attribute that a browser reads as a number, whatever the language of the page."""
    return f"{share or 0:.4f}"


@register.filter
def whole(value: Decimal | None) -> int:
    return round(value or 0)


@register.filter
def bar_height(share: Decimal) -> str:
    """Of 100; what cost little is still to be seen."""
    return f"{max(share * 100, Decimal(2)) if share else 0:.1f}"


@register.filter
def bar_top(share: Decimal) -> str:
    return f"{100 - Decimal(bar_height(share)):.1f}"


@register.filter
def shell_quoted(argv: Any) -> str:
    """The command as it can be pasted into a shell."""
    if not isinstance(argv, list):
        return as_text(argv)
    return clean(shlex.join(as_text(entry) for entry in argv))


@register.filter
def plain(value: Any) -> str:
    """Hostile text without what acts on its reader; the template escapes it as always."""
    return as_text(value)


@register.filter
def is_long(text: str) -> bool:
    return len(text) > PREVIEW_CHARACTERS or text.count("\n") >= PREVIEW_LINES


@register.filter
def first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= PREVIEW_LINES * 12 else line[: PREVIEW_LINES * 12] + "…"
