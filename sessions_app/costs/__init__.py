"""Costs of sessions: budgets, sums per period, and their checks."""
