"""Template filters and tags that format values."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from django import template
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from escalation.web.resume_comparison import ContinuedSession
from sessions_app import text
from sessions_app import text as formatting
from sessions_app.history.chain import session_cost
from sessions_app.history.claims import ClaimCheck
from sessions_app.history.commands import SandboxFacts, read_sandbox
from sessions_app.history.cycles import PastCycle
from sessions_app.history.incidents import Mark
from sessions_app.models import Approval, Conversation, Cycle, Incident, SandboxProof, Session
from sessions_app.models.session import Verdict
from sessions_app.text import as_text, clean

register = template.Library()

register.filter("money", formatting.money)
register.filter("duration", formatting.duration)
register.filter("tokens", formatting.tokens)
register.filter("clock", formatting.clock)
register.filter("estimate", formatting.estimate)
register.filter("exact_money", formatting.exact_money)
register.filter("exact_percent", formatting.exact_percent)
register.filter("cost", session_cost)

PREVIEW_LINES = 10
PREVIEW_CHARACTERS = 900

# Tone and sign of the entries of an incident's timeline.
MARKS: dict[Mark, tuple[str, str]] = {
    Mark.SEEN: ("warn", "!"),
    Mark.WORKED_ON: ("live", "●"),
    Mark.ASKED: ("warn", "?"),
    Mark.APPROVED: ("good", "✓"),
    Mark.REJECTED: ("bad", "✕"),
    Mark.CHANGED: ("up", "△"),
    Mark.CLAIMED: ("live", "↑"),
    Mark.VERIFIED: ("good", "✓"),
    Mark.FAILED: ("bad", "✕"),
    Mark.PERSON: ("quiet", "–"),
    Mark.RESOLVED: ("good", "✓"),
}

# Tone and sign of each state; the text carries the meaning.
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
    **{f"mark_{mark}": look for mark, look in MARKS.items()},
    Conversation.State.LIVE: ("good", "✓"),
    Conversation.State.RETIRED: ("warn", "!"),
}

# Statuses of a service that reports use.
REPORT_TONES = {
    "good": {"healthy", "ok", "up", "good", "success", "succeeded", "fixed", "done", "info"},
    "warn": {"degraded", "warning", "warn", "unknown", "partial"},
    "bad": {"down", "unhealthy", "critical", "error", "failed", "failure", "bad"},
}


VERDICT_TONES: dict[str, str] = {
    Verdict.ALLOW: "good",
    Verdict.ISOLATE: "live",
    Verdict.DENY: "bad",
    Verdict.ASK: "warn",
}


CLAIM_TONES = {
    ClaimCheck.SEEN: ("good", "✓"),
    ClaimCheck.CLAIMED: ("quiet", "?"),
    ClaimCheck.OTHERWISE: ("bad", "✕"),
}


@register.filter
def marked(value: str, words: str) -> SafeString:
    """Marks the first occurrence of the words of a search."""
    found = formatting.found_words(words, {"": value}) if words else None
    plain = " ".join(clean(value).split())
    if found is None:
        return format_html("{}", plain)
    begin = plain.lower().find(found.match.lower())
    before, after = plain[:begin], plain[begin + len(found.match) :]
    return format_html("{}<mark>{}</mark>{}", before, found.match, after)


@register.filter
def claim_tone(finding: ClaimCheck) -> str:
    return CLAIM_TONES.get(finding, ("quiet", ""))[0]


@register.filter
def claim_sign(finding: ClaimCheck) -> str:
    return CLAIM_TONES.get(finding, ("quiet", ""))[1]


@register.filter
def verdict_tone(verdict: str) -> str:
    return VERDICT_TONES.get(verdict, "quiet")


@register.inclusion_tag("web/_sandbox.html")
def sandbox_facts(recorded: Any) -> dict[str, SandboxFacts | None]:
    """Shows the sandbox of a session, or the one in force now."""
    return {"sandbox": read_sandbox(recorded)}


@register.filter
def milliseconds(value: float | None) -> str:
    """Formats short times, which `duration` would round to zero."""
    if value is None:
        return "–"
    if value >= 1000:
        return formatting.duration(value)
    return f"{value:.1f} ms" if value < 10 else f"{value:.0f} ms"


@register.filter
def proof_time(proof: SandboxProof) -> str:
    return formatting.duration((proof.finished_at - proof.started_at).total_seconds() * 1000)


@register.filter
def tone(state: str) -> str:
    return TONES.get(state, ("quiet", ""))[0]


@register.filter
def sign(state: str) -> str:
    return TONES.get(state, ("quiet", ""))[1]


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
    """Shows the status; a deliberate stop names the person and is not an error."""
    if session.stopped_by:
        return badge(Session.Status.CANCELLED, f"stopped by {clean(session.stopped_by)}")
    return badge(session.status, session.get_status_display())


@register.simple_tag
def cycle_badge(cycle: Cycle) -> SafeString:
    """Shows the outcome, or the state while the cycle is active."""
    if cycle.stopped_by and not cycle.is_active:
        return badge(Session.Status.CANCELLED, f"stopped by {clean(cycle.stopped_by)}")
    return badge(cycle.result, cycle.result_text)


@register.simple_tag
def incident_badge(incident: Incident) -> SafeString:
    """Shows the state of an incident, or that it is being verified."""
    if incident.seems_recovered:
        return badge(Session.Status.COMPLETED, "seems recovered")
    return badge(f"incident_{incident.state}", incident.get_state_display())


@register.simple_tag
def severity_badge(incident: Incident) -> SafeString:
    return badge(f"severity_{incident.severity}", incident.get_severity_display())


@register.filter
def period(value: timedelta | None) -> str:
    """Formats a period in minutes, hours or days."""
    return "–" if value is None else formatting.duration(value.total_seconds() * 1000)


@register.filter
def continuity(step: ContinuedSession) -> str:
    """Describes how a session continued the chain, and the context it carried over."""
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
def repeated(step: ContinuedSession) -> str:
    """Describes the duplicate-work meter."""
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
    """Shortens a model name: claude-haiku-4-5-20251001 becomes haiku-4-5."""
    return re.sub(r"-\d{8}$", "", clean(name).removeprefix("claude-"))


@register.filter
def run_time(session: Session) -> str:
    """Formats the duration of a session, up to now if it runs."""
    if session.duration_ms is not None:
        return formatting.duration(session.duration_ms)
    if session.started_at is None:
        return "–"
    taken = (session.finished_at or timezone.now()) - session.started_at
    return formatting.duration(taken.total_seconds() * 1000)


@register.simple_tag
def moment(value: datetime | None, *, on_focus: bool = False) -> SafeString:
    """Formats a relative time, with the exact time as title and `datetime`.

    `on_focus`: the exact time is also shown while it has the focus, for keyboard and touch.
    """
    if value is None:
        return format_html("<span>{}</span>", "–")
    local = timezone.localtime(value)
    return format_html(
        '<time{} datetime="{}" title="{}">{}</time>',
        SafeString(' class="exact" tabindex="0"') if on_focus else "",
        local.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        formatting.ago(value, timezone.now()),
    )


@register.filter
def percent(share: Decimal | None) -> str:
    return "–" if share is None else f"{share * 100:.0f}%"


@register.filter
def number(share: Decimal | None) -> str:
    """Formats a number for an attribute, independent of the locale."""
    return f"{share or 0:.4f}"


@register.filter
def whole(value: Decimal | None) -> int:
    return round(value or 0)


@register.filter
def shell_quoted(argv: Any) -> str:
    """Quotes a command so that it can be pasted into a shell."""
    if not isinstance(argv, list):
        return as_text(argv)
    return clean(shlex.join(as_text(entry) for entry in argv))


@register.filter
def plain(value: Any) -> str:
    """Removes control and invisible characters; the template still escapes the text."""
    return as_text(value)


@register.filter
def is_long(text: str) -> bool:
    return len(text) > PREVIEW_CHARACTERS or text.count("\n") >= PREVIEW_LINES


@register.filter
def first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if len(line) <= PREVIEW_LINES * 12 else line[: PREVIEW_LINES * 12] + "…"


# History bars and clocks of the Overview.


@register.simple_tag
def history_bar(cycles: Iterable[PastCycle]) -> SafeString:
    """Draws one mark for each cycle, with its text as title.

    Only the newest mark is a Tab stop; the arrow keys move between marks.
    """
    marks = list(cycles)
    last = len(marks) - 1
    return format_html_join(
        "",
        '<li><a class="mark mark-{}" href="{}" title="{}" tabindex="{}"></a></li>',
        (
            (
                one.kind,
                reverse("web:cycle", args=[one.cycle]),
                _told(one),
                0 if place == last else -1,
            )
            for place, one in enumerate(marks)
        ),
    )


@register.simple_tag
def clock(since: datetime | None) -> str:
    """Formats the elapsed time; the script of the page updates it."""
    if since is None:
        return "–"
    taken = (timezone.now() - since).total_seconds()
    return format_html(
        '<span class="number" data-since="{}">{}</span>',
        since.isoformat(timespec="seconds"),
        text.duration(max(taken, 0) // 1 * 1000) if taken >= 10 else f"{max(taken, 0):.0f} s",
    )


@register.simple_tag
def coming(moment: datetime | None) -> str:
    """Formats a future time: relative, with the exact time and its zone as title."""
    if moment is None:
        return "–"
    local, now = timezone.localtime(moment), timezone.now()
    words = text.ago(moment, now) if moment > now else "due now"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>',
        local.isoformat(timespec="seconds"),
        local.strftime("%Y-%m-%d %H:%M:%S %Z"),
        "within a minute" if words == "just now" else words,
    )


def _told(one: PastCycle) -> str:
    cost = "" if not one.cost else f", {text.money(Decimal(one.cost))}"
    return f"{clean(one.word)}, {timezone.localtime(one.began):%Y-%m-%d %H:%M %Z}{cost}"
