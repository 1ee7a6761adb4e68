"""Shifts the clock of all Python processes of a simulated host.

The kernel has one clock for all namespaces, so nothing less tells two hosts on one machine apart.
What waits (`time.monotonic`) goes on as before, as on a real host with a wrong clock.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import time_machine

AHEAD = timedelta(seconds=float(os.environ["CLOCK_AHEAD_SECONDS"]))
time_machine.travel(datetime.now(UTC) + AHEAD, tick=True).start()
