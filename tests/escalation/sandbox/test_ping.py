from __future__ import annotations

import os

import pytest

from escalation.sandbox import bubblewrap


@pytest.fixture
def groups(tmp_path, monkeypatch):
    path = tmp_path / "ping_group_range"
    monkeypatch.setattr(bubblewrap, "GROUPS_THAT_MAY_PING", path)
    return path


def test_it_works_where_the_kernel_lets_our_group(groups):
    groups.write_text(f"0\t{os.getegid()}\n")

    assert bubblewrap.ping_in_sandbox() == "works"


def test_where_it_does_not_it_says_what_to_set(groups):
    groups.write_text("1\t0\n")

    assert "net.ipv4.ping_group_range" in bubblewrap.ping_in_sandbox()


@pytest.mark.parametrize("text", [None, "", "many"])
def test_a_kernel_that_says_nothing_is_unknown(groups, text):
    if text is not None:
        groups.write_text(text)

    assert bubblewrap.ping_in_sandbox().startswith("unknown")
