"""Django's PostgreSQL, for processes that live longer than a connection.

Django looks whether a connection still stands when a request begins. A worker has no requests: once
the server was restarted, every query of it would fail for ever on the connection that is gone.
"""

from __future__ import annotations

from django.db.backends.postgresql import base


class DatabaseWrapper(base.DatabaseWrapper):
    def ensure_connection(self) -> None:
        """The query that finds the server gone fails; the next one connects."""
        if self.connection is not None and self.connection.closed and not self.in_atomic_block:
            self.close()
        super().ensure_connection()
