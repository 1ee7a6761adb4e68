"""Reads the chain that a page shows, without what is folded away."""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

VOID = {"area", "br", "col", "hr", "img", "input", "link", "meta", "rect", "source", "wbr"}


@dataclass(frozen=True, kw_only=True)
class ShownStep:
    name: str
    words: set[str]
    current: bool


@dataclass(frozen=True, kw_only=True)
class ShownChain:
    steps: list[ShownStep]
    tiers: list[tuple[str, ...]]
    """Name, number of sessions and cost of each tier, and of all."""
    text: str


class _Reader(HTMLParser):
    """Collects the texts of elements with a mark, unless a `details` is around them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[tuple[str, dict[str, str | None]]] = []
        self.steps: list[tuple[bool, list[str]]] = []
        self.rows: list[list[str]] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in VOID:
            return
        found = dict(attrs)
        self.open.append((tag, found))
        if self._is_folded():
            return
        if "data-chain-step" in found:
            self.steps.append((found.get("aria-current") == "page", []))
        if tag == "tr" and self._within("tier-costs"):
            self.rows.append([])

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        words = " ".join(data.split())
        if not words or self._is_folded():
            return
        if any("data-chain" in attrs for _tag, attrs in self.open):
            self.text.append(words)
        if any("data-chain-step" in attrs for _tag, attrs in self.open):
            self.steps[-1][1].append(words)
        if self.rows and self._within("tier-costs") and self.open[-1][0] in ("th", "td"):
            self.rows[-1].append(words)

    def _is_folded(self) -> bool:
        return any(tag == "details" for tag, _attrs in self.open)

    def _within(self, name: str) -> bool:
        return any(name in (attrs.get("class") or "").split() for _tag, attrs in self.open)


def shown_chain(page: str) -> ShownChain:
    reader = _Reader()
    reader.feed(page)
    return ShownChain(
        steps=[
            ShownStep(name=words[0], words=set(words), current=current)
            for current, words in reader.steps
        ],
        tiers=[tuple(row[:3]) for row in reader.rows if row[0] != "Tier"],
        text=" ".join(reader.text),
    )
