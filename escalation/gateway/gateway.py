"""One run's way to the API: a token for this run alone, the tier's models, and the count."""

from __future__ import annotations

import hmac
import logging
import secrets
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from escalation.gateway.connections import Connections
from escalation.gateway.handler import GatewayHandler
from escalation.gateway.hang_up import HangUpWatch
from escalation.gateway.limits import Limits
from escalation.gateway.models import may_ask
from escalation.gateway.spending import Ledger, Spending
from escalation.gateway.upstream import Upstream

logger = logging.getLogger(__name__)
LAST_WORDS_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    base_url: str
    token: str = field(repr=False)
    variable: str
    no_proxy: str

    @property
    def environment(self) -> dict[str, str]:
        """What the CLI is given in place of the key and its address. An operator's proxy is not
        between the CLI and us."""
        return {
            "ANTHROPIC_BASE_URL": self.base_url,
            self.variable: self.token,
            "NO_PROXY": self.no_proxy,
            "no_proxy": self.no_proxy,
        }


class Gateway:
    """Threads of this process, on loopback. `spending`, `refused` and `limits` may be read at any
    moment, also after the end."""

    def __init__(
        self,
        upstream: Upstream,
        *,
        models: tuple[str, ...],
        objection: Callable[[Spending], str],
        ledger: Path,
    ) -> None:
        self.connections = Connections(upstream)
        self.ledger = Ledger(ledger)
        self.limits = Limits()
        self.refused = ""
        """Why the run was stopped between two requests; empty while it was not."""
        self._upstream = upstream
        self._models = models
        self._objection = objection
        self._token = secrets.token_urlsafe(32)

    def __repr__(self) -> str:
        return f"<Gateway for {', '.join(self._models)}>"

    @property
    def spending(self) -> Spending:
        return self.ledger.spending

    @contextmanager
    def serving(self) -> Iterator[Serving]:
        watch = HangUpWatch()
        server = _Server(self, watch)
        thread = threading.Thread(
            target=server.serve_forever, args=(0.05,), name="gateway", daemon=True
        )
        thread.start()
        try:
            yield Serving(
                base_url=f"http://127.0.0.1:{server.server_address[1]}",
                token=self._token,
                variable=self._upstream.variable,
                no_proxy=",".join(filter(None, (self._upstream.no_proxy, "127.0.0.1"))),
            )
        finally:
            _shut_down(server)
            server.server_close()
            server.cut_all()
            self.connections.close()
            watch.close()

    def is_ours(self, *credentials: str | None) -> bool:
        token = self._token.encode()
        offered = [(text or "").encode("utf-8", "replace") for text in credentials]
        return any([hmac.compare_digest(text, token) for text in offered])

    def objection_to(self, model: str) -> str:
        """Why this request may not be sent; empty if it may."""
        if not may_ask(model, self._models):
            return (
                f"The model {model[:200]!r} is not one of this tier's: {', '.join(self._models)}."
            )
        try:
            objection = self._objection(self.spending)
        except Exception:
            logger.exception("Whether a run may go on could not be asked")
            objection = "Whether this run may go on could not be checked."
        if objection:
            self.refused = self.refused or objection
        return objection


def _shut_down(server: _Server) -> None:
    """At once: it looks for its end only when somebody knocks, or twenty times a second."""
    stopping = threading.Thread(target=server.shutdown, daemon=True)
    stopping.start()
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", server.server_port), timeout=1).close()
    stopping.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, gateway: Gateway, watch: HangUpWatch) -> None:
        self.gateway = gateway
        self.watch = watch
        self._clients: set[socket.socket] = set()
        self._changed = threading.Condition()
        super().__init__(("127.0.0.1", 0), GatewayHandler)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return str(client_address[0]).startswith("127.")

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._clients.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._changed:
            self._clients.discard(request)
            self._changed.notify_all()
        super().shutdown_request(request)

    def cut_all(self) -> None:
        """Hang up on everybody; whoever was answered writes down what was seen of the answer."""
        with self._changed:
            for client in self._clients:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._clients, LAST_WORDS_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error, and an exception's text stays out of stderr."""
        logger.debug("A request to the gateway ended early", exc_info=True)
