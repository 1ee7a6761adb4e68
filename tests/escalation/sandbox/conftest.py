from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator

import pytest

from tests.escalation.sandbox.run_paths import Host, new_host, people


@pytest.fixture(params=people())
def host(request, monkeypatch) -> Iterator[Host]:
    """Run the test once as each of these users."""
    if request.param != pwd.getpwuid(os.getuid()).pw_name:
        # Other users may not be able to read root's Python.
        monkeypatch.setattr(sys, "base_prefix", "/usr")
        person = pwd.getpwnam(request.param)
        monkeypatch.setattr(os, "getuid", lambda: person.pw_uid)
        monkeypatch.setattr(os, "getgid", lambda: person.pw_gid)
        monkeypatch.setattr(os, "getgroups", list)
    with new_host(request.param) as made:
        yield made


@pytest.fixture
def own_host() -> Iterator[Host]:
    with new_host(pwd.getpwuid(os.getuid()).pw_name) as made:
        yield made
