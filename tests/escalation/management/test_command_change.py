"""`claudeops change`: list, show and undo."""

from __future__ import annotations

import io
import json
import socket

import pytest
from django.core.management import call_command

from escalation.errors import RefusalCode
from escalation.sandbox.edited_files import digest_of
from sessions_app.models import Change
from tests.escalation.refusals import command_refused
from tests.factories import ChangeFactory, CycleFactory, SessionFactory, UserFactory

pytestmark = pytest.mark.django_db


def output_of(*arguments: str) -> str:
    out = io.StringIO()
    call_command("change", *arguments, stdout=out, stderr=out)
    return out.getvalue()


@pytest.fixture
def created(tmp_path):
    """A change of a session that created a file."""
    (tmp_path / "new.conf").write_text("x")
    session = SessionFactory(
        tier=2,
        host=socket.gethostname(),
        cycle=CycleFactory(workdir=str(tmp_path)),
        sandbox={"writable": [str(tmp_path)]},
    )
    return ChangeFactory(
        session=session,
        kind=Change.Kind.EDIT,
        action="write new.conf",
        path=str(tmp_path / "new.conf"),
        before=Change.Before.ABSENT,
        left_digest=digest_of(b"x"),
        exit_code=None,
    )


def test_changes_are_listed_by_watch_and_kind(created):
    ChangeFactory(session=created.session, action="docker restart web")

    everything = json.loads(output_of("list", "--json"))
    edits = json.loads(output_of("list", "--kind", "edit", "--json"))

    assert [row["action"] for row in everything] == ["docker restart web", "write new.conf"]
    assert [row["can_be_undone"] for row in edits] == [True]


def test_changes_of_drills_are_listed_only_on_request():
    drill = ChangeFactory(session=SessionFactory(cycle=CycleFactory(drill="three-tiers")))

    assert json.loads(output_of("list", "--json")) == []
    assert [row["id"] for row in json.loads(output_of("list", "--drills", "--json"))] == [drill.pk]


def test_an_edit_is_undone_by_a_named_account(created, operator, tmp_path):
    shown = json.loads(output_of("show", str(created.pk), "--json"))
    data = json.loads(output_of("undo", str(created.pk), "--as", "operator", "--yes", "--json"))

    assert (shown["undo"]["possible"], shown["result"]) == (True, "done")
    assert (data["undo"]["code"], data["result"]) == (RefusalCode.CHANGE_UNDONE, "undone")
    assert not (tmp_path / "new.conf").exists()


def test_an_edit_is_not_undone_without_confirmation(created, operator, tmp_path):
    with command_refused(RefusalCode.NOT_CONFIRMED):
        output_of("undo", str(created.pk), "--as", "operator")

    assert (tmp_path / "new.conf").exists()


def test_an_account_that_may_not_approve_undoes_nothing(created, tmp_path):
    UserFactory(username="viewer")

    with command_refused(RefusalCode.NOT_PERMITTED):
        output_of("undo", str(created.pk), "--as", "viewer", "--yes")

    assert (tmp_path / "new.conf").exists()


def test_a_changed_file_is_refused(created, operator, tmp_path):
    (tmp_path / "new.conf").write_text("y")

    with command_refused(RefusalCode.FILE_CHANGED):
        output_of("undo", str(created.pk), "--as", "operator", "--yes")


@pytest.mark.parametrize(
    ("number", "code"),
    [("999", RefusalCode.NOT_FOUND), ("x", RefusalCode.INVALID_ARGUMENTS)],
)
def test_an_unknown_change_is_refused(number, code):
    with command_refused(code):
        output_of("show", number)
