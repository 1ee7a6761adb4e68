"""What is wrong with the words for doors of a watch: only the gate knows, and it is not ours.

The record imports nothing from the actor; so the actor says at the start how such words are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Reader = Callable[[str], Sequence[str]]
_readers: list[Reader] = []


def read_door_words_by(reader: Reader) -> None:
    """A function from an operator's words to a sentence for each that cannot be used."""
    _readers[:] = [reader]


def problems_with_doors(words: str) -> list[str]:
    return [problem for reader in _readers for problem in reader(words)]
