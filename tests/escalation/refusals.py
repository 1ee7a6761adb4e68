"""Asserts that an operation or a command is refused with a code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from escalation.errors import OperationRefused, RefusalCode, WhyNot
from escalation.management.output import ExitCode, Refused

if TYPE_CHECKING:
    from _pytest.raises import RaisesExc


def refused(code: RefusalCode, match: str | None = None) -> RaisesExc[OperationRefused]:
    """Context manager that expects `OperationRefused` with this code."""
    return pytest.raises(OperationRefused, match=match, check=lambda error: error.code == code)


def command_refused(code: RefusalCode | WhyNot, match: str | None = None) -> RaisesExc[Refused]:
    """Context manager that expects a command to be refused with this code and exit code 2."""
    return pytest.raises(
        Refused,
        match=match,
        check=lambda error: (error.code, error.returncode) == (code, ExitCode.REFUSED),
    )
