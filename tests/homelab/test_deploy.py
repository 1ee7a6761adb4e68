"""docs/deploy/README.md, typed on a home lab from its first step to the restored backup.

Every block of shell commands runs as it is written, in a checkout, as root. The lab has no network,
so that packages come from this machine: `pip` finds them in a directory, and `apt-get` checks that
the packages it is asked for were installed with the lab.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.homelab.lab import IMAGES, PROJECT, HomeLab

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1800)]

PAGE = PROJECT / "docs" / "deploy" / "README.md"
BLOCK = re.compile(
    r"^## (?P<section>[^\n]+)$|^```sh\n(?P<block>.*?)^```$", re.MULTILINE | re.DOTALL
)

APT_GET = """#!/bin/sh
[ "$1" = update ] && exit 0
shift
for name; do
    case $name in -*) continue ;; esac
    dpkg -s "$name" > /dev/null || exit 1
done
"""
CERTIFICATE = """
mkdir -p /etc/ssl/ops.example.org && cd /etc/ssl/ops.example.org
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ops.example.org \
    -addext subjectAltName=DNS:ops.example.org -keyout privkey.pem -out fullchain.pem
"""
THROUGH_THE_PROXY = (
    "curl -sS --retry 20 --retry-delay 1 --retry-all-errors --fail -o /dev/null -w '%{http_code}'"
    " --cacert /etc/ssl/ops.example.org/fullchain.pem"
    " --resolve ops.example.org:443:127.0.0.1 https://ops.example.org/readyz"
)
SESSIONS = "psql -At claudeops -c 'select count(*) from sessions'"


def blocks() -> dict[str, list[str]]:
    """Return the blocks of shell commands of the page, by section."""
    found: dict[str, list[str]] = {}
    section = ""
    for match in BLOCK.finditer(PAGE.read_text()):
        if match["section"]:
            section = match["section"]
        else:
            found.setdefault(section, []).append(match["block"])
    return found


@pytest.fixture(scope="module")
def packages() -> Path:
    """A directory with every package that the lock file names; the lab hides the host's /tmp."""
    directory = IMAGES.parent / "packages"
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input", "--require-hashes"]
    locked = ["-r", str(PROJECT / "requirements.lock"), "-d", str(directory)]
    subprocess.run([*pip, *locked], check=True, timeout=600)
    return directory


@pytest.fixture(scope="module")
def bare(lab: HomeLab, packages: Path) -> HomeLab:
    """A lab with the packages, a wheel in the checkout, and a certificate."""
    lab.run(["mkdir", "-p", "/srv/typed"])
    lab.run(["sh", "-c", "cat > /srv/typed/apt-get; chmod +x /srv/typed/*"], stdin=APT_GET)
    wheel = f"cd {PROJECT} && rm -rf dist && .venv/bin/hatchling build"
    for command in (wheel, CERTIFICATE):
        done = lab.run(["bash", "-euc", command])
        assert done.returncode == 0, done.stderr
    return lab


def typed(lab: HomeLab, packages: Path, block: str) -> str:
    """Run one block as root in the checkout, and return what it printed."""
    head = f"export PATH=/srv/typed:$PATH PIP_NO_INDEX=1 PIP_FIND_LINKS={packages}\ncd {PROJECT}\n"
    done = lab.run(["bash", "-eu", "-o", "pipefail"], stdin=head + block, seconds=900)
    assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def test_every_step_of_the_page_works_as_it_is_written(bare: HomeLab, packages: Path) -> None:
    sections = blocks()
    assert list(sections) == ["As services", "Upgrade", "Behind a proxy"]
    services = sections["As services"]
    printed = [typed(bare, packages, block) for block in services]
    assert "active (running)" in printed[-2]
    assert "first account" in printed[-2]
    ran = bare.run(["bash", "-c", SESSIONS], "claudeops").stdout.strip()
    assert int(ran) >= 2, "the drill of the page left no sessions in PostgreSQL"

    for block in sections["Behind a proxy"]:
        typed(bare, packages, block)
    assert typed(bare, packages, THROUGH_THE_PROXY) == "200"

    for block in sections["Upgrade"]:
        typed(bare, packages, block)
    assert typed(bare, packages, THROUGH_THE_PROXY) == "200"
    assert bare.run(["bash", "-c", SESSIONS], "claudeops").stdout.strip() == ran
