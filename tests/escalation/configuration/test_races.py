"""Several applications at once: one is carried out, the others see that their plan is stale."""

from __future__ import annotations

import pytest

from tests.escalation.contenders import CONTENDERS

pytestmark = pytest.mark.prove

FILE = """
from pathlib import Path
from escalation.configuration.apply import Actor, apply, planned
from escalation.configuration.files import read

name = f"race-{time.time_ns()}"
file = Path(os.environ["CLAUDEOPS_STATE_DIR"]) / f"{name}.toml"
file.write_text(
    f'[watches.{name}]\\ndirectory = "/srv"\\n'
    f'[watches.{name}.probes.web]\\nservice = "web"\\ntcp = "127.0.0.1:9"\\n'
)
found = read(file)
"""


def test_of_several_at_once_one_is_applied(contest):
    answers, seen = contest.race(
        setup=FILE,
        before="shown = planned(found, prune=False)",
        attempt="""
done = apply(found, by=Actor(name=str(number)), expected=shown.digest)
answer = [done.is_applied, done.is_stale, [str(mistake) for mistake in done.mistakes]]
""",
        look="""
seen = [
    Watch.objects.filter(name=name).count(),
    Probe.objects.filter(watch__name=name).count(),
    AppliedDeclaration.objects.filter(name=name).count(),
]
""",
    )

    assert sorted(answers) == [[False, True, []]] * (CONTENDERS - 1) + [[True, False, []]]
    assert seen == [1, 1, 1]
