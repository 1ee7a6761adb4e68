"""PostgreSQL backend that reconnects outside of requests.

Django tests a connection at the start of a request. A worker has no requests: after a restart of
the server, all of its queries would fail.
"""

from __future__ import annotations

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    def ensure_connection(self) -> None:
        """Reconnect after a query found the server gone."""
        if self.connection is not None and self.connection.closed and not self.in_atomic_block:
            self.close()
        super().ensure_connection()
