"""The package: built, installed without the source tree, and run in an empty directory.

What it depends on is lent from this environment; the project itself comes from the wheel.
"""

from __future__ import annotations

import json
import os
import re
import site
import subprocess
import sys
import urllib.request
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from claudeops import __version__
from tests.system.conftest import PROJECT, free_port
from tests.system.test_up import read_until, stop

BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Package:
    python: Path
    home: Path
    empty: Path

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "CLAUDEOPS_PORT": str(free_port()),
        }

    @property
    def command(self) -> str:
        return str(self.python.with_name("claudeops"))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.command, *words],
            cwd=self.empty,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True, timeout=120)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def package(wheel: Path, tmp_path_factory) -> Package:
    place = tmp_path_factory.mktemp("package")
    made = [sys.executable, "-m", "venv", "--without-pip", str(place / "venv")]
    subprocess.run(made, check=True, timeout=120)
    python = place / "venv" / "bin" / "python"
    install = ["pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python)]
    subprocess.run([str(BIN / "uv"), *install, str(wheel)], check=True, timeout=120)
    (packages,) = (place / "venv").glob("lib/python*/site-packages")
    (packages / "lent.pth").write_text("\n".join(site.getsitepackages()))
    for name in ("home", "empty"):
        (place / name).mkdir()
    return Package(python, place / "home", place / "empty")


def test_the_wheel_contains_all_data_files(wheel: Path):
    inside = set(zipfile.ZipFile(wheel).namelist())
    places = {
        **{folder: folder for folder in ("claudeops", "escalation", "sessions_app")},
        "templates": "claudeops/templates",
        "prompts": "claudeops/prompts",
    }
    wanted = {
        f"{there}/{path.relative_to(PROJECT / here)}"
        for here, there in places.items()
        for path in (PROJECT / here).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert wanted - inside == set()
    assert [name for name in inside if name.startswith("tests/")] == []


def test_the_code_is_imported_from_the_package_with_its_version(package: Package):
    where = "import claudeops, escalation, sessions_app as s; print(s.__file__, claudeops.__file__)"
    found = subprocess.run(
        [str(package.python), "-c", where], cwd=package.empty, capture_output=True, text=True
    )

    assert str(PROJECT) not in found.stdout.replace(str(BIN), "")
    assert found.stdout.count(str(package.python.parents[1])) == 2
    assert package.run("--version").stdout == f"Claude Ops {__version__}\n"
    assert not re.search(r"^version *=", (PROJECT / "pyproject.toml").read_text(), re.MULTILINE)


def test_a_drill_of_three_tiers_runs_in_an_empty_directory(package: Package):
    ready = package.run("upgrade")
    played = package.run("drill", "three-tiers", "--json")

    assert ready.returncode == 0, ready.stderr
    assert played.returncode == 0, played.stderr
    chain = json.loads(played.stdout)
    assert [(run["tier"], run["continued_by"]) for run in chain] == [
        (1, "fresh"),
        (2, "resume"),
        (3, "resume"),
    ]
    assert chain[-1]["services"]
    assert list(package.empty.iterdir()) == []
    assert (package.home / ".local/share/claudeops/claudeops.sqlite3").is_file()


def test_up_serves_pages_and_files_from_the_package(package: Package):
    process = subprocess.Popen(
        [package.command, "up"],
        cwd=package.empty,
        env=package.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    said = read_until(process, "Stop ")
    address = re.findall(r"http://\S+", said)[0]

    page = urllib.request.urlopen(address + "login/").read().decode()
    style = urllib.request.urlopen(address + "static/web/claudeops.css")
    stop(process)

    assert "csrfmiddlewaretoken" in page
    assert style.status == 200
    assert ".config/claudeops/.env" in said
    assert process.returncode == 0


def test_a_settings_file_in_the_current_directory_is_not_read(package: Package):
    """It may be a watched system, in which an agent has written."""
    (package.empty / ".env").write_text("CLAUDEOPS_SANDBOX=off\n")
    try:
        shown = json.loads(package.run("config", "--set", "--json").stdout)
    finally:
        (package.empty / ".env").unlink()

    assert "CLAUDEOPS_SANDBOX" not in {entry["name"] for entry in shown}
