"""CLAUDE-OPS.md and other configuration files in a working directory that may be written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from escalation.command_policy.grants import Grants
from escalation.sandbox.layout import MOST_COPIED_BYTES, copied_configuration
from tests.escalation.sandbox.run_paths import Host
from tests.escalation.sandbox.test_cli_sandbox import bash as cli_bash

ACCEPTED = "Never touch db.\n"
WAYS_TO_CHANGE = (
    "echo forged > {name}",
    "echo forged >> {name}",
    "rm -f {name}; echo forged > {name}",
    "echo forged > new; mv -f new {name}",
    "echo forged > new; ln -f new {name}",
    "ln -sf new {name}",
    "mv {name} moved; echo forged > {name}",
    "cp --remove-destination new {name}",
    "sed -i s/Never/Always/ {name}",
    "truncate -s 0 {name}",
    "chmod 777 {name} && echo forged > {name}",
    "mv ../system ../elsewhere",
    "python3 -c \"import os; open('new', 'w').close(); os.replace('new', '{name}')\"",
)


@pytest.fixture
def configured(host: Host) -> Host:
    """A host whose working directory holds configuration files."""
    workdir = host.root / "system"
    (workdir / ".claude/agents").mkdir(parents=True)
    for name in ("CLAUDE-OPS.md", "CLAUDE.md", ".mcp.json", ".claude/settings.json"):
        (workdir / name).write_text(ACCEPTED)
    (workdir / ".claude/agents/link.md").symlink_to("../../readme.txt")
    give_to_user(host, workdir)
    return host


def give_to_user(host: Host, directory: Path) -> None:
    owner = os.stat(host.root)
    for path in (directory, *directory.rglob("*")):
        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)


def in_both_sandboxes(host: Host, command: str, **changes) -> list[str]:
    """Run a command in a command sandbox and in the CLI sandbox of Tier 2; return the output."""
    copies = copied_configuration(host.root / "system", host.root / "state/run/c")
    give_to_user(host, copies)
    options = {"writable": True, "configuration": copies, **changes}
    return [
        host.bash(command, **options).stdout,
        cli_bash(host, command, **options).stdout,
    ]


@pytest.mark.parametrize("name", ["CLAUDE-OPS.md", "CLAUDE.md", ".mcp.json"])
def test_no_command_changes_a_configuration_file(configured, name):
    said = in_both_sandboxes(
        configured,
        "; ".join(f"({way.format(name=name)}) 2>/dev/null" for way in WAYS_TO_CHANGE)
        + f"; cat {name}",
    )

    file = configured.root / "system" / name
    assert said == [ACCEPTED, ACCEPTED]
    assert (file.read_text(), file.is_symlink()) == (ACCEPTED, False)


def test_no_command_changes_the_settings_of_the_cli(configured):
    said = in_both_sandboxes(
        configured,
        "(echo forged > .claude/settings.json; echo forged > .claude/settings.local.json; "
        "mv .claude moved; rm -rf .claude; mkdir .claude; echo forged > .claude/settings.json; "
        "ln -sfn /etc .claude) 2>/dev/null; cat .claude/settings.json; ls -A .claude; "
        "cat .claude/agents/link.md",
    )

    directory = configured.root / "system/.claude"
    assert said == [f"{ACCEPTED}agents\nsettings.json\nhello\n"] * 2
    assert (directory / "settings.json").read_text() == ACCEPTED
    assert sorted(os.listdir(directory)) == ["agents", "settings.json"]


def test_a_granted_directory_above_does_not_open_them(configured):
    grants = Grants(writable=(str(configured.root),))

    said = in_both_sandboxes(
        configured,
        "(echo forged > CLAUDE-OPS.md; cd ..; mv system moved) 2>/dev/null; cat CLAUDE-OPS.md",
        grants=grants,
    )

    assert said == [ACCEPTED, ACCEPTED]
    assert (configured.root / "system/CLAUDE-OPS.md").read_text() == ACCEPTED


def test_the_rest_of_the_working_directory_is_written_as_before(configured):
    in_both_sandboxes(configured, "echo x >> made; mkdir -p docs; echo x > docs/CLAUDE-OPS.md")

    assert (configured.root / "system/made").read_text() == "x\nx\n"
    assert (configured.root / "system/docs/CLAUDE-OPS.md").exists()


def test_a_file_that_became_a_link_after_the_start_shows_nothing_hidden(own_host):
    """A container or another watch may replace it while a session runs."""
    workdir = own_host.root / "system"
    (workdir / "CLAUDE-OPS.md").write_text(ACCEPTED)
    copies = copied_configuration(workdir, own_host.root / "state/run/c")
    (workdir / "CLAUDE-OPS.md").unlink()
    (workdir / "CLAUDE-OPS.md").symlink_to("../state/secret.txt")

    said = own_host.bash("cat CLAUDE-OPS.md", writable=True, configuration=copies)

    assert "the secret key" not in said.stdout


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    (tmp_path / "system").mkdir()
    return tmp_path / "system"


def copies_of(workdir: Path) -> list[str]:
    target = copied_configuration(workdir, workdir.parent / "copies")
    return sorted(str(path.relative_to(target)) for path in target.rglob("*"))


def test_other_files_are_not_copied(workdir):
    (workdir / "readme.txt").write_text("x")

    assert copies_of(workdir) == []


def test_a_link_and_a_pipe_are_not_copied(workdir):
    (workdir.parent / "secret").write_text("the key")
    (workdir / "CLAUDE-OPS.md").symlink_to(workdir.parent / "secret")
    (workdir / ".claude").symlink_to(workdir.parent)
    os.mkfifo(workdir / "CLAUDE.md")

    assert copies_of(workdir) == []


def test_links_in_a_directory_stay_links(workdir):
    (workdir / ".claude").mkdir()
    (workdir / ".claude/rules.md").symlink_to("/etc/hostname")

    assert copies_of(workdir) == [".claude", ".claude/rules.md"]
    assert os.readlink(workdir.parent / "copies/.claude/rules.md") == "/etc/hostname"


def test_copies_keep_content_and_permission_to_execute(workdir):
    (workdir / ".claude").mkdir(mode=0o555)
    (workdir / ".mcp.json").write_bytes(b"\xff\x00")
    (workdir / ".mcp.json").chmod(0o750)

    copies_of(workdir)

    copy = workdir.parent / "copies/.mcp.json"
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (b"\xff\x00", 0o750)
    assert (workdir.parent / "copies/.claude").stat().st_mode & 0o777 == 0o755


def test_what_is_too_large_or_too_deep_is_left_out_and_the_rest_copied(workdir, caplog):
    (workdir / "CLAUDE-OPS.md").write_text(ACCEPTED)
    with (workdir / "CLAUDE.md").open("wb") as file:
        file.truncate(MOST_COPIED_BYTES)
    (workdir / ".claude" / "/".join("d" * 40)).mkdir(parents=True)

    assert copies_of(workdir) == ["CLAUDE-OPS.md"]
    assert len(caplog.records) == 2


def test_copies_of_an_earlier_start_are_replaced(workdir):
    (workdir / "CLAUDE-OPS.md").write_text(ACCEPTED)
    copies_of(workdir)
    (workdir / "CLAUDE-OPS.md").unlink()

    assert copies_of(workdir) == []
