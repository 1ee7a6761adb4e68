"""REQ-8: the variable of the operator, from the environment to the decision and the events."""

from __future__ import annotations

import pytest

# Three quarters of the window that this CLI has for the next tier's model by default.
FILLS_THREE_QUARTERS = """
init()
emit(type="assistant", parent_tool_use_id=None, message={"id": "msg_1", "model": model,
    "usage": {"input_tokens": 750_000, "output_tokens": 1},
    "content": [{"type": "text", "text": "I looked."}]})
result(ESCALATE)
"""


@pytest.mark.parametrize(
    ("variable", "continued_by", "said"),
    [("0.70", "handoff", "70%"), ("0.755", "resume", "75.5%"), (None, "resume", "80%")],
)
def test_req8_the_variable_decides_and_is_logged(migrated, fake_cli, variable, continued_by, said):
    fake_cli.then(FILLS_THREE_QUARTERS).then("init(); say(); result(HEALTHY)")
    if variable:
        migrated.environment["CLAUDEOPS_RESUME_CONTEXT_THRESHOLD"] = variable

    ran = migrated.manage("run_cycle", "--verbose")

    _first, second = migrated.chain(1)
    assert (second["continued_by"], ran.returncode) == (continued_by, 0), ran.stderr
    assert f"context up to {said} (CLAUDEOPS_RESUME_CONTEXT_THRESHOLD)" in ran.stdout
    assert f"limit of {said}" in second["continued_why"]
