"""The home lab of the proofs in this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.homelab.lab import HomeLab, home_lab


@pytest.fixture(scope="module")
def lab() -> Iterator[HomeLab]:
    """A lab for all tests of a file."""
    with home_lab() as booted:
        yield booted
