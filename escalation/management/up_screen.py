"""The screen on which `up` ends: where it is, who may in, what happens next, how to stop."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from textwrap import wrap

WIDTH = 96
INDENT = 11


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    version: str
    address: str
    account: str
    next_steps: tuple[str, ...]
    log: str


def screen_lines(screen: Screen, highlight: Callable[[str], str]) -> Iterator[str]:
    yield ""
    yield highlight(f"Claude Ops is running at {screen.address}")
    yield ""
    yield from _entry("Account", screen.account)
    for number, step in enumerate(screen.next_steps):
        yield from _entry("Next" if number == 0 else "", step)
    if screen.log:
        yield from _entry("Logs", f"{screen.log} (what the runs do: claudeops logs -f)")
    yield from _entry("Version", screen.version)
    yield from _entry("Stop", "Ctrl-C. Running tiers end cleanly; the next start continues.")
    yield ""


def _entry(title: str, text: str) -> Iterator[str]:
    """A path or an address is never broken: somebody wants to copy it."""
    lines = wrap(text, WIDTH - INDENT, break_long_words=False, break_on_hyphens=False) or [""]
    for number, line in enumerate(lines):
        yield f"{title if number == 0 else '':{INDENT}}{line}"
