"""File edits are stored as changes: once, redacted, also after a recovery."""

from __future__ import annotations

import pytest

from escalation.run.finish import record_files
from sessions_app.models import Change
from tests.factories import SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def session():
    """A run that has replaced a line."""
    session = SessionFactory(tier=2)
    given = {"file_path": "/srv/a.conf", "old_string": "a", "new_string": "token = b"}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Edit", "input": given}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "done"}
    for sequence, (kind, block) in enumerate({"assistant": call, "user": result}.items()):
        payload = {"type": kind, "message": {"content": [block]}}
        SessionEventFactory(session=session, sequence=sequence, kind=kind, payload=payload)
    return session


def test_an_edit_is_stored_once_however_often_its_session_ends(session):
    record_files(session)
    record_files(session)

    change = Change.objects.get()
    assert (change.session, change.watch) == (session, session.cycle.watch)
    assert (change.kind, change.action, change.path) == ("edit", "edit /srv/a.conf", "/srv/a.conf")
    assert change.diff == "@@ -1 +1 @@\n-a\n+token = b"
    assert change.at == session.events.get(sequence=1).created_at
    assert not change.has_failed


def test_a_session_without_edits_stores_no_change():
    record_files(SessionFactory())

    assert not Change.objects.exists()


def test_secrets_in_a_diff_are_redacted(session, monkeypatch):
    monkeypatch.setenv("SHOP_API_KEY", "sk-ant-api03-" + "x" * 40)
    event = session.events.get(sequence=0)
    event.payload["message"]["content"][0]["input"]["new_string"] = "sk-ant-api03-" + "x" * 40
    event.save()

    record_files(session)

    assert "sk-ant-api03-xxxx" not in Change.objects.get().diff
