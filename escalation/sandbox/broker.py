"""Base of the brokers, which judge each request of a sandbox before it reaches a resource.

Each connection carries one request and one decision: every answer closes the connection, so no
second request can follow an allowed one. Requests are parsed and written again for the resource.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

import h11

logger = logging.getLogger(__name__)
Headers = list[tuple[bytes, bytes]]
PIECE_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
MAX_HEAD_BYTES = 128 * 1024
MAX_JUDGED_BYTES = 4 * 1024 * 1024
MOST_CONNECTIONS = 128
# A body that is passed on as it arrives, such as that of an image: between two pieces, in all.
PAUSE_SECONDS = 60.0
UPLOAD_SECONDS = 3600.0

# Temporary shortages: the next client may succeed.
PASSING_FAULTS = (
    *(errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM),
    *(errno.ECONNABORTED, errno.EINTR),
)
LENGTHS = {b"transfer-encoding", b"content-length"}
OF_ONE_CONNECTION = {
    *(b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"expect"),
    *(b"proxy-connection", b"proxy-authorization", b"proxy-authenticate"),
}


class Refused(Exception):
    """The request is answered with this status and message, and not passed on."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# The shell ends with its input, also if this process is killed, and then ends the program. It has
# no output itself: the output ends if the program cannot start.
COMPANION = '"$@" </dev/null & exec >&- 2>&-; read -r _line; kill "$!"; wait'


@contextmanager
def companion(argv: list[str], directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Run a program outside the sandboxes for the block; it prints a line when it is ready.

    Raise ChildProcessError with what it complains about if it does not get ready.
    """
    with (
        TemporaryFile() as complaints,
        subprocess.Popen(
            ["/bin/sh", "-c", COMPANION, "sh", *argv],
            cwd=directory,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,
        ) as process,
    ):
        assert process.stdout
        if not process.stdout.readline():
            complaints.seek(0)
            text = complaints.read(2000).decode(errors="replace").strip()
            raise ChildProcessError(f"{argv[0]} did not start: {text or 'no reason given'}")
        yield
        # Leaving `process` closes its input, which ends it, and waits for it.


@contextmanager
def serving_connections(
    listener: socket.socket,
    serve: Callable[[socket.socket], None],
    most: int = MOST_CONNECTIONS,
) -> Iterator[None]:
    """Call `serve` in a thread for each client in the block; then close listener and connections.

    `most` clients are served at once; others wait in the queue of the listener. The listener may
    belong to another network namespace.
    """
    connections = _Connections(listener, serve, most)
    thread = threading.Thread(target=connections.accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        connections.stop()
        thread.join()
        connections.cut_all()
        listener.close()


class _Connections:
    def __init__(
        self, listener: socket.socket, serve: Callable[[socket.socket], None], most: int
    ) -> None:
        self._listener = listener
        self._serve = serve
        self._most = most
        self._changed = threading.Condition()
        self._stopping = False
        self._sockets: set[socket.socket] = set()

    def accept(self) -> None:
        while self._wait_for_slot():
            try:
                client, _address = self._listener.accept()
            except OSError as problem:
                if problem.errno not in PASSING_FAULTS:
                    return
                time.sleep(0.05)
                continue
            with self._changed:
                self._sockets.add(client)
            try:
                threading.Thread(target=self._serve_one, args=(client,), daemon=True).start()
            except RuntimeError:
                self._forget(client)

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)

    def cut_all(self) -> None:
        with self._changed:
            for client in self._sockets:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not self._sockets, 5)

    def _wait_for_slot(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping or len(self._sockets) < self._most)
            return not self._stopping

    def _serve_one(self, client: socket.socket) -> None:
        try:
            self._serve(client)
        except (OSError, h11.ProtocolError) as problem:
            logger.debug("A request of a sandbox ended early: %s", problem)
        except Exception:
            logger.exception("Could not decide on a request of a sandbox; it was not passed on")
        finally:
            self._forget(client)

    def _forget(self, client: socket.socket) -> None:
        client.close()
        with self._changed:
            self._sockets.discard(client)
            self._changed.notify_all()


NO_ANSWER = 502
"""Stands for the status of an answer that did not arrive."""


class Exchange:
    """Reads the one request of a connection; a subclass judges it and passes it on."""

    def __init__(self, client: socket.socket, head_seconds: float = HEAD_SECONDS) -> None:
        self._client = client
        self._wire = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._until = time.monotonic() + head_seconds
        self._is_head = False
        self.status = 0
        """The status of the answer; 0 before it has begun."""

    def answer(self) -> None:
        try:
            request = self._next()
            if isinstance(request, h11.Request):
                self._is_head = request.method == b"HEAD"
                if names_of(request) >= LENGTHS:
                    raise Refused(400, "The request states its length twice.")
                self.handle(request)
        except Refused as refusal:
            self._refuse(refusal)

    def handle(self, request: h11.Request) -> None:
        """Judge the request and relay it; raise Refused if it is not passed on."""
        raise NotImplementedError

    def refusal_content(self, refusal: Refused) -> tuple[bytes, bytes]:
        """Return content type and content of a refusal, so that clients print its message."""
        return b"text/plain; charset=utf-8", f"{refusal}\n".encode()

    def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Return the next event of the request, which must arrive within the time for its head."""
        try:
            while (event := self._wire.next_event()) is h11.NEED_DATA:
                left = self._until - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                self._client.settimeout(left)
                self._wire.receive_data(self._client.recv(PIECE_BYTES))
        except TimeoutError:
            raise Refused(408, "The request did not arrive in time.") from None
        except h11.RemoteProtocolError as problem:
            raise Refused(
                problem.error_status_hint, f"The request cannot be read: {problem}."
            ) from None
        return event

    def _body(self, most: int = MAX_JUDGED_BYTES) -> bytes:
        """Return the whole body, for a decision that depends on it."""
        self._continue_body()
        content = bytearray()
        while isinstance(event := self._next(), h11.Data):
            content += event.data
            if len(content) > most:
                raise Refused(413, "The body is too long.")
        if not isinstance(event, h11.EndOfMessage):
            raise Refused(400, "The body ends too early.")
        return bytes(content)

    def _has_left(self) -> bool:
        """Return whether the client has disconnected, after a decision that took long."""
        self._client.setblocking(False)
        try:
            return not self._client.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def _continue_body(self) -> None:
        """Ask for the body of a client that waits to be asked."""
        if self._wire.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=100, headers=[], reason=b"Continue")
            self._client.sendall(self._wire.send(go_on) or b"")

    def _relay(self, relay: Relay) -> None:
        """Run a relay; an invalid answer becomes a refusal as long as nothing was passed on."""
        try:
            try:
                relay.run()
            finally:
                self.status = relay.status
        except (OSError, h11.RemoteProtocolError) as problem:
            if relay.is_answering:
                raise
            if self._wire.their_state is h11.ERROR:
                raise Refused(400, f"The request cannot be read: {problem}.") from None
            status = 504 if isinstance(problem, TimeoutError) else 502
            raise Refused(status, f"The server gave no valid answer: {problem}.") from None

    @contextmanager
    def _reporting(self, report: Callable[[int], None]) -> Iterator[None]:
        """Report the status with which a request is answered that the block passes on."""
        status = 0
        try:
            yield
        except Refused as refusal:
            status = refusal.status
            raise
        finally:
            report(status or self.status or NO_ANSWER)

    def _refuse(self, refusal: Refused) -> None:
        kind, content = self.refusal_content(refusal)
        self._respond(refusal.status, kind, content, seconds=2)
        self._client.shutdown(socket.SHUT_WR)
        self._discard()

    def _respond(self, status: int, kind: bytes, content: bytes, *, seconds: float) -> None:
        headers: Headers = [
            (b"content-type", kind),
            (b"content-length", str(len(content)).encode()),
            (b"connection", b"close"),
        ]
        self.status = status
        sent = self._wire.send(h11.Response(status_code=status, headers=headers)) or b""
        if not self._is_head:
            sent += self._wire.send(h11.Data(data=content)) or b""
        self._client.settimeout(seconds)
        self._client.sendall(sent)

    def _discard(self) -> None:
        """Read on for a moment: a client that still sends would not read the answer."""
        for _piece in range(256):
            if not self._client.recv(PIECE_BYTES):
                return


