"""One request of the client, as it comes over the socket, and the answer to it."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
import struct
from dataclasses import dataclass

LONGEST_REQUEST = 64 * 1024 * 1024
LONGEST_DIRECTORY = 4096
FIRST_LINE = re.compile(rb"(\d{1,10}) (\d{1,10})\n")
FIRST_LINE_BYTES = 32
DESCRIPTORS = 2
MOST_DESCRIPTORS = 16
PATIENCE_SECONDS = 30.0
# A directory's descriptor would be a way out of any room.
KINDS = (stat.S_ISREG, stat.S_ISFIFO, stat.S_ISSOCK, stat.S_ISCHR)


class BadRequest(Exception):
    """It is no request of our client; nothing of it may run."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolRequest:
    text: bytes
    cwd: str
    stdout: int
    stderr: int

    def close(self) -> None:
        _close([self.stdout, self.stderr])


def is_our_own(connection: socket.socket) -> bool:
    """Whether the other side runs under our own user."""
    credentials = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    _pid, uid, _gid = struct.unpack("3i", credentials)
    return bool(uid == os.getuid())


def read_request(connection: socket.socket) -> ToolRequest:
    connection.settimeout(PATIENCE_SECONDS)
    try:
        data, descriptors, flags, _address = socket.recv_fds(
            connection, 65536, MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
        )
    except OSError as error:
        raise BadRequest(f"the request did not come: {error}") from error
    try:
        # To its end, whatever is wrong with it: unread words would cut our answer off.
        text, directory = _read_body(connection, data)
        if flags & socket.MSG_CTRUNC or len(descriptors) != DESCRIPTORS:
            raise BadRequest("the request has not the two descriptors that it should have")
        if not all(_is_output(descriptor) for descriptor in descriptors):
            raise BadRequest("the request's descriptors are no outputs")
    except BaseException:
        _close(descriptors)
        raise
    return ToolRequest(
        text=text,
        cwd=directory.decode("utf-8", "surrogateescape"),
        stdout=descriptors[0],
        stderr=descriptors[1],
    )


def answer(connection: socket.socket, exit_code: int, message: str) -> None:
    """A client that is gone needs none."""
    words = f"{message.rstrip()}\n".encode("utf-8", "replace") if message else b""
    with contextlib.suppress(OSError):
        connection.settimeout(PATIENCE_SECONDS)
        connection.sendall(b"%d %d\n" % (exit_code, len(words)) + words)
        connection.shutdown(socket.SHUT_WR)


def _read_body(connection: socket.socket, data: bytes) -> tuple[bytes, bytes]:
    pieces = bytearray(data)
    while b"\n" not in pieces[:FIRST_LINE_BYTES] and len(pieces) < FIRST_LINE_BYTES:
        pieces += _more(connection)
    line = FIRST_LINE.match(pieces)
    if line is None:
        raise BadRequest("the request does not begin as it should")
    text_length, directory_length = int(line[1]), int(line[2])
    if text_length > LONGEST_REQUEST or directory_length > LONGEST_DIRECTORY:
        raise BadRequest("the request is too long")
    start = line.end()
    end = start + text_length + directory_length
    while len(pieces) < end:
        pieces += _more(connection)
    body = bytes(pieces[start:end])
    return body[:text_length], body[text_length:]


def _more(connection: socket.socket) -> bytes:
    try:
        data = connection.recv(1024 * 1024)
    except OSError as error:
        raise BadRequest(f"the request broke off: {error}") from error
    if not data:
        raise BadRequest("the request broke off")
    return data


def _is_output(descriptor: int) -> bool:
    mode = os.fstat(descriptor).st_mode
    return any(is_kind(mode) for is_kind in KINDS)


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
