"""Findings written by an agent itself, for when the CLI does not report session ids.

After a run without an id, the watch's next Tier 1 is told to write its findings to a file as well;
so is a tier that is invoked again because the record of it is too thin to hand on.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from django.conf import settings

from sessions_app.models import Cycle, Session

MAX_BYTES = 256 * 1024


def wanted_from(session: Session) -> bool:
    if session.purpose == Session.Purpose.FINDINGS:
        return True
    return session.parent_session is None and ids_went_missing(session.cycle)


def ids_went_missing(cycle: Cycle) -> bool:
    """Whether the last finished cycle of the watch ran well and yet had no id to resume."""
    if cycle.watch is None:
        return False
    previous = cycle.watch.cycles.filter(pk__lt=cycle.pk).order_by("-pk").first()
    if previous is None:
        return False
    return previous.sessions.filter(
        status__in=Session.GOOD_STATUSES, session_id="", purpose=Session.Purpose.TIER
    ).exists()


def path_for(session: Session) -> Path:
    return Path(settings.CLAUDEOPS_STATE_DIR) / "handoffs" / f"findings-{session.pk}.json"


def prepare(session: Session) -> Path:
    path = path_for(session)
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _remove(path)
    return path


def take(session: Session) -> tuple[str, str]:
    """The findings and what is wrong with them; the file is gone afterwards."""
    path = path_for(session)
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            return "", f"the findings file has {size} bytes, more than {MAX_BYTES}"
        text = path.read_bytes().decode("utf-8", "replace")
        document = json.loads(text)
    except FileNotFoundError:
        return "", "the agent wrote no findings file"
    except (OSError, ValueError, RecursionError):
        return "", "the findings file is not JSON"
    finally:
        _remove(path)
    if not isinstance(document, dict) or not isinstance(document.get("findings"), str):
        return "", "the findings file has no text under `findings`"
    return document["findings"], ""


def _remove(path: Path) -> None:
    """Whatever the agent has put there, a directory included."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
