"""Compares what a look printed in the sandbox with what it printed by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

OWN_WORDS = "claudeops: "
# Sentences of Claude Ops, and what clients say about the proxy before the answer of the server.
OF_PROXY = re.compile(rf"^{OWN_WORDS}|Connection established|(?:HTTP|Proxy) request sent")
PLACE = re.compile(r"^(?:bash|/dev/fd/\d+): (?=line \d+: )")
# The kill of the shell and the program of that name word the same problem differently.
KILL = re.compile(r"^(?:line \d+: )?kill: (\(\d+\))(?: - |: )")
# The client and the bus wait equally long for a service that does not start.
TIMED_OUT = re.compile(r"^(Failed to query server): .*timed out.*")
# Where commands find remedies.
OWN_DIRECTORY = "/run/claudeops/bin:"
# What changes from moment to moment: numbers, sizes, times.
NUMBER = re.compile(r"\d+(?:[.,:]\d+)*[KMGTkmgt]?i?B?\b|\b[0-9a-fA-F]{7,64}\b|\d+")
# Processes of the comparison itself, which by hand are other ones.
OWN = re.compile(
    r"bwrap|play_looks|command-shim|claudeops|CLAUDEOPS|kworker|\bps\b|pstree|\bgrep\b|\bawk\b"
    r"|\bsort\b|\bhead\b|\bbash\b|\bsh -c\b|\blsof\b|\btop\b|\bpython3? -m tests|setpriv|nsenter"
    r"|\bshim\b|tool-cl"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    look: str
    is_same: bool
    says_why: bool
    """The output has a sentence of Claude Ops that says what is hidden or denied."""
    difference: str = ""


def lines_of(output: str) -> list[str]:
    told = (line for line in output.splitlines() if not OF_PROXY.search(line))
    found = (TIMED_OUT.sub(r"\1", line.replace(OWN_DIRECTORY, "")) for line in told)
    named = (KILL.sub(r"kill: \1: ", PLACE.sub("", line)) for line in found)
    # The width of a number decides whether a blank follows a comma.
    plain = (NUMBER.sub("0", " ".join(line.replace(",", ", ").split())) for line in named)
    return [line for line in plain if line and not OWN.search(line)]


def compared(row: Mapping[str, Any]) -> Comparison:
    """Compare with two runs by hand: a line that differs between those is not expected."""
    before, seen, after = (row[name] for name in ("before", "seen", "after"))
    first, second = set(lines_of(before["output"])), set(lines_of(after["output"]))
    found = set(lines_of(seen["output"]))
    missing, added = (first & second) - found, found - (first | second)
    wrong_code = seen["code"] not in {before["code"], after["code"]}
    parts = [f"exit code {seen['code']} instead of {before['code']}"] if wrong_code else []
    parts += [f"- {line}" for line in sorted(missing)] + [f"+ {line}" for line in sorted(added)]
    return Comparison(
        look=row["look"],
        is_same=not parts,
        says_why=bool(row["denied"]) or OWN_WORDS in seen["output"],
        difference="\n".join(parts),
    )
