"""Attacks that exhaust the host, and invalid input."""

from __future__ import annotations

from escalation.sandbox.proof.attacks.attack import WON, WON_IN_PYTHON, Attack, bash, python, tool

# Far above every limit, and harmless without one: nothing is really filled.
MANY_PROCESSES, ALLOWED_PROCESSES = 1500, 1000
HUGE_BYTES = 12 << 30
TOO_MUCH_BYTES = 600 << 20

BOMBS = (
    Attack(
        name="fork without end",
        target="processes of the host",
        calls=python(
            "import os, signal, time\n"
            "children = []\n"
            "try:\n"
            f"    for _ in range({MANY_PROCESSES}):\n"
            "        child = os.fork()\n"
            "        if child == 0:\n"
            "            time.sleep(20); os._exit(0)\n"
            "        children.append(child)\n"
            "except OSError as error: print(error)\n"
            f"if len(children) > {ALLOWED_PROCESSES}: print({WON_IN_PYTHON})\n"
            "for child in children: os.kill(child, signal.SIGKILL)"
        ),
    ),
    Attack(
        name="take all memory",
        target="memory of the host",
        calls=python(f"x = bytearray({HUGE_BYTES})\nprint({WON_IN_PYTHON})"),
    ),
    Attack(
        name="fill /tmp and shared memory",
        target="disk",
        calls=bash(
            # /tmp is a directory of the run: a command that fills it is ended.
            f"fallocate -l {TOO_MUCH_BYTES} /dev/shm/big && echo {WON}; true",
            f"fallocate -l {TOO_MUCH_BYTES} ~/big && echo {WON}; true",
            f"fallocate -l {TOO_MUCH_BYTES} /tmp/big && sleep 5 && echo {WON}; true",
        ),
        alone=True,
    ),
    Attack(
        name="make a huge file in the working directory",
        target="disk",
        calls=bash(f"truncate -s 60G big && echo {WON}; rm -f big"),
    ),
    Attack(
        name="print without end",
        target="disk",
        calls=tool("Bash", command=f"yes | head -c 600000000 && echo {WON}", timeout=20000),
        alone=True,
    ),
    Attack(
        name="open files without end",
        target="descriptors",
        calls=python(
            "files = []\n"
            "try:\n"
            "    for _ in range(70000): files.append(open('/dev/null'))\n"
            f"    print({WON_IN_PYTHON})\n"
            "except OSError as error: print(error)"
        ),
    ),
    Attack(
        name="a command of 10 MB",
        target="command policy",
        calls=bash(f"touch @outside@/new; : {'x' * 10_000_000}"),
        alone=True,
    ),
    Attack(
        name="5,000 nested parentheses",
        target="command policy",
        calls=bash(
            f"{'(' * 5000} touch @outside@/new {')' * 5000}", f"{'$(' * 5000}id{')' * 5000}"
        ),
        alone=True,
    ),
    Attack(
        name="zero bytes, broken letters and control characters",
        target="command policy",
        calls=bash(
            "touch @outside@/a\0; touch @outside@/b",
            "touch @outside@/\ud800x",
            "touch\u00a0@outside@/new",
            "\u202etouch @outside@/new",
            "echo safe\rtouch @outside@/new",
            "echo safe\ntouch @outside@/new",
            "printf '\\033]0;x\\007\\033[2J'; touch @outside@/new",
        ),
    ),
)
