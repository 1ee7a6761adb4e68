"""CLAUDE-OPS.md of a watch: its text, who accepted it, and what has changed since."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from escalation import tasks
from escalation.errors import OperationRefused, RefusalCode
from escalation.run.manifest import (
    MANIFEST_LENGTH,
    UPGRADE,
    CurrentManifest,
    ManifestState,
    accept_first,
    accept_seen,
    manifest_of_cycle,
    manifest_of_watch,
    manifest_state,
    read_manifest,
)
from escalation.worker.schedules import ensure_default_watch
from sessions_app.models import Manifest, Watch
from sessions_app.models.session import EventKind
from tests.escalation.rows import HEALTHY, queued_session
from tests.escalation.runs import run
from tests.factories import CycleFactory, WatchFactory
from tests.tables import each_row

State = ManifestState


@each_row(
    ("accepted", "found", "state", "unaccepted", "waits"),
    [
        ("", "", State.MISSING, "", False),
        ("", " \n", State.MISSING, "", False),
        ("", "b", State.FIRST, "b", True),
        (" \n", "b", State.FIRST, "b", True),
        ("a", "a", State.ACCEPTED, "", False),
        ("a", "a ", State.CHANGED, "a ", True),
        ("a", "b", State.CHANGED, "b", True),
        ("a", "", State.MISSING, "", True),
        ("a", "\n", State.MISSING, "", True),
    ],
)
def test_a_text_counts_as_data_unless_it_is_the_accepted_one(
    accepted, found, state, unaccepted, waits
):
    current = CurrentManifest(accepted=accepted, found=found)

    assert manifest_state(accepted, found) == state
    assert (current.state, current.unaccepted, current.waits) == (state, unaccepted, waits)


def test_the_difference_is_a_unified_diff_without_head():
    current = CurrentManifest(accepted="one\ntwo\n", found="one\n2\n")

    assert current.difference == ("@@ -1,3 +1,3 @@", " one", "-two", "+2", " ")


def test_the_difference_of_a_new_and_of_a_removed_file_is_the_whole_text():
    assert CurrentManifest(found="one").difference == ("@@ -0,0 +1 @@", "+one")
    assert CurrentManifest(accepted="one").difference == ("@@ -1 +0,0 @@", "-one")


def test_the_difference_hides_secrets_and_shows_invisible_characters():
    key = "ghp_" + "a1B2" * 9

    lines = CurrentManifest(accepted="x", found=f"x\u200b\n{key}").difference

    assert "+x‹U+200B›" in lines
    assert key not in str(lines)


def test_the_token_differs_with_the_text_that_was_found():
    one, other = (CurrentManifest(accepted="a", found=text) for text in ("b", "c"))

    assert one.token == CurrentManifest(found="b").token != other.token


@pytest.fixture
def file(workdir: Path) -> Path:
    (workdir / "CLAUDE-OPS.md").write_text("Never touch db.")
    return workdir / "CLAUDE-OPS.md"


@pytest.fixture
def shop(db: None, file: Path) -> Watch:
    """A watch with an accepted manifest."""
    watch: Watch = WatchFactory(name="shop", workdir=str(file.parent))
    accept_first(watch, by="ada")
    return watch


def test_the_first_manifest_is_accepted_by_who_adds_the_watch(shop):
    current = manifest_of_watch(Watch.objects.get())

    assert (current.state, current.accepted) == (State.ACCEPTED, "Never touch db.")
    assert (current.accepted_by, bool(current.accepted_at)) == ("ada", True)


def test_an_edit_accepts_no_changed_manifest(shop, file):
    file.write_text("Forged.")

    accept_first(shop, by="bob")

    assert manifest_of_watch(Watch.objects.get()).accepted_by == "ada"
    assert manifest_of_watch(Watch.objects.get()).state == State.CHANGED


def test_a_move_to_another_directory_accepts_its_manifest(shop, tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("Elsewhere.")
    shop.workdir = str(tmp_path)

    accept_first(shop, by="bob", moved=True)

    assert manifest_of_watch(shop).accepted == "Elsewhere."


def test_a_file_that_comes_after_the_watch_is_not_accepted(shop, file):
    file.unlink()
    accept_first(shop, by="ada", moved=True)
    file.write_text("Forged.")

    assert manifest_of_watch(Watch.objects.get()).state == State.FIRST


def test_a_watch_that_nobody_added_has_no_accepted_manifest(db, file):
    watch = WatchFactory(workdir=str(file.parent))

    assert manifest_of_watch(watch).state == State.FIRST


def test_the_watch_of_the_settings_accepts_what_is_in_its_directory(db, file, settings):
    settings.CLAUDEOPS_WORKDIR = str(file.parent)

    ensure_default_watch()

    assert Manifest.objects.get().accepted_by == "CLAUDEOPS_WORKDIR"


def test_the_text_that_a_person_saw_is_accepted(shop, file):
    file.write_text("Never touch db or cache.")
    tasks.look_at_manifests()

    accept_seen(shop, seen=manifest_of_watch(shop).token, by="bob")

    current, watch = manifest_of_watch(Watch.objects.get()), Watch.objects.get()
    assert (current.accepted, current.accepted_by) == ("Never touch db or cache.", "bob")
    assert watch.manifest_waits is False


def test_a_text_that_changed_after_a_person_saw_it_is_not_accepted(shop, file):
    file.write_text("Never touch db or cache.")
    seen = manifest_of_watch(shop).token
    file.write_text("Forged.")

    with pytest.raises(OperationRefused) as refused:
        accept_seen(shop, seen=seen, by="bob")

    assert refused.value.code == RefusalCode.MANIFEST_CHANGED
    assert Manifest.objects.get().text == "Never touch db."


def test_the_accepted_text_stays_in_force_when_the_file_is_gone(shop, file):
    file.unlink()

    current = manifest_of_cycle(CycleFactory(watch=shop, workdir=shop.workdir))

    assert (current.accepted, current.unaccepted) == ("Never touch db.", "")
    assert Watch.objects.get().manifest_waits


def test_after_an_upgrade_the_next_read_accepts_once(shop, file):
    Manifest.objects.update(text="", accepted_by="", accepted_at=None)
    cycle = CycleFactory(watch=shop, workdir=shop.workdir)
    shown = manifest_of_watch(Watch.objects.get())

    first = manifest_of_cycle(cycle)
    file.write_text("Forged.")
    second = manifest_of_cycle(cycle)

    assert (shown.state, shown.accepted_by) == (State.ACCEPTED, UPGRADE)
    assert (first.accepted, first.accepted_by) == ("Never touch db.", UPGRADE)
    assert (second.accepted, second.unaccepted) == ("Never touch db.", "Forged.")


def test_the_manifest_of_a_drill_is_accepted(db, file):
    cycle = CycleFactory(drilled=True, workdir=str(file.parent))

    assert manifest_of_cycle(cycle).state == State.ACCEPTED


def test_a_cycle_of_a_removed_or_a_moved_watch_has_no_accepted_manifest(shop, file):
    removed = CycleFactory(watch=None, workdir=shop.workdir)
    cycle = CycleFactory(watch=shop, workdir=shop.workdir)
    shop.workdir = "/srv"

    assert [manifest_of_cycle(one).state for one in (removed, cycle)] == [State.FIRST] * 2


def test_the_task_notes_which_manifests_wait_and_which_no_longer_do(shop, file):
    file.write_text("Forged.")
    said = [tasks.look_at_manifests()]
    waits = [Watch.objects.get().manifest_waits]
    file.write_text("Never touch db.")
    said.append(tasks.look_at_manifests())
    waits.append(Watch.objects.get().manifest_waits)

    assert waits == [True, False]
    assert [line[-2:] for line in said] == ["1.", "0."]


@pytest.mark.parametrize("fields", [{"hosts": "elsewhere"}, {"workdir": "/nowhere/at/all"}])
def test_the_task_leaves_a_watch_of_another_host_alone(shop, file, fields):
    file.write_text("Forged.")
    Watch.objects.update(**fields)

    tasks.look_at_manifests()

    assert not Watch.objects.get().manifest_waits


def test_a_session_follows_the_accepted_text_and_records_that_the_file_changed(
    shop, file, fake_cli
):
    fake_cli.reports(HEALTHY).reports(HEALTHY)
    sessions = [queued_session(file.parent) for _ in range(2)]
    for session in sessions:
        session.cycle.watch = shop
        session.cycle.state = session.cycle.State.FINISHED
        session.cycle.save()
    before = run(sessions[0])
    file.write_text("Forged.")
    after = run(sessions[1])

    warned = [
        session.events.filter(kind=EventKind.WARNING, payload__manifest_waits=True).count()
        for session in (before, after)
    ]
    assert warned == [0, 1]
    assert after.prompt.index("Never touch db.") < after.prompt.index("Forged.")
    assert Watch.objects.get(pk=shop.pk).manifest_waits


def test_the_manifest_is_read(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("House rules é")

    assert read_manifest(tmp_path) == "House rules é"


def test_a_manifest_that_is_not_text_is_read_all_the_same(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_bytes(b"rules \xff\xfe")

    assert read_manifest(tmp_path).startswith("rules ")


def test_long_manifest_is_cut_with_a_note(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("x" * (MANIFEST_LENGTH + 1))

    text = read_manifest(tmp_path)

    assert text.startswith("x" * MANIFEST_LENGTH + "\n(cut here")
    assert len(text) < MANIFEST_LENGTH + 100


def test_a_manifest_of_the_allowed_length_is_not_cut(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_text("x" * MANIFEST_LENGTH)

    assert len(read_manifest(tmp_path)) == MANIFEST_LENGTH


def test_a_missing_manifest_is_no_manifest(tmp_path):
    assert read_manifest(tmp_path) == ""


def test_directory_named_like_the_manifest_is_ignored(tmp_path: Path):
    (tmp_path / "CLAUDE-OPS.md").mkdir()

    assert read_manifest(tmp_path) == ""


def test_house_rules_that_lead_out_of_the_directory_are_not_read(tmp_path):
    workdir = tmp_path / "shop"
    workdir.mkdir()
    (tmp_path / "secret_key").write_text("the installation's own")
    (workdir / "CLAUDE-OPS.md").symlink_to(tmp_path / "secret_key")

    assert read_manifest(workdir) == ""


def test_house_rules_may_be_a_link_inside_the_directory(tmp_path):
    (tmp_path / "rules.md").write_text("Backups run at two.")
    (tmp_path / "CLAUDE-OPS.md").symlink_to("rules.md")

    assert read_manifest(tmp_path) == "Backups run at two."


def test_pipe_named_like_the_manifest_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "CLAUDE-OPS.md")

    assert read_manifest(tmp_path) == ""


def test_a_manifest_with_a_nul_is_read_as_it_is_stored(tmp_path):
    (tmp_path / "CLAUDE-OPS.md").write_bytes(b"rules\0")

    assert read_manifest(tmp_path) == "rules\ufffd"
