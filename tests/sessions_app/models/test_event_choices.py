"""The stored names of events and verdicts: they must not change under existing rows."""

from __future__ import annotations

from sessions_app.models import SessionEvent
from sessions_app.models.session import EventKind, EventSource, StreamKind, Verdict


def test_sources_are_stored_under_these_names():
    assert SessionEvent.Source is EventSource
    assert EventSource.values == ["stream", "noise", "stderr", "supervisor"]


def test_verdicts_have_these_stored_names_and_labels():
    assert dict(Verdict.choices) == {
        "allow": "allowed",
        "isolate": "isolated",
        "deny": "denied",
        "ask": "needs approval",
    }


def test_kinds_are_stored_under_these_names():
    supervisor = (
        "status started settings fallback command command_end approval compaction told warning "
        "spool cannot_run crash decision undo"
    )

    assert [str(kind) for kind in EventKind] == supervisor.split()
    assert [str(kind) for kind in StreamKind] == ["assistant", "user", "result"]
