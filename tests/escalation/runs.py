"""Runs sessions with the fake CLI, and changes what the next run finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from escalation.queue import leave_to_caller
from escalation.resume.transcripts import transcript_path
from escalation.run import runner
from sessions_app.models import Session, Transcript
from tests.escalation.fake_cli import FakeCli

FOUND = "disk is 100% full"
FINDS_AND_ESCALATES = f"init(); say(); tool('df /', {FOUND!r}); result(ESCALATE)"


def run(session: Session) -> Session:
    """Run a queued session to its end, as a worker would: with a fresh look at its rows."""
    session = Session.objects.select_related("cycle__watch", "parent_session").get(pk=session.pk)
    with leave_to_caller():
        assert runner.run(session)
    return Session.objects.get(pk=session.pk)


def child_of(session: Session) -> Session:
    return session.children.get()


def escalated(fake_cli: FakeCli, session: Session, program: str = FINDS_AND_ESCALATES) -> Session:
    """Run Tier 1, which looks and escalates. Gives the waiting Tier 2."""
    fake_cli.then(program)
    return child_of(run(session))


def change(session: Session | None, **fields: Any) -> None:
    assert session is not None
    Session.objects.filter(pk=session.pk).update(**fields)


def transcript_of(session: Session | None) -> Path:
    assert session is not None
    path = transcript_path(Path(session.config_dir), session.workdir, session.session_id)
    assert path.exists()
    return path


def lose_transcript(session: Session | None) -> None:
    transcript_of(session).unlink()
    Transcript.objects.all().delete()


def handoff_files(state: Path) -> list[str]:
    """Every file that a handoff could be in, by its name or by its folder's."""
    return [
        path.name
        for path in state.rglob("*")
        if path.is_file() and ("handoff" in path.name or path.parent.name == "handoffs")
    ]