def names_of(message: h11.Request | h11.Response) -> set[bytes]:
    return {name for name, _value in message.headers}


def end_to_end(message: h11.Request | h11.Response, without: set[bytes]) -> Headers:
    """Return the headers that are not of one connection alone, and not in `without`."""
    listed = b",".join(value for name, value in message.headers if name == b"connection")
    of_connection = {name.strip().lower() for name in listed.split(b",")} - LENGTHS
    left_out = OF_ONE_CONNECTION | of_connection | without
    written = message.headers.raw_items()
    return [(name, value) for name, value in written if name.lower() not in left_out]


class Relay:
    """Passes one allowed request upstream and its answer back, as both arrive.

    Logs, events and terminals last for hours, so neither side waits for the other: data of one is
    written to the other before more is read. `idle_seconds` ends a relay in which nothing moves.
    """

    def __init__(
        self,
        client: socket.socket,
        client_wire: h11.Connection,
        upstream: socket.socket,
        idle_seconds: float | None = None,
    ) -> None:
        self._client = client
        self._upstream = upstream
        self._client_wire = client_wire
        self._upstream_wire = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._idle_ms = None if idle_seconds is None else idle_seconds * 1000
        self._to_client = bytearray()
        self._to_upstream = bytearray()
        # Set once the connection is a terminal: bytes in both directions.
        self._raw = False
        # The whole request, or all input of the terminal, has been read.
        self._client_ended = False
        self._answered = False
        self.status = 0
        """The status of the answer; 0 before it has begun."""
        self._upload_until = time.monotonic() + UPLOAD_SECONDS

    @property
    def is_answering(self) -> bool:
        """Return whether the answer has begun, so that it cannot be replaced by a refusal."""
        return self._client_wire.our_state is not h11.SEND_RESPONSE

    def ask(self, method: str, target: str, headers: Headers, body: bytes | None) -> None:
        """Send the request; without a body it is still to be read from the client."""
        request = h11.Request(method=method, target=target, headers=headers)
        self._to_upstream += self._upstream_wire.send(request) or b""
        if body is None:
            self._read_request()
        else:
            self._to_upstream += self._upstream_wire.send(h11.Data(data=body)) or b""
            self._end_request()

    def tunnel(self) -> None:
        """Accept a CONNECT request that was read to its end: bytes follow in both directions."""
        accepted = h11.Response(status_code=200, headers=[], reason=b"Connection established")
        self._to_client += self._client_wire.send(accepted) or b""
        self._become_raw()

    def run(self) -> None:
        """Pass data until the answer is delivered; raise if a side disconnects."""
        self._client.setblocking(False)
        self._upstream.setblocking(False)
        while not self._answered or self._to_client:
            waiting = select.poll()
            input_ended = self._raw and self._client_ended
            reads_client = not self._to_upstream and not input_ended
            reads_upstream = not self._answered and not self._to_client
            for connection, wanted in (
                (self._client, self._wanted(reads_client, self._to_client)),
                (self._upstream, self._wanted(reads_upstream, self._to_upstream)),
            ):
                # An unused side is left out, or poll would report its end repeatedly; but a
                # client whose input has ended may still disconnect.
                if wanted or (connection is self._client and input_ended):
                    waiting.register(connection, wanted)
            ready = waiting.poll(self._patience_ms(reads_client))
            if not ready:
                raise TimeoutError("nothing was sent for too long")
            for descriptor, events in ready:
                self._step(descriptor == self._client.fileno(), events)

    def _patience_ms(self, reads_client: bool) -> float | None:
        """Return how long to wait; the rest of a request is not waited for like an answer."""
        if self._raw or self._client_ended or not reads_client:
            return self._idle_ms
        left = min(PAUSE_SECONDS, self._upload_until - time.monotonic())
        return max(0.0, left) * 1000

    def _wanted(self, reading: bool, to_write: bytearray) -> int:
        return (select.POLLIN if reading else 0) | (select.POLLOUT if to_write else 0)

    def _step(self, is_client: bool, events: int) -> None:
        if events & select.POLLOUT:
            connection = self._client if is_client else self._upstream
            waiting = self._to_client if is_client else self._to_upstream
            del waiting[: connection.send(waiting)]
            self._pass_end_on()
        if events & ~select.POLLOUT:
            if is_client:
                if self._raw and self._client_ended:
                    raise ConnectionAbortedError("the client has disconnected")
                self._read_client(self._client.recv(PIECE_BYTES))
            elif not self._to_client:
                self._read_upstream(self._upstream.recv(PIECE_BYTES))

    def _read_client(self, data: bytes) -> None:
        if self._raw:
            self._to_upstream += data
            self._client_ended = not data
            self._pass_end_on()
        elif not self._client_ended:
            self._client_wire.receive_data(data)
            self._read_request()
        elif not data:
            raise ConnectionAbortedError("the client has disconnected")

    def _read_request(self) -> None:
        """Read the request; data after its end is ignored."""
        while not self._client_ended:
            event = self._client_wire.next_event()
            if isinstance(event, h11.Data):
                self._to_upstream += self._upstream_wire.send(event) or b""
            elif isinstance(event, h11.EndOfMessage):
                self._end_request()
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionAbortedError("the client has disconnected")
            else:
                return

    def _end_request(self) -> None:
        self._to_upstream += self._upstream_wire.send(h11.EndOfMessage()) or b""
        self._client_ended = True

    def _read_upstream(self, data: bytes) -> None:
        if self._raw:
            self._to_client += data
            self._answered = not data
            return
        self._upstream_wire.receive_data(data)
        while not self._raw and not self._answered:
            event = self._upstream_wire.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.InformationalResponse):
                self._switch(event)
            elif isinstance(event, h11.Response):
                self.status = event.status_code
                self._to_client += self._client_wire.send(_closing(event)) or b""
            elif isinstance(event, h11.Data):
                self._to_client += self._client_wire.send(event) or b""
            elif isinstance(event, h11.EndOfMessage):
                self._to_client += self._client_wire.send(h11.EndOfMessage()) or b""
                self._answered = True

    def _switch(self, event: h11.InformationalResponse) -> None:
        """Become a terminal after status 101; other informational answers are not passed on."""
        if event.status_code != 101:
            return
        self.status = event.status_code
        self._to_client += self._client_wire.send(event) or b""
        self._to_client += self._upstream_wire.trailing_data[0]
        self._become_raw()

    def _become_raw(self) -> None:
        self._to_upstream += self._client_wire.trailing_data[0]
        self._raw, self._client_ended = True, False

    def _pass_end_on(self) -> None:
        """Pass the end of the terminal input on; the output continues."""
        if self._raw and self._client_ended and not self._to_upstream:
            with suppress(OSError):
                self._upstream.shutdown(socket.SHUT_WR)


def _closing(answer: h11.Response) -> h11.Response:
    return h11.Response(
        status_code=answer.status_code,
        reason=answer.reason,
        headers=[*end_to_end(answer, set()), (b"connection", b"close")],
    )
