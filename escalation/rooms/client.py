"""The program in CLAUDE_CODE_SHELL_PREFIX: hands a command to the tool runner and waits for it.

It is written into each run's directory, because the CLI's room shows nothing of this code. It
starts for every command, so it imports only what is built into the interpreter: `json` and
`socket` alone would take longer than all the rest.

A request is a line with the lengths of the shell text and of the working directory, then both; the
first byte carries the descriptors of stdout and stderr. Later bytes are numbers of signals. The
answer is a line with the exit code and the length of a message for stderr, then the message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from escalation.rooms.place import CLIENT_NAME, SOCKET_NAME

LONGEST_SHEBANG = 120

PROGRAM = '''\
import _signal, _socket, posix, sys

HERE = {here!r}
GONE = b"The tool runner is gone: the command did not run, or its end is not known.\\n"


def refuse(words):
    posix.write(2, words)
    posix._exit(126)


def lines_of(connection):
    """The answer, or what there is of it."""
    answer = b""
    while True:
        try:
            piece = connection.recv(65536)
        except OSError:
            return answer
        if not piece:
            return answer
        answer += piece


def main():
    if len(sys.argv) != 2:
        refuse(b"The tool runner takes one command.\\n")
    text = sys.argv[1].encode(sys.getfilesystemencoding(), "surrogateescape")
    try:
        directory = posix.getcwdb()
    except OSError:
        refuse(b"The working directory is gone.\\n")
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # By a descriptor: a socket's address has room for 107 bytes, a path may be longer.
        place = posix.open(HERE, posix.O_RDONLY | posix.O_DIRECTORY)
        connection.connect("/proc/self/fd/%d/{socket}" % place)
    except OSError:
        refuse(GONE)

    def pass_on(number, frame):
        try:
            connection.send(bytes([number]))
        except OSError:
            pass

    request = b"%d %d\\n" % (len(text), len(directory)) + text + directory
    # Two descriptors as the C array of int that they travel in.
    descriptors = (1).to_bytes(4, sys.byteorder) + (2).to_bytes(4, sys.byteorder)
    try:
        sent = connection.sendmsg(
            [request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, descriptors)]
        )
        connection.sendall(request[sent:])
    except OSError:
        pass  # refused before it was read: the answer says why
    for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
        _signal.signal(number, pass_on)
    first, newline, message = lines_of(connection).partition(b"\\n")
    words = first.split()
    if not newline or len(words) != 2:
        refuse(GONE)
    while message:
        message = message[posix.write(2, message):]
    posix._exit(int(words[0]))


main()
'''


def write_client(directory: Path) -> Path:
    """Put the program into the directory of a run, where its socket will be, too."""
    directory = Path(os.path.realpath(directory))
    program = directory / CLIENT_NAME
    text = PROGRAM.format(here=str(directory), socket=SOCKET_NAME)
    program.unlink(missing_ok=True)
    program.write_text(_start_line(base_python()) + text)
    program.chmod(0o500)
    return program


def base_python() -> Path:
    """The interpreter outside of any virtual environment: those are hidden from rooms."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = Path(sys.base_prefix) / "bin" / version
    return python if python.exists() else Path(os.path.realpath(sys.executable))


def _start_line(python: Path) -> str:
    """`-IS`: no variable and no module of anybody's is read. A first line can hold no blanks."""
    if " " not in str(python) and len(str(python)) < LONGEST_SHEBANG:
        return f"#!{python} -IS\n"
    quoted = str(python).replace("'", "'\"'\"'")
    return f"#!/bin/sh\n'''exec' '{quoted}' -IS \"$0\" \"$@\"\n' '''\n"
