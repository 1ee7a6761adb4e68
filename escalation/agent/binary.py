"""Which `claude` this installation runs, and what it can do.

Asking the binary takes half a second, so the answers are kept in the state directory under a
fingerprint of the file: a replaced binary is asked again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from django.conf import settings

from escalation.errors import CliMissing

QUESTION_TIMEOUT_SECONDS = 20
FORK_FLAG = "--fork-session"


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaudeBinary:
    path: str
    source: str
    """Where the path came from: CLAUDEOPS_CLAUDE_BIN, PATH or the bundled one."""
    version: str
    flags: tuple[str, ...]

    @property
    def can_resume(self) -> bool:
        return "--resume" in self.flags

    @property
    def can_fork(self) -> bool:
        return FORK_FLAG in self.flags

    @property
    def can_forget(self) -> bool:
        """It can run without saving the conversation."""
        return "--no-session-persistence" in self.flags


def find_binary() -> ClaudeBinary:
    path, source = locate_binary()
    stat = path.stat()
    return _described(str(path), source, stat.st_size, stat.st_mtime_ns)


def locate_binary() -> tuple[Path, str]:
    """The operator's choice first, then PATH where that is wanted, then the bundled one."""
    if chosen := settings.CLAUDEOPS_CLAUDE_BIN:
        return _usable(Path(chosen).expanduser(), "CLAUDEOPS_CLAUDE_BIN"), "CLAUDEOPS_CLAUDE_BIN"
    if settings.CLAUDEOPS_CLAUDE_FROM_PATH:
        found = shutil.which("claude")
        if found is None:
            raise CliMissing(
                "CLAUDEOPS_CLAUDE_FROM_PATH is set, but there is no `claude` on PATH. "
                "Install it, or unset the variable to use the bundled one."
            )
        return _usable(Path(found), "PATH"), "PATH"
    return _usable(_bundled(), "claude-agent-sdk"), "bundled"


def _bundled() -> Path:
    """Found without importing the package around it, which takes a second."""
    package = find_spec("claude_agent_sdk")
    if package is None or package.origin is None:
        raise CliMissing("The package claude-agent-sdk is not installed. Run `make install`.")
    return Path(package.origin).parent / "_bundled" / "claude"


def _usable(path: Path, origin: str) -> Path:
    if not path.is_file():
        raise CliMissing(
            f"There is no `claude` at {path} (from {origin}). "
            "Run `make install`, or point CLAUDEOPS_CLAUDE_BIN at the binary."
        )
    if not os.access(path, os.X_OK):
        raise CliMissing(f"{path} (from {origin}) is not executable. Run: chmod +x {path}")
    return path.absolute()


def fingerprint_of(path: Path) -> str:
    """Changes when the file is replaced; a link is the file that it leads to."""
    stat = path.stat()
    return hashlib.sha256(
        f"{path.resolve()}:{stat.st_size}:{stat.st_mtime_ns}".encode()
    ).hexdigest()[:16]


@lru_cache(maxsize=8)
def _described(path: str, source: str, size: int, mtime_ns: int) -> ClaudeBinary:
    kept = _kept_answers(fingerprint_of(Path(path)))
    if answers := _read_json(kept):
        return ClaudeBinary(
            path=path, source=source, version=answers["version"], flags=tuple(answers["flags"])
        )
    binary = ClaudeBinary(
        path=path,
        source=source,
        version=_ask(path, "--version").split("\n")[0].strip(),
        flags=tuple(sorted(set(re.findall(r"--[A-Za-z][\w-]*", _ask(path, "--help"))))),
    )
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text(json.dumps(asdict(binary)))
    return binary


def _kept_answers(fingerprint: str) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "cli" / f"{fingerprint}.json"


def _read_json(path: Path) -> dict[str, str] | None:
    try:
        answers = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    complete = isinstance(answers, dict) and {"version", "flags"} <= answers.keys()
    return answers if complete else None


def _ask(path: str, question: str) -> str:
    try:
        answer = subprocess.run(
            [path, question],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=QUESTION_TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CliMissing(f"`{path} {question}` does not answer: {error}") from error
    if answer.returncode != 0:
        detail = (answer.stderr or answer.stdout).strip()[:300]
        raise CliMissing(f"`{path} {question}` failed with code {answer.returncode}: {detail}")
    return answer.stdout
