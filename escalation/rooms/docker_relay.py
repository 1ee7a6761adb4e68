"""Carries one allowed request to a Docker engine and its answer back, as both come.

Logs, events and terminals last for hours and flow in both directions, so neither side may wait for
the other: what is read from one is written to the other before more is read.
"""

from __future__ import annotations

import select
import socket
from contextlib import suppress

import h11

PIECE_BYTES = 64 * 1024
Headers = list[tuple[bytes, bytes]]
OF_ONE_CONNECTION = {b"connection", b"keep-alive", b"proxy-connection", b"te", b"trailer"}


class Relay:
    def __init__(
        self, client: socket.socket, client_wire: h11.Connection, engine: socket.socket
    ) -> None:
        self._client = client
        self._engine = engine
        self._client_wire = client_wire
        self._engine_wire = h11.Connection(h11.CLIENT)
        self._to_client = bytearray()
        self._to_engine = bytearray()
        # A terminal by now: bytes both ways, and no more requests.
        self._raw = False
        # The whole request, or the client's part of the terminal, has been read.
        self._client_ended = False
        self._answered = False

    def ask(self, method: str, target: str, headers: Headers, body: bytes | None) -> None:
        """The body, or None where it is still to be read from the client."""
        request = h11.Request(method=method, target=target, headers=headers)
        self._to_engine += self._engine_wire.send(request) or b""
        if body is None:
            self._read_request()
        else:
            self._to_engine += self._engine_wire.send(h11.Data(data=body)) or b""
            self._end_request()

    def run(self) -> None:
        """Until the answer is delivered, or a side goes away; a fault of either is raised."""
        self._client.setblocking(False)
        self._engine.setblocking(False)
        while not self._answered or self._to_client:
            waiting = select.poll()
            input_ended = self._raw and self._client_ended
            hears_client = not self._to_engine and not input_ended
            hears_engine = not self._answered and not self._to_client
            for connection, wanted in (
                (self._client, self._wanted(hears_client, self._to_client)),
                (self._engine, self._wanted(hears_engine, self._to_engine)),
            ):
                # One that is not wanted is left out: its end would be told again and again. But
                # whose input has ended can only go away.
                if wanted or (connection is self._client and input_ended):
                    waiting.register(connection, wanted)
            for descriptor, events in waiting.poll():
                self._step(descriptor == self._client.fileno(), events)

    def _wanted(self, reading: bool, to_write: bytearray) -> int:
        return (select.POLLIN if reading else 0) | (select.POLLOUT if to_write else 0)

    def _step(self, is_client: bool, events: int) -> None:
        if events & select.POLLOUT:
            connection, waiting = (
                (self._client, self._to_client) if is_client else (self._engine, self._to_engine)
            )
            del waiting[: connection.send(waiting)]
            self._pass_end_on()
        if events & ~select.POLLOUT:
            if is_client:
                if self._raw and self._client_ended:
                    raise ConnectionAbortedError("the client has gone")
                self._hear_client(self._client.recv(PIECE_BYTES))
            elif not self._to_client:
                self._hear_engine(self._engine.recv(PIECE_BYTES))

    def _hear_client(self, data: bytes) -> None:
        if self._raw:
            self._to_engine += data
            self._client_ended = not data
            self._pass_end_on()
        elif not self._client_ended:
            self._client_wire.receive_data(data)
            self._read_request()
        elif not data:
            raise ConnectionAbortedError("the client has gone")

    def _read_request(self) -> None:
        """Anything after the request's end is not heard: one connection is one request."""
        while not self._client_ended:
            event = self._client_wire.next_event()
            if isinstance(event, h11.Data):
                self._to_engine += self._engine_wire.send(event) or b""
            elif isinstance(event, h11.EndOfMessage):
                self._end_request()
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionAbortedError("the client has gone")
            else:
                return

    def _end_request(self) -> None:
        self._to_engine += self._engine_wire.send(h11.EndOfMessage()) or b""
        self._client_ended = True

    def _hear_engine(self, data: bytes) -> None:
        if self._raw:
            self._to_client += data
            self._answered = not data
            return
        self._engine_wire.receive_data(data)
        while not self._raw and not self._answered:
            event = self._engine_wire.next_event()
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return
            if isinstance(event, h11.InformationalResponse):
                self._switch(event)
            elif isinstance(event, h11.Response):
                self._to_client += self._client_wire.send(_closing(event)) or b""
            elif isinstance(event, h11.Data):
                self._to_client += self._client_wire.send(event) or b""
            elif isinstance(event, h11.EndOfMessage):
                self._to_client += self._client_wire.send(h11.EndOfMessage()) or b""
                self._answered = True

    def _switch(self, event: h11.InformationalResponse) -> None:
        """Other words before the answer are between us and the engine."""
        if event.status_code != 101:
            return
        self._to_client += self._client_wire.send(event) or b""
        self._to_client += self._engine_wire.trailing_data[0]
        self._to_engine += self._client_wire.trailing_data[0]
        self._raw, self._client_ended = True, False

    def _pass_end_on(self) -> None:
        """A terminal's input ends, its output goes on."""
        if self._raw and self._client_ended and not self._to_engine:
            with suppress(OSError):
                self._engine.shutdown(socket.SHUT_WR)


def _closing(answer: h11.Response) -> h11.Response:
    kept = [(name, value) for name, value in answer.headers if name not in OF_ONE_CONNECTION]
    return h11.Response(
        status_code=answer.status_code,
        reason=answer.reason,
        headers=[*kept, (b"connection", b"close")],
    )
