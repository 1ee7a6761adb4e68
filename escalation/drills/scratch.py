"""Mark of a scratch installation, which has its own state directory and database."""

from __future__ import annotations

import os

MARK = "CLAUDEOPS_SCRATCH"


def is_scratch() -> bool:
    return bool(os.environ.get(MARK))
