"""What a message says: pure. Short enough for every service, and free of secrets already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sessions_app.models import Happening, Incident
from sessions_app.reading.plain_text import clean, cut, one_line

LONGEST_TITLE = 200
LONGEST_TEXT = 1_200
LINES_IN_A_SUMMARY = 15
LONGEST_LINE = 120

GOOD = {
    Happening.Kind.INCIDENT_RESOLVED,
    Happening.Kind.FIX_VERIFIED,
}
TYPES = {
    Incident.Severity.NOTICE: "info",
    Incident.Severity.WARNING: "warning",
    Incident.Severity.CRITICAL: "failure",
}


def title_of(happening: Happening) -> str:
    return one_line(clean(f"{_about(happening)}{happening.title}"), LONGEST_TITLE)


def body_of(happening: Happening) -> str:
    kind = Happening.Kind(happening.kind).label
    said = f"{kind[0].upper()}{kind[1:]}, {happening.get_severity_display()}."
    return "\n\n".join(filter(None, [said, cut(clean(happening.text), LONGEST_TEXT)]))


def summary_title(happenings: Sequence[Happening]) -> str:
    counted = Counter(Happening.Kind(happening.kind).label for happening in happenings)
    kinds = ", ".join(f"{count} × {kind}" for kind, count in counted.most_common())
    return one_line(f"{len(happenings)} things happened: {kinds}", LONGEST_TITLE)


def summary_body(happenings: Sequence[Happening]) -> str:
    """The worst first, and how many more there are."""
    ordered = sorted(happenings, key=lambda happening: (-happening.severity, happening.pk))
    lines = [
        f"- {one_line(f'[{each.get_severity_display()}] {title_of(each)}', LONGEST_LINE)}"
        for each in ordered[:LINES_IN_A_SUMMARY]
    ]
    if left := len(ordered) - len(lines):
        lines.append(f"… and {left} more.")
    return "\n".join(lines)


def type_of(severity: int, kinds: Sequence[str]) -> str:
    """Apprise's word for it, by which services choose a colour and a symbol."""
    if kinds and GOOD.issuperset(kinds):
        return "success"
    return TYPES[Incident.Severity(severity)]


def _about(happening: Happening) -> str:
    """Whose it is, where the title does not say so itself."""
    if happening.watch is None:
        return ""
    name = happening.watch.name
    is_said = happening.title.startswith(f"{name}: ") or f"({name})" in happening.title
    return "" if is_said else f"{name}: "
