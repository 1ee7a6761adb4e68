"""Deliveries: stored before they are judged, and counted if they are refused.

A delivery is answered once it is stored. Its body is encrypted: redaction takes too long for the
sender to wait, and nothing from outside is stored unredacted in the clear.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from datetime import datetime
from typing import Any

from django.db.models import F, Max, Min
from django.utils import timezone

from escalation.alerts.snippets import sample
from sessions_app.models import Delivery, MetricTotal, RefusedDeliveries, Source
from sessions_app.redaction.encryption import encrypt

MOST_WAITING = 50_000
"""With more deliveries that wait, senders are told to try again later."""
LONGEST_KEY = 255


def store(source: Source, raw: bytes, body: Any, *, is_test: bool = False) -> Delivery:
    """Store a delivery, which the worker judges. `raw`: the bytes as they came."""
    return Delivery.objects.create(
        source=source,
        identity=hashlib.sha256(raw).hexdigest(),
        size=len(raw),
        is_test=is_test,
        encrypted_body=encrypt(json.dumps(body).encode()),
    )


def send_test(source: Source) -> Delivery:
    """Store a delivery as a sender of this kind writes it. It opens no incident."""
    body = sample(source.kind, timezone.now())
    return store(source, json.dumps(body).encode(), body, is_test=True)


def has_backlog() -> bool:
    """Return True if too many deliveries wait for a worker."""
    oldest = Delivery.objects.filter(judged_at=None).aggregate(first=Min("pk"))["first"]
    if oldest is None:
        return False
    newest = Delivery.objects.aggregate(last=Max("pk"))["last"] or oldest
    return bool(newest - oldest >= MOST_WAITING)


class RefusalCounter:
    """Counts refused requests in memory and stores the sums once a second, so that a flood of them
    costs no write each."""

    FLUSH_SECONDS = 1.0

    def __init__(self) -> None:
        self._counts: Counter[tuple[int | None, datetime, str]] = Counter()
        self._by_name: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        self._flushed_at = 0.0

    def add(self, source: Source | None, reason: str) -> None:
        minute = timezone.now().replace(second=0, microsecond=0)
        with self._lock:
            self._counts[source.pk if source else None, minute, reason] += 1
            self._by_name[source.name if source else "", reason] += 1
            is_due = time.monotonic() - self._flushed_at >= self.FLUSH_SECONDS
        if is_due:
            self.flush()

    def flush(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, Counter()
            by_name, self._by_name = self._by_name, Counter()
            self._flushed_at = time.monotonic()
        for (source, minute, reason), count in counts.items():
            key = {"source_id": source, "minute": minute, "reason": reason}
            rows = RefusedDeliveries.objects.filter(**key)
            if not rows.update(count=F("count") + count):
                RefusedDeliveries.objects.create(**key, count=count)
        for (name, reason), count in sorted(by_name.items()):
            MetricTotal.add(MetricTotal.Name.ALERTS, name, reason, count=count)


refusals = RefusalCounter()
