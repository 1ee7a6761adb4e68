"""The options of `watch add` and `watch edit`, and the fields of a watch that they give."""

from __future__ import annotations

import re
from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction
from collections.abc import Mapping
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, NamedTuple

NONE = "none"


class Rate(NamedTuple):
    """So many within so many hours."""

    allowed: int
    hours: int


def add_settings(parser: ArgumentParser) -> None:
    parser.add_argument("--instructions", help="what Tier 1 is told to look at")
    parser.add_argument("--every", type=int, metavar="MINUTES", help="minutes between two cycles")
    parser.add_argument("--cron", help="a cron expression, in place of --every")
    parser.add_argument(
        "--doors", help='what its runs may reach, like "write:/srv/app -ssh"; "" for the defaults'
    )
    parser.add_argument(
        "--hosts", help='where it runs: names or labels of hosts, like "lab nas"; "" for anywhere'
    )
    parser.add_argument("--max-tier", type=int, choices=(1, 2, 3))
    parser.add_argument(
        "--dry-run", action=BooleanOptionalAction, help="think and report, change nothing"
    )
    parser.add_argument(
        "--approval", metavar="TIERS", help="tiers that wait for a person, like 3 or 2,3; or none"
    )
    parser.add_argument(
        "--ask", help='commands that need approval, like "Bash(docker restart:*)"; "" for none'
    )
    parser.add_argument(
        "--budget-day",
        type=read_budget,
        metavar="USD",
        help="dollars that its runs of one day may cost; none for the installation's own limit",
    )
    parser.add_argument(
        "--restarts", type=read_rate, metavar="N/Hh", help="of one service: 2/4h is two in 4 hours"
    )
    parser.add_argument(
        "--redeployments", type=read_rate, metavar="N/Hh", help="of one service, like 1/24h"
    )


def read_rate(text: str) -> Rate:
    """`2/4h`, also `2/1d`. Nothing allowed means never."""
    parts = re.fullmatch(r"\s*(\d{1,4})\s*/\s*(\d{1,4})\s*([hd])\s*", text.lower())
    hours = int(parts[2]) * (24 if parts[3] == "d" else 1) if parts else 0
    if parts is None or not 0 < hours <= 8760:
        raise ArgumentTypeError(f"{text!r} is no rate: write 2/4h for two within 4 hours")
    return Rate(int(parts[1]), hours)


def read_budget(text: str) -> Decimal | str:
    """An amount that is not negative, or the word that takes it away."""
    if text.strip().lower() == NONE:
        return NONE
    try:
        amount = Decimal(text.strip())
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite() or not 0 <= amount < 10**9:
        raise ArgumentTypeError(f"{text!r} is no amount in dollars: write 2.50, 0 or none")
    return amount


def given_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Only what was given; the rest stays as it is."""
    every = options["every"]
    workdir, approval = options["workdir"], options["approval"]
    fields = {
        "name": options.get("new_name"),
        "workdir": workdir and str(Path(workdir).expanduser().absolute()),
        "instructions": options["instructions"],
        "interval_minutes": every,
        "cron": "" if every is not None else options["cron"],
        "doors": options["doors"],
        "hosts": options["hosts"],
        "max_tier": options["max_tier"],
        "dry_run": options["dry_run"],
        "approval": "" if (approval or "").strip().lower() == NONE else approval,
        "ask": options["ask"],
        "enabled": options.get("enabled"),
        "budget_day_usd": options["budget_day"],
    }
    for option, kind in (("restarts", "restart"), ("redeployments", "redeployment")):
        if rate := options[option]:
            fields |= {f"{kind}s_allowed": rate.allowed, f"{kind}_hours": rate.hours}
    given = {field: value for field, value in fields.items() if value is not None}
    if given.get("budget_day_usd") == NONE:
        given["budget_day_usd"] = None
    return given
