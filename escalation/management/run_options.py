"""Options that several commands share, read in one way."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from decimal import Decimal, InvalidOperation
from typing import Any

from escalation.next_step.run_choice import RunChoice


def add_choice_options(parser: ArgumentParser, whose: str = "this run") -> None:
    """Less than the tier has, never more."""
    parser.add_argument(
        "--model",
        default="",
        help=f"the model of {whose}: that of its tier, or of a lower one",
    )
    parser.add_argument(
        "--max-turns", type=int, metavar="N", help=f"fewer turns for {whose} than its tier has"
    )
    parser.add_argument(
        "--budget", type=dollars, metavar="USD", help=f"less money for {whose} than its tier has"
    )


def choice_in(options: dict[str, Any]) -> RunChoice:
    return RunChoice(
        model=options["model"],
        max_turns=options["max_turns"],
        max_budget_usd=options["budget"],
    )


def add_stretch_options(parser: ArgumentParser, *, limit: int) -> None:
    parser.add_argument(
        "--limit", type=count, default=limit, metavar="N", help=f"how many ({limit})"
    )
    parser.add_argument(
        "--offset", type=count, default=0, metavar="N", help="how many to pass over first (0)"
    )


def dollars(text: str) -> Decimal:
    try:
        amount = Decimal(text)
    except InvalidOperation as error:
        raise ArgumentTypeError(f"{text!r} is no amount of dollars, such as 0.50") from error
    if not amount.is_finite():
        raise ArgumentTypeError(f"{text!r} is no amount of dollars, such as 0.50")
    return amount


def count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ArgumentTypeError(f"{text!r} is no number from 0 on")
    return int(text)
