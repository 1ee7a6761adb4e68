"""Undo of edits: the content before comes back only if nobody changed the file since."""

from __future__ import annotations

import socket
import zlib

import pytest
from django.urls import reverse

from escalation.errors import RefusalCode
from escalation.run.finish import record_files
from escalation.run.prepare import run_directory_of
from escalation.run.undo import undo, undo_now
from escalation.sandbox.edited_files import BeforeEdits, note_files
from sessions_app.models import Change, FileContent
from sessions_app.models.session import EventKind
from sessions_app.redaction.encryption import decrypt
from tests.escalation.refusals import refused
from tests.factories import CycleFactory, SessionEventFactory, SessionFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def workdir(tmp_path):
    directory = tmp_path / "work"
    directory.mkdir()
    (directory / "a.conf").write_text("pool = 5\n")
    return directory


@pytest.fixture
def session(workdir, settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    session = SessionFactory(
        tier=2,
        host=socket.gethostname(),
        cycle=CycleFactory(workdir=str(workdir)),
        sandbox={"sandbox": "bubblewrap", "writable": [str(workdir)]},
    )
    run_directory_of(session).mkdir(parents=True)
    note_files(run_directory_of(session), [str(workdir)])
    return session


def edit(session, workdir, content, *, call="toolu_1", name="a.conf"):
    """Edits a file as the CLI does: the API proxy sees the call first."""
    path = str(workdir / name)
    given = {"file_path": path, "content": content}
    BeforeEdits(run_directory_of(session), workdir, [str(workdir)])(call, "Write", given)
    (workdir / name).write_text(content)
    block = {"type": "tool_use", "id": call, "name": "Write", "input": given}
    result = {"type": "tool_result", "tool_use_id": call, "content": "done"}
    for kind, content in {"assistant": block, "user": result}.items():
        payload = {"type": kind, "message": {"content": [content]}}
        number = session.events.count() + 1
        SessionEventFactory(session=session, sequence=number, kind=kind, payload=payload)


def edited(session, workdir, content="pool = 20\n", **options):
    edit(session, workdir, content, **options)
    record_files(session)
    return Change.objects.get(kind=Change.Kind.EDIT)


def test_an_edit_is_undone(session, workdir, operator):
    change = edited(session, workdir)
    (workdir / "a.conf").chmod(0o640)

    undo(change, by=operator, way="page")

    change.refresh_from_db()
    assert (workdir / "a.conf").read_text() == "pool = 5\n"
    assert (workdir / "a.conf").stat().st_mode & 0o777 == 0o640
    assert (change.undone_by, change.can_be_undone) == (operator, False)
    assert session.events.filter(kind=EventKind.UNDO).count() == 1
    assert [file.name for file in workdir.iterdir()] == ["a.conf"]


def test_a_file_that_the_edit_created_is_deleted(session, workdir, operator):
    change = edited(session, workdir, name="new.conf")

    undo(change, by=operator, way="page")

    assert change.before == Change.Before.ABSENT
    assert not (workdir / "new.conf").exists()


def test_a_file_that_was_changed_since_is_left_alone(session, workdir, operator):
    change = edited(session, workdir)
    (workdir / "a.conf").write_text("pool = 7\n")

    with refused(RefusalCode.FILE_CHANGED):
        undo(change, by=operator, way="page")

    change.refresh_from_db()
    assert (workdir / "a.conf").read_text() == "pool = 7\n"
    assert change.undone_at is None
    assert undo_now(change).difference == ("@@ -1 +1 @@", "-pool = 7", "+pool = 5")


def test_an_edit_is_undone_once(session, workdir, operator):
    change = edited(session, workdir)
    undo(change, by=operator, way="page")

    with refused(RefusalCode.CHANGE_UNDONE):
        undo(Change.objects.get(pk=change.pk), by=operator, way="page")


def test_two_edits_of_a_file_are_undone_one_after_the_other(session, workdir, operator):
    edit(session, workdir, "pool = 10\n", call="toolu_1")
    edit(session, workdir, "pool = 20\n", call="toolu_2")
    record_files(session)
    first, second = Change.objects.order_by("pk")

    with refused(RefusalCode.FILE_CHANGED):
        undo(first, by=operator, way="page")
    undo(second, by=operator, way="page")
    undo(first, by=operator, way="page")

    assert (workdir / "a.conf").read_text() == "pool = 5\n"


def test_the_same_content_is_stored_once_and_encrypted(session, workdir):
    (workdir / "b.conf").write_text("pool = 5\n")
    edit(session, workdir, "x", call="toolu_1")
    edit(session, workdir, "x", call="toolu_2", name="b.conf")
    record_files(session)

    kept = FileContent.objects.get()
    assert Change.objects.filter(before_content=kept).count() == 2
    assert b"pool" not in bytes(kept.content)
    assert zlib.decompress(decrypt(bytes(kept.content), "")) == b"pool = 5\n"


def test_an_edit_on_another_host_is_undone_there(session, workdir, operator):
    change = edited(session, workdir)
    session.host = "elsewhere"
    session.save()
    change.refresh_from_db()

    with refused(RefusalCode.OTHER_HOST):
        undo(Change.objects.get(pk=change.pk), by=operator, way="page")

    assert (workdir / "a.conf").read_text() == "pool = 20\n"


def test_an_edit_without_kept_content_is_refused(session, workdir, operator):
    change = edited(session, workdir)
    FileContent.objects.all().delete()

    with refused(RefusalCode.CHANGE_NOT_KEPT):
        undo(Change.objects.get(pk=change.pk), by=operator, way="page")


def test_a_link_in_place_of_the_file_is_not_written_through(session, workdir, operator, tmp_path):
    change = edited(session, workdir)
    (tmp_path / "outside").write_text("pool = 20\n")
    (workdir / "a.conf").unlink()
    (workdir / "a.conf").symlink_to(tmp_path / "outside")

    with refused(RefusalCode.FILE):
        undo(change, by=operator, way="page")

    assert (tmp_path / "outside").read_text() == "pool = 20\n"


def test_files_that_commands_wrote_are_changes(session, workdir):
    (workdir / "by_a_script").write_text("x")

    record_files(session)
    record_files(session)

    change = Change.objects.get()
    assert (change.kind, change.action) == ("file", f"create {workdir / 'by_a_script'}")
    assert not change.can_be_undone


def test_many_written_files_end_with_their_number(session, workdir):
    for number in range(55):
        (workdir / f"{number:02d}").write_text("x")

    record_files(session)

    assert Change.objects.count() == 51
    assert Change.objects.get(number=50).action == "write 5 more files"


def test_the_page_shows_the_difference_and_undoes(session, workdir, operator_client, operator):
    change = edited(session, workdir)
    client = operator_client

    page = client.get(change.get_absolute_url()).content.decode()
    unconfirmed = client.post(reverse("web:undo_change", args=[change.pk]))
    still = (workdir / "a.conf").read_text()
    client.post(reverse("web:undo_change", args=[change.pk]), {"confirm": "on"})

    assert "-pool = 20" in page
    assert "+pool = 5" in page
    assert (unconfirmed.status_code, still) == (302, "pool = 20\n")
    assert (workdir / "a.conf").read_text() == "pool = 5\n"
    change.refresh_from_db()
    assert change.undone_by == operator
