"""The samples under docs/deploy."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from escalation.management.command_line import BY_NAME
from tests.documents import shell_blocks
from tests.tables import each_row

DEPLOY = Path(__file__).resolve().parent.parent / "docs" / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
# Each hides part of /proc or forbids a mount, so that bubblewrap makes no sandbox.
AGAINST_SANDBOXES = {
    *("RestrictNamespaces", "ProtectKernelTunables", "ProtectKernelLogs", "ProtectProc"),
    *("ProtectHostname", "PrivateDevices", "ProtectControlGroups", "SystemCallFilter"),
}


def service(name: str) -> configparser.SectionProxy:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
    unit.read_string((DEPLOY / name).read_text())
    return unit["Service"]


def test_the_units_are_found():
    assert [unit.name for unit in UNITS] == ["claudeops-web.service", "claudeops-worker.service"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_has_its_own_user_and_signals_only_the_main_process(unit):
    told = service(unit.name)

    assert told["User"] == "claudeops"
    assert told["KillMode"] == "mixed"
    assert told["UMask"] == "0077"
    assert told["StateDirectoryMode"] == "0700"


def test_the_worker_may_build_sandboxes():
    assert AGAINST_SANDBOXES & set(service("claudeops-worker.service")) == set()


def test_the_web_server_has_minimal_rights():
    told = service("claudeops-web.service")

    assert (told["ProtectSystem"], told["NoNewPrivileges"]) == ("strict", "yes")
    assert told["CapabilityBoundingSet"] == ""


def test_every_sample_is_listed_on_the_page():
    page = (DEPLOY / "README.md").read_text()
    samples = {path.name for path in DEPLOY.iterdir()} - {"README.md"}

    assert {name for name in samples if f"({name})" not in page} == set()


def test_the_steps_copy_every_unit_and_the_command_before_they_start_the_services():
    steps = "".join(shell_blocks((DEPLOY / "README.md").read_text()))
    before, _start, _after = steps.partition("systemctl enable --now")

    assert "install -m 644 docs/deploy/claudeops-*.service /etc/systemd/system/" in before
    assert "install -m 755 docs/deploy/claudeops /usr/local/bin/claudeops" in before


@each_row("name", ["compose.yaml", "nginx.conf", "README.md"])
def test_the_address_in_notifications_is_set(name):
    assert "CLAUDEOPS_URL" in (DEPLOY / name).read_text()


@each_row("path", sorted(DEPLOY.iterdir()), ids=lambda path: path.name)
def test_every_command_in_a_sample_is_one_of_ours(path):
    text = path.read_text()
    called = re.findall(r'(?:/bin/claudeops |"claudeops", ")(\w+)', text)

    assert [name for name in called if name not in BY_NAME] == []


if shutil.which("systemd-analyze"):

    @pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
    def test_systemd_understands_the_unit(unit, tmp_path):
        """All but the program, which is not installed on this machine."""
        copy = tmp_path / unit.name
        copy.write_text(re.sub(r"/opt/claudeops/bin/claudeops", sys.executable, unit.read_text()))

        verified = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(copy)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

        assert (verified.stdout + verified.stderr, verified.returncode) == ("", 0)
