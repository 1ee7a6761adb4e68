"""Tell somebody outside that a cycle has ended, healthchecks.io style.

The ping is what an outside monitor misses when this whole machine is gone.
"""

from __future__ import annotations

import http.client
import logging
import urllib.error
import urllib.request

from django.conf import settings

from sessions_app.models import Cycle

logger = logging.getLogger(__name__)

PATIENCE_SECONDS = 10


def ping(cycle: Cycle) -> None:
    """A ping that fails is logged: it must not change what the cycle was."""
    address = settings.CLAUDEOPS_PING_URL
    if not address or cycle.drill:
        return
    if cycle.outcome not in Cycle.GOOD_OUTCOMES:
        address = address.rstrip("/") + "/fail"
    try:
        # The address is the operator's own, and settings accept only http and https.
        request = urllib.request.Request(address, data=cycle.outcome_reason.encode())  # noqa: S310
        urllib.request.urlopen(request, timeout=PATIENCE_SECONDS).close()  # noqa: S310
    except (OSError, ValueError, http.client.HTTPException) as error:
        logger.warning("The ping after cycle %s failed: %s", cycle.pk, error)
