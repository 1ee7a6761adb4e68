"""What the gate decided, as events of the session.

The tool runner speaks from threads of its own; the record is written by the thread that reads the
run. Between the two is a queue.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue

from escalation.gate.decision import Verdict
from escalation.rooms.records import CommandEnd, GateRecord
from escalation.run.changes import RunChanges
from escalation.run.recorder import Recorder
from escalation.run.unguarded import UnguardedCommands

DONE = {
    Verdict.ALLOW: "Allowed",
    Verdict.CONTAIN: "Contained",
    Verdict.DENY: "Denied",
    Verdict.ASK: "Asked for",
}


class GateEvents:
    def __init__(
        self, recorder: Recorder, unguarded: UnguardedCommands, changes: RunChanges
    ) -> None:
        self._recorder = recorder
        self._changes = changes
        self._unguarded = unguarded
        self._waiting: SimpleQueue[tuple[GateRecord, CommandEnd | None]] = SimpleQueue()

    def on_decision(self, record: GateRecord) -> None:
        self._unguarded.decided(record.command)
        self._waiting.put((record, None))

    def on_end(self, record: GateRecord, end: CommandEnd) -> None:
        self._waiting.put((record, end))

    def refused(self, record: GateRecord) -> None:
        """What the CLI itself did not let through, told by the run's own thread."""
        self._waiting.put((record, None))

    def write(self) -> None:
        """What has come since the last time."""
        while True:
            try:
                record, end = self._waiting.get_nowait()
            except Empty:
                return
            if end is None:
                self._write_decision(record)
                self._changes.decided(record)
            else:
                self._write_end(record, end)
                self._changes.ended(record, end)

    def _write_decision(self, record: GateRecord) -> None:
        with_doors = f" with {', '.join(record.doors)}" if record.doors else ""
        why = f" ({record.rule})" if record.verdict != Verdict.ALLOW else ""
        self._recorder.note(
            "gate",
            f"{DONE[record.verdict]}{with_doors}{why}: {record.command}",
            "warning" if record.verdict == Verdict.DENY else "info",
            command=record.command,
            verdict=record.verdict.value,
            rule=record.rule,
            reason=record.reason,
            doors=list(record.doors),
            actions=list(record.actions),
            changes=list(record.changes),
            allowed_from=record.allowed_from,
            milliseconds=round(record.decision_ms, 2),
            call=record.call,
            cwd=record.cwd,
        )

    def _write_end(self, record: GateRecord, end: CommandEnd) -> None:
        if record.verdict == Verdict.DENY:
            return
        where = "on the host" if end.room == "host" else "in its room"
        self._recorder.note(
            "gate_end",
            f"Ended {where} with {end.exit_code}: {record.command}",
            command=record.command,
            exit_code=end.exit_code,
            call=record.call,
            milliseconds=round(end.run_ms, 1),
            room=end.room,
            has_run=end.has_run,
        )
