from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from escalation.sandbox.layout import (
    Hidden,
    Linked,
    Shown,
    hidden_sockets,
    hiding,
    sandbox_home,
    sandbox_mounts,
    showing,
    why_unreachable,
)


def test_what_is_hidden_is_resolved_and_what_is_not_there_left_out(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("real")
    names = ("link", "file", "missing")

    assert hiding([str(tmp_path / name) for name in names]) == [
        Hidden(path=str(tmp_path / "file"), is_directory=False),
        Hidden(path=str(tmp_path / "real")),
    ]


def test_the_root_itself_is_never_hidden():
    assert hiding(["/", "/usr/.."]) == []


def test_a_missing_path_is_not_shown(tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")

    assert showing(tmp_path / "missing", []) == []
    assert showing(tmp_path / "dangling", []) == []


def test_a_link_in_a_hidden_place_is_made_again(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/app").symlink_to(tmp_path / "app")

    assert showing(tmp_path / "home/app", hiding([str(tmp_path / "home")])) == [
        Shown(path=str(tmp_path / "app")),
        Linked(path=str(tmp_path / "home/app"), target=str(tmp_path / "app")),
    ]


def test_a_link_in_an_open_place_is_there_already(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "link").symlink_to("app")

    assert showing(tmp_path / "link", []) == [Shown(path=str(tmp_path / "app"))]


def test_a_resolver_file_that_is_a_link_into_run_is_shown(own_host, tmp_path, monkeypatch):
    real = tmp_path / "stub-resolv.conf"
    real.touch()
    (tmp_path / "resolv.conf").symlink_to(real)
    monkeypatch.setattr("escalation.sandbox.layout.RESOLVER", str(tmp_path / "resolv.conf"))

    assert Shown(path=str(real)) in sandbox_mounts(own_host.paths(), temporary_bytes=1)


def test_listening_sockets_are_found_and_abstract_ones_are_none(tmp_path):
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.bind(str(tmp_path / "a b.sock"))
        server.listen()
        abstract.bind("\0claudeops-test")
        abstract.listen()
        found = [mount.path for mount in hidden_sockets()]

    assert str(tmp_path / "a b.sock") in found
    assert all(path.startswith("/") for path in found)


def test_a_host_without_a_table_of_sockets_hides_the_known_ones_alone(monkeypatch):
    monkeypatch.setattr("escalation.sandbox.layout.UNIX_SOCKETS", Path("/nowhere"))

    assert hidden_sockets() == []


def test_without_a_home_the_sandbox_has_an_empty_directory_of_its_own(own_host):
    homes = [Path("/"), Path("/nonexistent")]

    assert [sandbox_home(own_host.paths(operator_home=home)) for home in homes] == [
        *("/run/claudeops/home", "/run/claudeops/home"),
    ]


def test_secrets_in_a_home_that_is_shown_as_a_whole_stay_hidden(own_host):
    home = own_host.root / "home"

    mounts = sandbox_mounts(own_host.paths(workdir=home), temporary_bytes=1)

    assert Hidden(path=os.path.join(home, ".ssh")) in mounts


@pytest.fixture
def private_to_another(own_host, monkeypatch) -> Path:
    """A directory that its owner has closed, seen by somebody else."""
    own_host.root.chmod(0o755)
    directory = own_host.root / "private"
    directory.mkdir(mode=0o700)
    (directory / "app").mkdir()
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    monkeypatch.setattr(os, "getgid", lambda: 12345)
    monkeypatch.setattr(os, "getgroups", list)
    return directory


def test_what_lies_in_somebodys_private_directory_is_neither_hidden_nor_shown(private_to_another):
    assert hiding([str(private_to_another / "app")]) == []
    assert showing(private_to_another / "app", []) == []
    assert hiding([str(private_to_another)]) == [Hidden(path=str(private_to_another))]


def test_reports_a_working_directory_that_cannot_be_shown(private_to_another):
    why = why_unreachable(private_to_another / "app")

    assert str(private_to_another) in why
    assert "Run Claude Ops as that user" in why
    assert why_unreachable(private_to_another) == ""
