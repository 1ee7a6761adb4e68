"""Looks at a home lab at Tier 1 print what they print by hand, for root and for a user.

Each look of looks.txt runs by hand, through the command runner and its sandboxes, and by hand
again. A look that differs must say why.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.homelab.compare import Comparison, compared
from tests.homelab.lab import OPERATOR, PROJECT, HomeLab
from tests.homelab.play_looks import looks_in

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]

LOOKS = (Path(__file__).parent / "looks.txt").read_text()
MOST_DIFFERENT = 0.03


def played(lab: HomeLab, user: str) -> list[Comparison]:
    python = PROJECT / ".venv/bin/python"
    script = f"cd {PROJECT} && PYTHONDONTWRITEBYTECODE=1 exec {python} -m tests.homelab.play_looks"
    done = lab.run(["bash", "-c", script], user, stdin=LOOKS, seconds=3000)
    assert done.returncode == 0, done.stderr
    return [compared(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("user", ["root", OPERATOR])
def test_looks_at_tier_1_print_what_they_print_by_hand(lab: HomeLab, user: str) -> None:
    comparisons = played(lab, user)

    assert len(comparisons) == len(looks_in(LOOKS)) >= 200
    different = [one for one in comparisons if not one.is_same]
    report = "\n\n".join(f"$ {one.look}\n{one.difference}" for one in different)
    assert [one.look for one in different if not one.says_why] == [], report
    assert len(different) <= MOST_DIFFERENT * len(comparisons), report
