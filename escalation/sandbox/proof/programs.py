"""Programs of the simulated host, written out because sandboxes hide this code.

`ssh` reaches the simulated remote host over loopback and signs with the key in the ssh-agent. For
programs whose servers a proof does not have (`systemctl`, `psql`, `sudo`, …) there are stand-ins
that print their arguments and change nothing. `speak.py` is a hostile client of the command runner.
"""

from __future__ import annotations

import sys
from pathlib import Path

from escalation.command_policy.programs import SHIMS

REAL = frozenset(
    {
        *("arp", "curl", "df", "du", "findmnt", "free", "fuser", "getent", "iostat", "ip", "last"),
        *("hostname", "id", "ls", "stat", "tree"),
        *("lsblk", "lscpu", "lsipc", "lslocks", "lsmod", "lsns", "lsof", "mount", "mpstat"),
        *("netstat", "pgrep", "pidof", "pidstat", "pmap", "ps", "pstree", "pwdx", "route", "ss"),
        *("sysctl", "top", "umount", "uptime", "vmstat", "w", "wget", "who"),
    }
)
"""Shims behind which a proof runs the program of this host, if it needs no grant to change it."""
STAND_INS = SHIMS - REAL - {"ssh"}

_STAND_IN = """\
#!/bin/sh
echo "${0##*/} $*"
"""

_SSH = """\
import json, os, socket, struct, sys
VALUED = set("bBcDeEFIiJLlmOopQRSWw")


def packed(data):
    return struct.pack(">I", len(data)) + data


def ask_agent(message):
    agent = socket.socket(socket.AF_UNIX)
    agent.connect(os.environ["SSH_AUTH_SOCK"])
    agent.sendall(packed(message))
    stream = agent.makefile("rb")
    return stream.read(struct.unpack(">I", stream.read(4))[0])


def pieces(data):
    while data:
        size = struct.unpack(">I", data[:4])[0]
        yield data[4 : 4 + size]
        data = data[4 + size :]


def signed(challenge):
    # Messages 11 and 13 of the protocol: the keys of the agent, and a signature with one.
    try:
        keys = list(pieces(ask_agent(b"\\x0b")[5:]))[::2]
        for key in keys:
            answer = ask_agent(b"\\x0d" + packed(key) + packed(challenge) + b"\\0\\0\\0\\0")
            if answer[:1] == b"\\x0e":
                return list(pieces(next(pieces(answer[1:]))))[1].hex()
    except (OSError, KeyError, struct.error, IndexError, StopIteration):
        pass
    return ""


words = sys.argv[1:]
while words and words[0].startswith("-"):
    option = words.pop(0)
    if option == "--":
        break
    if option[-1:] in VALUED and words:
        words.pop(0)
if not words:
    sys.exit("usage: ssh destination [command]")
host = words.pop(0).rpartition("@")[2].removeprefix("ssh://").partition(":")[0]
if words[:1] == ["--"]:
    words.pop(0)
if host != "lighthouse":
    print(f"ssh: Could not resolve hostname {host}: Name or service not known", file=sys.stderr)
    sys.exit(255)
try:
    link = socket.create_connection(("127.0.0.1", PORT), timeout=5)
except OSError as error:
    print(f"ssh: connect to host {host} port 22: {error}", file=sys.stderr)
    sys.exit(255)
stream = link.makefile("r", errors="replace")
signature = signed(bytes.fromhex(stream.readline()))
command = " ".join(words)
# Clients such as git and scp wait for an answer before they end their input.
given = sys.stdin.read() if command == "cat" else ""
asked = {"signature": signature, "command": command, "input": given}
link.sendall((json.dumps(asked) + "\\n").encode())
answer = stream.read().partition("\\n")
print(answer[2], end="")
sys.exit(int(answer[0] or 255))
"""

_SPEAK = """\
import os, socket, sys

words, cwd, environment, raw = sys.argv[1:], os.getcwd(), [], None
descriptors = "0,1,2"
while words and words[0].startswith("--"):
    option = words.pop(0)
    if option == "--bytes":
        continue
    value = words.pop(0)
    if option == "--cwd":
        cwd = value
    elif option == "--env":
        environment.append(value)
    elif option == "--fds":
        descriptors = value
    elif option == "--raw":
        raw = value.encode().decode("unicode_escape").encode("latin-1")


def opened(name):
    if name.isdigit():
        return int(name)
    if name == "listen":
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        return listener.detach()
    try:
        return os.open(name, os.O_RDWR)
    except OSError:
        return os.open(name, os.O_RDONLY)


def encoded(word):
    if "--bytes" in sys.argv:
        try:
            return bytes.fromhex(word)
        except ValueError:
            pass
    return os.fsencode(word)


numbers = [opened(name) for name in descriptors.split(",") if name != "-"]
kind, body = words[:1] or ["exec"], b"\\0".join(map(encoded, words[1:]))
variables = b"\\0".join(map(os.fsencode, environment))
parts = (body, os.fsencode(cwd), variables)
sizes = " ".join(str(len(part)) for part in parts)
request = raw if raw is not None else f"{kind[0]} {sizes}\\n".encode() + b"".join(parts)
link = socket.socket(socket.AF_UNIX)
link.connect(SOCKET)
socket.send_fds(link, [request], numbers)
if raw is not None:
    link.shutdown(socket.SHUT_WR)
answer = link.makefile("rb").read()
first, _newline, message = answer.partition(b"\\n")
sys.stderr.buffer.write(message)
sys.exit(int((first.split() or [b"255"])[0]))
"""


def write_programs(directory: Path, *, port: int, socket: str) -> None:
    """Write all programs; `port` is that of the remote host, `socket` the one of the shims."""
    directory.mkdir(parents=True, exist_ok=True)
    for name in STAND_INS:
        write_program(directory / name, _STAND_IN)
    start = f"#!{system_python()} -IS\n"
    write_program(directory / "ssh", f"{start}PORT = {port}\n{_SSH}")
    write_program(directory / "speak.py", f"{start}SOCKET = {socket!r}\n{_SPEAK}")


def write_program(path: Path, text: str) -> None:
    """Write a program that everybody may run."""
    path.write_text(text)
    path.chmod(0o755)


def system_python() -> str:
    """Return the Python of the system: virtual environments are hidden in a sandbox."""
    system = Path("/usr/bin/python3")
    return str(system) if system.exists() else sys.executable
