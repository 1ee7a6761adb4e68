"""Shows costs by tier, model and watch, and the budgets."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from escalation.management.output import TerminalCommand, write_table
from escalation.web.costs import DEFAULT_PERIOD, PERIODS, CostRow, CostsPage, load_costs
from sessions_app.costs.budgets import Budget
from sessions_app.costs.spending import BudgetsNow, load_budgets
from sessions_app.text import money


class Command(TerminalCommand):
    help = "Show what sessions cost, by tier, model and watch, and what is left of the budgets."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument(
            "--period",
            choices=list(PERIODS),
            default=DEFAULT_PERIOD,
            help=f"days until today, or all ({DEFAULT_PERIOD})",
        )
        parser.add_argument("--drills", action="store_true", help="only those of drills")
        parser.add_argument("--json", action="store_true", help="print it as JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        page = load_costs(options["period"], drills=options["drills"])
        budgets = None if options["drills"] else load_budgets()
        if options["json"]:
            self.stdout.write_json(costs_as_data(page, budgets), indent=2)
        else:
            self._print(page, budgets)

    def _print(self, page: CostsPage, budgets: BudgetsNow | None) -> None:
        total = page.total
        sessions = "1 session" if total.runs == 1 else f"{total.runs} sessions"
        sentence = f"{money(total.cost_usd)} for {sessions} in {page.period_label}"
        uncounted = total.estimated + total.unknown
        beside = f", {uncounted} more without a known cost" if uncounted else ""
        self.stdout.write(f"{sentence}{beside}.")
        for heading, rows in (
            ("tier", page.tiers),
            ("model", page.models),
            ("watch", page.watches),
        ):
            write_table(self, (heading, "cost", "share", "sessions"), [_line(row) for row in rows])
        limits = budgets.limited if budgets else ()
        write_table(
            self,
            ("budget", "spent", "limit"),
            [(one.label, money(one.spent.total), money(one.limit)) for one in limits],
        )


def _line(row: CostRow) -> tuple[str, ...]:
    return row.label, money(row.amount.cost_usd), f"{row.share:.0%}", str(row.amount.runs)


def costs_as_data(page: CostsPage, budgets: BudgetsNow | None) -> dict[str, Any]:
    return {
        "period": page.period,
        "drills": page.drills,
        "total": _row_as_data("total", page.total),
        "tiers": [_row_as_data(row.label, row.amount) for row in page.tiers],
        "models": [_row_as_data(row.label, row.amount) for row in page.models],
        "watches": [_row_as_data(row.label, row.amount) for row in page.watches],
        "days": [_row_as_data(row.label, row.amount) for row in page.days_with_runs],
        "budgets": [_budget_as_data(one) for one in budgets.limited] if budgets else [],
    }


def _row_as_data(name: str, amount: Any) -> dict[str, Any]:
    return {
        "name": name,
        "runs": amount.runs,
        "cost_usd": float(amount.cost_usd),
        "estimated": amount.estimated,
        "estimated_usd": float(amount.estimated_usd),
        "unknown": amount.unknown,
        "tokens": amount.tokens,
    }


def _budget_as_data(budget: Budget) -> dict[str, Any]:
    return {
        "name": budget.name,
        "label": budget.label,
        "limit_usd": float(budget.limit),
        "spent_usd": float(budget.spent.total),
        "left_usd": float(budget.left),
    }
