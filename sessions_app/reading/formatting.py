"""Numbers as people read them. Pure, so that pages and the terminal say the same.

Dollars are written here and nowhere else, by one rule (`rounded`): cents from a dollar up, below
that the hundredths of a cent that a small run costs. Only figures that are held against each other
keep every digit (`exact_money`).
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

CENT = Decimal("0.01")
HUNDREDTH_OF_CENT = Decimal("0.0001")
UNITS_OF_TIME = ((86_400, "d"), (3_600, "h"), (60, "min"))


def rounded(amount: Decimal | float | None) -> Decimal | None:
    """The rule. None: no amount is known."""
    dollars = None if amount is None else Decimal(str(amount))
    if dollars is None or not dollars.is_finite():
        return None
    return dollars.quantize(CENT if abs(dollars) >= 1 else HUNDREDTH_OF_CENT)


def money(amount: Decimal | float | None) -> str:
    dollars = rounded(amount)
    if amount is None or dollars is None:
        return "unknown"
    if 0 < amount < HUNDREDTH_OF_CENT:
        return "<$0.0001"
    whole, _, decimals = f"{dollars:,f}".partition(".")
    return f"${whole}.{decimals[:2]}{decimals[2:].rstrip('0')}"


def plain_money(amount: Decimal | float | None) -> str:
    """The same for a table that a program reads, such as CSV: a number, or nothing."""
    dollars = rounded(amount)
    return "" if dollars is None else f"{dollars:f}"


def exact_money(amount: Decimal | float | None) -> str:
    """Every digit that is known, for figures that are held against each other."""
    if amount is None:
        return "unknown"
    whole, _, decimals = f"{Decimal(str(amount)):,f}".partition(".")
    return f"${whole}.{decimals.rstrip('0').ljust(2, '0')}"


def estimate(amount: Decimal) -> str:
    """Never to be mistaken for a figure that the CLI gave."""
    return f"≈ {money(amount)} (estimate)"


def cost(amount: Decimal | None, estimated: Decimal | None) -> str:
    """What a run cost, as sure as it is known."""
    return estimate(estimated) if amount is None and estimated is not None else money(amount)


def exact_percent(share: Decimal | float) -> str:
    """Every digit that was set, for a limit: 0.035 is 3.5%, and 0.80 is 80%."""
    return f"{(Decimal(str(share)) * 100).normalize():f}%"


def duration(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "–"
    seconds = max(milliseconds, 0) / 1000
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def clock(seconds: int) -> str:
    """A time that ticks: whole seconds, as `chain.js` goes on with it."""
    return duration(seconds * 1000) if seconds >= 10 else f"{seconds} s"


def tokens(count: int | None) -> str:
    if count is None:
        return "–"
    if count < 1_000:
        return str(count)
    if count < 999_500:
        return f"{count / 1_000:.{1 if count < 99_950 else 0}f}k"
    return f"{count / 1_000_000:.2f}M"


def ago(moment: datetime | None, now: datetime) -> str:
    """How long since, in the largest unit that fits."""
    if moment is None:
        return "never"
    seconds = int((now - moment).total_seconds())
    for length, unit in UNITS_OF_TIME:
        if abs(seconds) >= length:
            amount = f"{abs(seconds) // length} {unit}"
            return f"{amount} ago" if seconds > 0 else f"in {amount}"
    return "just now"
