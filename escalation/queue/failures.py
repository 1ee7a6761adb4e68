"""What a task of the queue leaves behind when it fails: django-q2 stores the words in the clear."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from sessions_app.reading.masking import masked

Given = ParamSpec("Given")


class TaskFailed(Exception):
    """With the whole story, masked."""


def with_masked_failure(task: Callable[Given, str]) -> Callable[Given, str]:
    @wraps(task)
    def run(*args: Given.args, **options: Given.kwargs) -> str:
        try:
            return task(*args, **options)
        except Exception:
            # Not chained: what it came from would be printed with it.
            raise TaskFailed(masked(traceback.format_exc())) from None

    return run
