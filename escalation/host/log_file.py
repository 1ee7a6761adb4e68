"""Where web server and worker write while a person looks at the screen of `up`."""

from __future__ import annotations

from pathlib import Path

LARGEST_BYTES = 5_000_000


def fresh_log(state: Path) -> Path:
    """The same file every time; a large one is put aside first, in the place of the one before."""
    log = state / "logs" / "up.log"
    log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if log.exists() and log.stat().st_size > LARGEST_BYTES:
        log.replace(log.with_name("up.log.1"))
    log.touch(mode=0o600)
    return log
