from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from escalation.sandbox import layout
from escalation.sandbox.layout import (
    Closed,
    Hidden,
    Linked,
    Mount,
    Private,
    Shown,
    is_hidden,
    shown_files,
)
from escalation.sandbox.layout import mount_arguments as arguments_for

ONE_SHOWN_HOME: list[Mount] = [Hidden(path="/home"), Shown(path="/home/me")]


def mount_arguments(mounts: Iterable[Mount]) -> list[str]:
    """Return the arguments without the permissions of hidden directories."""
    words = " ".join(arguments_for(mounts)).replace("--perms 0111 ", "")
    return words.split()


def test_a_hidden_directory_cannot_be_listed_and_is_closed_at_the_end():
    assert arguments_for([Hidden(path="/state")]) == [
        *("--perms", "0111", "--tmpfs", "/state"),
        *("--remount-ro", "/state"),
    ]


def test_a_hidden_file_has_nothing_in_it():
    found = mount_arguments([Hidden(path="/etc/shadow", is_directory=False)])

    assert found == ["--ro-bind", "/dev/null", "/etc/shadow"]


def test_a_shown_path_inside_a_hidden_one_comes_after_it_in_whatever_order_they_are_given():
    mounts: list[Mount] = [Shown(path="/home/me/app"), Hidden(path="/home")]

    expected = ["--tmpfs", "/home", "--ro-bind", "/home/me/app", "/home/me/app"]
    assert mount_arguments(mounts)[:5] == expected
    assert mount_arguments(reversed(mounts))[:5] == expected


def test_a_hidden_path_inside_a_shown_one_comes_after_it():
    mounts: list[Mount] = [
        Hidden(path="/srv/ops/state", always=True),
        Shown(path="/srv", writable=True),
    ]

    assert mount_arguments(mounts)[:5] == ["--bind", "/srv", "/srv", "--tmpfs", "/srv/ops/state"]


def test_a_path_in_a_hidden_directory_is_not_hidden_again():
    assert "/home/me/.ssh" not in mount_arguments(
        [Hidden(path="/home"), Hidden(path="/home/me/.ssh")]
    )


def test_what_lies_in_a_shown_place_inside_a_hidden_one_is_hidden_again():
    mounts: list[Mount] = [
        Hidden(path="/home"),
        Shown(path="/home/me"),
        Hidden(path="/home/me/.ssh"),
    ]

    assert mount_arguments(mounts)[5:7] == ["--tmpfs", "/home/me/.ssh"]


def test_an_empty_directory_that_must_be_there_is_made_in_a_hidden_place_too():
    assert mount_arguments([Hidden(path="/home"), Hidden(path="/home/me", is_kept=True)])[:4] == [
        *("--tmpfs", "/home"),
        *("--tmpfs", "/home/me"),
    ]


def test_at_the_same_path_what_is_named_wins_over_what_is_hidden_by_custom():
    assert "--tmpfs" not in mount_arguments([Hidden(path="/home"), Shown(path="/home")])


def test_at_the_same_path_an_always_hidden_mount_wins():
    mounts: list[Mount] = [
        Shown(path="/state", writable=True),
        Hidden(path="/state", always=True),
    ]

    assert mount_arguments(mounts)[:2] == ["--tmpfs", "/state"]


def test_a_writable_mount_wins_over_a_readable_one():
    assert mount_arguments([Shown(path="/a"), Shown(path="/a", writable=True)])[0] == "--bind"


def test_a_private_directory_has_a_size():
    assert mount_arguments([Private(path="/tmp", size=7, mode="1777")]) == [
        *("--perms", "1777", "--size", "7", "--tmpfs", "/tmp"),
    ]


def test_a_neighbour_with_the_same_beginning_is_not_inside():
    assert not is_hidden("/home2/x", [Hidden(path="/home")])


def test_the_nearest_mount_says_whether_a_path_is_hidden():
    mounts: list[Mount] = [
        Hidden(path="/home"),
        Shown(path="/home/me"),
        Hidden(path="/home/me/state"),
    ]

    assert [is_hidden(path, mounts) for path in ("/home/x", "/home/me/x", "/home/me/state/x")] == [
        *(True, False, True)
    ]


def test_a_link_is_made_in_a_hidden_place_and_is_there_already_in_a_shown_one():
    link = Linked(path="/home/me/app", target="/srv/app")

    assert mount_arguments([Hidden(path="/home"), link])[2:5] == [
        *("--symlink", "/srv/app", "/home/me/app"),
    ]
    assert "--symlink" not in mount_arguments([Hidden(path="/home"), Shown(path="/home/me"), link])


def test_a_path_that_is_visible_anyway_needs_no_mount():
    assert mount_arguments([Shown(path="/srv"), Shown(path="/srv/app")]) == []


def test_a_readable_path_inside_a_writable_one_is_only_read():
    mounts: list[Mount] = [Shown(path="/srv", writable=True), Shown(path="/srv/app")]

    assert mount_arguments(mounts)[3:] == ["--ro-bind", "/srv/app", "/srv/app"]


@pytest.fixture
def host_directories(tmp_path, monkeypatch) -> Path:
    """A /tmp and a /run of the host, and the directory that is /tmp in sandboxes."""
    for name in ("tmp", "run/nginx", "shared"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(layout, "TEMPORARY", str(tmp_path / "tmp"))
    monkeypatch.setattr(layout, "RUNNING", str(tmp_path / "run"))
    return tmp_path


def shown_names(root: Path, mount_points: set[str]) -> list[str]:
    found = shown_files(root / "shared", [], mount_points)
    return sorted(mount.path.removeprefix(f"{root}/") for mount in found)


def test_what_everybody_may_read_of_temporary_and_running_files_is_shown(host_directories):
    for name in ("tmp/open", "tmp/closed", "run/a.pid", "run/nginx/nginx.pid", "run/nginx/other"):
        (host_directories / name).write_text("x")
    (host_directories / "tmp/closed").chmod(0o600)
    for name, mode in (("uploads", 0o755), ("private", 0o700)):
        (host_directories / "tmp" / name).mkdir(mode)
    (host_directories / "tmp/link").symlink_to("/etc/passwd")

    shown = shown_names(host_directories, set())

    opened = ["run/a.pid", "run/nginx/nginx.pid", "tmp/open", "tmp/uploads"]
    assert shown == sorted([*opened, "tmp/private"])
    mounts = shown_files(host_directories / "shared", [], set())
    closed = [mount.path for mount in mounts if isinstance(mount, Closed)]
    assert closed == [str(host_directories / "tmp/private")]


def test_a_file_of_the_run_is_not_replaced_by_one_of_the_host(host_directories):
    for name in ("tmp/x", "shared/x"):
        (host_directories / name).touch()

    assert shown_names(host_directories, set()) == []
    assert shown_names(host_directories, {"x"}) == ["tmp/x"]


def test_a_mount_point_is_removed_with_the_file_that_it_showed(host_directories):
    for name in ("shared/gone", "shared/own"):
        (host_directories / name).touch()
    mount_points = {"gone"}

    assert shown_names(host_directories, mount_points) == []
    assert [path.name for path in (host_directories / "shared").iterdir()] == ["own"]
    assert mount_points == set()
