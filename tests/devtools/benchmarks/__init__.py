from collections.abc import Callable

Tell = Callable[[str], None]
"""Takes a progress message."""


def silent(_words: str) -> None:
    """A `Tell` for callers that show no progress."""
