"""CLAUDE-OPS.md on the page of a watch: read, never written, and nothing that was not meant."""

from __future__ import annotations

import os

import pytest

from escalation.run.manifest import MANIFEST_LENGTH, accept_first
from escalation.web.watches import draft_for, house_rules
from tests.factories import WatchFactory

pytestmark = pytest.mark.django_db


@pytest.fixture
def watch(workdir):
    return WatchFactory(name="shop", workdir=str(workdir))


def test_house_rules_are_redacted_and_shortened(watch, workdir):
    key = "ghp_" + "a1B2" * 9
    (workdir / "CLAUDE-OPS.md").write_text(f"token {key}\n" + "x" * MANIFEST_LENGTH)
    accept_first(watch, by="ada")

    rules = house_rules(watch)

    assert key not in rules.text
    assert "[redacted" in rules.text
    assert rules.is_cut


def test_a_symbolic_link_out_of_the_directory_is_not_followed(watch, workdir, tmp_path):
    (tmp_path / "secret").write_text("the key")
    (workdir / "CLAUDE-OPS.md").symlink_to(tmp_path / "secret")

    rules = house_rules(watch)

    assert rules.current.found == ""
    assert "leads out of the directory" in rules.problem


def test_a_named_pipe_is_not_read(watch, workdir):
    os.mkfifo(workdir / "CLAUDE-OPS.md")

    assert "no ordinary file" in house_rules(watch).problem


def test_a_loop_of_symbolic_links_is_reported(watch, workdir):
    (workdir / "CLAUDE-OPS.md").symlink_to("CLAUDE-OPS.md")

    assert house_rules(watch).problem


def test_a_missing_directory_is_reported(tmp_path):
    watch = WatchFactory(workdir=str(tmp_path / "gone"))

    assert "cannot be read on this machine" in house_rules(watch).problem


def test_an_accepted_text_waits_for_nobody_where_the_file_cannot_be_read(watch, workdir, tmp_path):
    (workdir / "CLAUDE-OPS.md").write_text("Never touch db.")
    accept_first(watch, by="ada")
    watch.workdir = str(tmp_path / "gone")

    rules = house_rules(watch)

    assert (rules.text, rules.waits, rules.draft) == ("Never touch db.", False, "")


def test_braces_in_names_are_kept_in_the_draft():
    assert "# {shop}" in draft_for("{shop}", ["{web}"])
    assert "- {web}: what it does" in draft_for("{shop}", ["{web}"])
