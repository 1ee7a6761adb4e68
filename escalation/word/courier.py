"""Lets a process of its own carry a message out, for so long and no longer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessions_app.reading.masking import masked
from sessions_app.reading.plain_text import clean, one_line

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE_SECONDS = 30.0
LONGEST_ERROR = 500
PASSED_ON = (
    *("PATH", "LANG", "LC_ALL", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
)


@dataclass(frozen=True, slots=True)
class Answer:
    ok: bool
    said: str
    """What went wrong, without secrets."""
    service: str = ""
    """What of the address may be shown."""


def look_at(address: str) -> Answer:
    """Whether Apprise understands it, and as what. Nothing is sent."""
    return _asked({"address": address})


def deliver(address: str, *, title: str, body: str, type: str) -> Answer:
    return _asked({"address": address, "title": title, "body": body, "type": type})


def _asked(question: dict[str, Any]) -> Answer:
    """The address goes by standard input: a command line can be read by everybody."""
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "escalation.word.deliver"],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
            cwd=PROJECT,
            env={name: os.environ[name] for name in PASSED_ON if name in os.environ},
            start_new_session=True,
        )
        found = json.loads(ended.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Answer(False, f"It gave no answer within {PATIENCE_SECONDS:.0f} s.")
    except (OSError, ValueError, IndexError) as error:
        return Answer(False, f"It could not be sent: {type(error).__name__}.")
    return Answer(
        bool(found["ok"]),
        masked(one_line(clean(found["said"]), LONGEST_ERROR)),
        one_line(clean(found["service"]), 200),
    )
