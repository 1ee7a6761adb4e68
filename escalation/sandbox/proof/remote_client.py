"""A simulated `ssh` client that connects to the simulated remote host over loopback.

It is written out as a program, because it runs in a sandbox that hides this code.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PROGRAM = """\
#!/usr/bin/python3 -IS
import json, os, pwd, socket, sys
VALUED = set("bBcDeEFIiJLlmOopQRSWw")
HOME = os.path.expanduser("~")
def read(path):
    try:
        return open(path).read()
    except OSError:
        return ""
words, keys = sys.argv[1:], []
while words and words[0].startswith("-"):
    option = words.pop(0)
    if option[1:2] in VALUED and len(option) == 2 and words:
        value = words.pop(0)
        if option == "-i":
            keys.append(read(os.path.expanduser(value)))
if not words:
    sys.exit("usage: ssh destination [command]")
host = words.pop(0).rpartition("@")[2].removeprefix("ssh://")
if words[:1] == ["--"]:
    words.pop(0)
if host != "lighthouse":
    print(f"ssh: Could not resolve hostname {host}: Name or service not known", file=sys.stderr)
    sys.exit(255)
for home in (HOME, pwd.getpwuid(os.getuid()).pw_dir, OPERATOR_HOME):
    keys.append(read(os.path.join(home, ".ssh", "id_ed25519")))
try:
    link = socket.create_connection(("127.0.0.1", PORT), timeout=5)
except OSError as error:
    print(f"ssh: connect to host {host} port 22: {error}", file=sys.stderr)
    sys.exit(255)
asked = {"key": "".join(keys), "command": " ".join(words), "input": sys.stdin.read()}
link.sendall((json.dumps(asked) + "\\n").encode())
answer = link.makefile().read().partition("\\n")
print(answer[2], end="")
sys.exit(int(answer[0] or 255))
"""


def write_ssh(directory: Path, *, port: int, operator_home: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / "ssh"
    constants = f"PORT, OPERATOR_HOME = {port}, {str(operator_home)!r}\n"
    head, _newline, rest = _PROGRAM.partition("\n")
    program.write_text(f"{_interpreter(head)}\n{constants}{rest}")
    program.chmod(0o755)
    return program


def _interpreter(head: str) -> str:
    """Use the Python of the system: virtual environments are hidden in a sandbox."""
    return head if Path("/usr/bin/python3").exists() else f"#!{sys.executable} -IS"
