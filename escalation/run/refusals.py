"""Commands that the CLI's own rules refused: the gate never saw them, so it is asked afterwards.

Each becomes a decision on record like any other: what a run wanted and was not given is shown on
its page, and says what more trust would have done.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from escalation.gate.decision import Decision, Verdict
from escalation.rooms.records import GateRecord
from sessions_app.reading import stream_shape as shape

BASH = "Bash"
RULE = "refused by the CLI's own rules"


class CliRefusals:
    def __init__(self, judge: Callable[[str], Decision], cwd: str) -> None:
        self._judge = judge
        self._cwd = cwd
        self._seen: set[str] = set()

    def in_line(self, line: Mapping[str, Any]) -> Iterator[GateRecord]:
        """Those of a result line, each once: a run may print several of them."""
        if line.get("type") != "result":
            return
        denials = line.get("permission_denials")
        for denial in map(shape.mapping, denials if isinstance(denials, list) else ()):
            command = shape.text(shape.mapping(denial.get("tool_input")).get("command"))
            name = shape.text(denial.get("tool_use_id"))
            if denial.get("tool_name") == BASH and command and name not in self._seen:
                self._seen.add(name)
                yield self._record(command)

    def _record(self, command: str) -> GateRecord:
        decision = self._judge(command)
        would = decision.allowed_from if decision.verdict == Verdict.DENY else 0
        return GateRecord(
            command=command,
            verdict=Verdict.DENY,
            rule=RULE,
            reason=decision.reason,
            doors=(),
            actions=decision.actions,
            changes=decision.changes,
            allowed_from=would,
            decision_ms=0,
            cwd=self._cwd,
            at=datetime.now(UTC),
            call=secrets.token_hex(4),
        )
