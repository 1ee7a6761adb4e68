"""Asserts that an operation is refused with a code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from escalation.errors import OperationRefused, RefusalCode

if TYPE_CHECKING:
    from _pytest.raises import RaisesExc


def refused(code: RefusalCode, match: str | None = None) -> RaisesExc[OperationRefused]:
    """Context manager that expects `OperationRefused` with this code."""
    return pytest.raises(OperationRefused, match=match, check=lambda error: error.code == code)
