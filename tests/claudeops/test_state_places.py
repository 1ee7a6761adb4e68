from __future__ import annotations

from pathlib import Path

import pytest

from claudeops import state


def test_a_checkout_keeps_its_state_beside_the_code():
    assert state.state_directory({}, installed=False) == state.BASE_DIR / "state"
    assert state.env_file({}, installed=False) == state.BASE_DIR / ".env"


def test_an_installed_package_uses_the_directories_of_the_user(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ops")

    assert state.state_directory({}, installed=True) == Path("/home/ops/.local/share/claudeops")
    assert state.env_file({}, installed=True) == Path("/home/ops/.config/claudeops/.env")


def test_the_xdg_variables_change_the_directories():
    given = {"XDG_DATA_HOME": "/data", "XDG_CONFIG_HOME": "/etc/xdg"}

    assert state.state_directory(given, installed=True) == Path("/data/claudeops")
    assert state.env_file(given, installed=True) == Path("/etc/xdg/claudeops/.env")


def test_a_relative_xdg_variable_is_ignored(monkeypatch):
    monkeypatch.setenv("HOME", "/home/ops")
    given = {"XDG_DATA_HOME": "data"}

    assert state.state_directory(given, installed=True) == Path("/home/ops/.local/share/claudeops")


@pytest.mark.parametrize("installed", [True, False])
def test_a_settings_file_can_be_named(installed):
    given = {"CLAUDEOPS_ENV_FILE": "/etc/claudeops/env"}

    assert state.env_file(given, installed=installed) == Path("/etc/claudeops/env")
