"""A working directory is apart from the files of Claude Ops and inside the allowed roots."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ValidationError

from sessions_app.models.watch import objection_here, objection_to_workdir, our_places
from tests.factories import WatchFactory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("ops/state", "ops/code", "srv/shop", "home"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def objection(place: Path, directory: str | Path, roots: tuple[str, ...] = ("",)) -> str:
    return objection_to_workdir(
        directory,
        roots=[place / root for root in roots],
        ours={"the state": place / "ops/state", "the code": place / "ops/code"},
    )


def test_a_separate_directory_is_allowed(place):
    assert objection(place, place / "srv/shop") == ""


def test_a_sibling_directory_with_a_common_prefix_is_allowed(place):
    (place / "ops/state-of-the-shop").mkdir()

    assert objection(place, place / "ops/state-of-the-shop") == ""


@pytest.mark.parametrize("name", ["ops/state", "ops/state/runs/7", "ops/code", "ops/code/prompts"])
def test_directories_of_claude_ops_are_refused(place, name):
    assert "is inside the" in objection(place, place / name)


@pytest.mark.parametrize("name", ["ops", ""])
def test_parents_of_directories_of_claude_ops_are_refused(place, name):
    assert "contains the state" in objection(place, place / name)


def test_the_root_directory_is_refused():
    for spelling in ("/", "//", "/srv/..", "/proc/self/root"):
        assert "whole file system" in objection_to_workdir(spelling, roots=[Path("/")], ours={})


def test_a_symbolic_link_is_judged_by_its_target(place):
    link = place / "srv/innocent"
    link.symlink_to(place / "ops/state")

    found = objection(place, link)

    assert "is inside the state" in found
    assert str(link) in found


def test_a_directory_of_claude_ops_behind_a_link_is_refused(place):
    (place / "linked").symlink_to(place / "srv")

    assert objection_to_workdir(
        place / "srv/shop", roots=[Path("/")], ours={"the state": place / "linked/shop"}
    )


def test_dots_in_a_path_are_resolved(place):
    assert "is inside the state" in objection(place, place / "srv/../ops/state")


@pytest.mark.parametrize("directory", ["", ".", "srv/shop", "~/shop", "../shop"])
def test_a_directory_that_is_not_absolute_is_refused(place, directory):
    assert "must be absolute" in objection(place, directory)


def test_a_directory_outside_the_roots_is_refused_and_the_roots_are_named(place):
    assert objection(place, place / "srv/shop", roots=("srv", "home")) == ""
    refused = objection(place, "/var", roots=("srv", "home"))
    assert "CLAUDEOPS_ROOTS" in refused
    assert str(place / "home") in refused


def test_a_symbolic_link_out_of_the_roots_is_refused(place):
    (place / "srv/out").symlink_to("/var")

    assert "CLAUDEOPS_ROOTS" in objection(place, place / "srv/out", roots=("srv",))


def test_a_path_that_cannot_be_resolved_is_refused(place):
    (place / "srv/ring").symlink_to(place / "srv/ring")

    assert "cannot be used" in objection(place, place / "srv/ring")
    assert "cannot be used" in objection(place, f"{place}/srv/\0shop")


def test_this_installation_keeps_state_code_prompts_archive_and_database_apart(settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    settings.CLAUDEOPS_ARCHIVE_DIR = str(tmp_path / "archive")
    settings.CLAUDEOPS_PROMPTS_DIR = tmp_path / "prompts"

    assert set(our_places()) >= {
        f"the {name} of Claude Ops" for name in ("state directory", "code", "prompts", "archive")
    }
    for directory in (*our_places().values(), settings.BASE_DIR / ".venv"):
        assert objection_here(directory)


def test_a_watch_on_the_code_of_claude_ops_is_invalid(settings, tmp_path):
    settings.CLAUDEOPS_STATE_DIR = tmp_path / "state"
    watch = WatchFactory.build(name="shop", workdir=str(settings.BASE_DIR / "prompts"))

    with pytest.raises(ValidationError, match="the code of Claude Ops"):
        watch.clean()
