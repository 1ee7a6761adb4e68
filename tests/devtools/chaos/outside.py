"""Alerts that come while faults happen, and the target of a probe; without code of Claude Ops."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.devtools.chaos.evidence import ask
from tests.devtools.chaos.record import Row

ACCEPTED = 202
SEND_SECONDS = 0.5
TIMEOUT_SECONDS = 10.0
STORM, AT_ONCE = 200, 8
SERVICES = 30
SETTLING_SECONDS = 90.0
BROKEN_SECONDS = 30.0


@dataclass(slots=True)
class Outside:
    """A sender that repeats what was not accepted, and a file that a probe looks at."""

    address: str
    secret: str
    target: Path
    """The file of the probe."""
    attempts: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    _number: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextlib.contextmanager
    def sending(self) -> Iterator[None]:
        """Send one alert after the other in a thread."""
        thread = threading.Thread(target=self._send_on, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def storm(self) -> None:
        """Send many alerts at once."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(self._send, [self._body() for _alert in range(STORM)]))

    def break_target(self, record: str) -> list[str]:
        """Take the target of the probe away until the probe is down."""
        self.target.unlink(missing_ok=True)
        give_up = time.monotonic() + BROKEN_SECONDS
        try:
            while time.monotonic() < give_up:
                if self._probe(record)["state"] == "down":
                    return []
                time.sleep(0.5)
        finally:
            self.target.touch()
        return [f"the probe did not notice within {BROKEN_SECONDS:.0f} s that its target is gone"]

    def violations(self, record: str) -> list[str]:
        """Wait until the worker has caught up, and return what is not accounted for."""
        give_up = time.monotonic() + SETTLING_SECONDS
        while (found := [*self._deliveries(record), *self._of_probe(record)]) and (
            time.monotonic() < give_up
        ):
            time.sleep(1)
        return found

    def _deliveries(self, record: str) -> Iterator[str]:
        rows = ask(record, "SELECT identity, judged_at, verdict FROM sessions_app_delivery")
        stored = Counter(row["identity"] for row in rows)
        lost = sum((self.accepted - stored).values())
        if lost:
            yield f"{lost} deliveries that were accepted are lost"
        if unsent := sum((stored - self.attempts).values()):
            yield f"{unsent} deliveries are stored more often than they were sent"
        if waiting := sum(1 for row in rows if not row["judged_at"] or not row["verdict"]):
            yield f"{waiting} deliveries have no verdict"

    def _of_probe(self, record: str) -> Iterator[str]:
        if (state := self._probe(record)["state"]) != "up":
            yield f"the probe is {state} and its target is there"
        query = (
            "SELECT id FROM sessions_app_incident WHERE found_by = 'probe' AND state <> 'resolved'"
        )
        for row in ask(record, query):
            yield f"incident {row['id']} of the probe is open and its target is there"

    def _probe(self, record: str) -> Row:
        [row] = ask(record, "SELECT * FROM sessions_app_probe")
        return row

    def _send_on(self) -> None:
        body = self._body()
        while not self._stop.wait(SEND_SECONDS):
            if self._send(body):
                body = self._body()

    def _body(self) -> bytes:
        with self._lock:
            self._number += 1
            number = self._number
        alert = {
            "status": "firing",
            "labels": {"alertname": f"Alert{number}", "service": f"service-{number % SERVICES}"},
            "annotations": {"summary": f"alert {number}"},
            "startsAt": datetime.now(UTC).isoformat(),
            "fingerprint": f"{number:016x}",
        }
        group = {"version": "4", "groupKey": f"{number}", "status": "firing", "alerts": [alert]}
        return json.dumps(group).encode()

    def _send(self, body: bytes) -> bool:
        identity = hashlib.sha256(body).hexdigest()
        with self._lock:
            self.attempts[identity] += 1
        request = urllib.request.Request(
            self.address,
            data=body,
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {self.secret}"},
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
                is_accepted = answer.status == ACCEPTED
        except urllib.error.HTTPError as refused:
            refused.close()
            return False
        except (OSError, http.client.HTTPException):
            return False
        if is_accepted:
            with self._lock:
                self.accepted[identity] += 1
        return is_accepted
