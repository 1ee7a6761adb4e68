"""The guards of a continuation, each with the fact that it looked at: read from the record.

In the order in which they are asked. The first one that objects ends the questions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sessions_app.reading.formatting import duration
from sessions_app.reading.plain_text import as_text
from sessions_app.reading.stream_shape import mapping

PASSED, OBJECTED, NOT_ASKED = "passed", "objected", "not asked"


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardLine:
    name: str
    question: str
    fact: str
    verdict: str


@dataclass(frozen=True, slots=True)
class Facts:
    """What was seen, whatever of it was stored."""

    parent: Mapping[str, Any]
    run: Mapping[str, Any]
    limits: Mapping[str, Any]


Fact = Callable[[Facts], str]


def guard_lines(continuation_facts: Any, objected: str) -> tuple[GuardLine, ...]:
    """Nothing for a run that continued no other."""
    stored = mapping(continuation_facts)
    facts = Facts(*(mapping(stored.get(key)) for key in ("parent", "run", "limits")))
    if not facts.parent:
        return ()
    names = [name for name, _question, _fact in GUARDS]
    ends = names.index(objected) if objected in names else len(names)
    return tuple(
        GuardLine(
            name=name,
            question=question,
            fact=fact(facts) if place <= ends else "",
            verdict=PASSED if place < ends else OBJECTED if place == ends else NOT_ASKED,
        )
        for place, (name, question, fact) in enumerate(GUARDS)
    )


def _yes_or_no(value: Any) -> str:
    return "yes" if value is True else "no" if value is False else "not recorded"


def _age(facts: Facts) -> str:
    age, most = facts.parent.get("age_seconds"), facts.limits.get("max_age_seconds")
    return f"{_time(age)} of at most {_time(most)}"


def _time(seconds: Any) -> str:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return duration(seconds * 1000) if is_number else "?"


def _context(facts: Facts) -> str:
    used, window = facts.parent.get("context_tokens"), facts.run.get("context_window")
    most = as_text(facts.limits.get("context_threshold"))
    return f"{as_text(used)} of {as_text(window)} tokens; at most a share of {most}"


def _versions(facts: Facts) -> str:
    versions = as_text(facts.parent.get("cli_version")), as_text(facts.run.get("cli_version"))
    return f"CLI {versions[0]}, then {versions[1]}"


def _transcript(facts: Facts) -> str:
    return as_text(facts.parent.get("transcript"))


GUARDS: tuple[tuple[str, str, Fact], ...] = (
    ("cli_cannot_resume", "Can the CLI resume?", lambda f: _yes_or_no(f.run.get("can_resume"))),
    ("force_fresh", "Was a fresh one asked for?", lambda f: _yes_or_no(f.run.get("force_fresh"))),
    ("not_kept", "Was it kept?", lambda f: _yes_or_no(f.parent.get("kept"))),
    (
        "no_session_id",
        "Did the CLI name it?",
        lambda f: as_text(f.parent.get("session_id")) or "no",
    ),
    ("not_a_uuid", "Is the name a UUID?", lambda f: as_text(f.parent.get("session_id"))),
    ("retired", "Is it retired?", lambda f: as_text(f.parent.get("retired_because")) or "no"),
    ("expired", "Is it too old?", _age),
    ("other_runtime", "Is it the same CLI?", _versions),
    (
        "other_directory",
        "Is it the same directory?",
        lambda f: _yes_or_no(f.parent.get("same_directory")),
    ),
    (
        "in_use",
        "Is another run in it?",
        lambda f: f"session {as_text(user)}" if (user := f.parent.get("in_use_by")) else "no",
    ),
    ("context_full", "Is there room in the context?", _context),
    ("transcript_unreadable", "Can the transcript be read?", _transcript),
    (
        "other_host",
        "Is it on this host, or archived?",
        lambda f: f"{_transcript(f)}; same host: {_yes_or_no(f.parent.get('same_host'))}",
    ),
    ("transcript_gone", "Is the transcript there?", _transcript),
)
