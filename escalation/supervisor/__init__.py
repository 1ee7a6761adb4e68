"""Decides what follows a session: escalation, approvals, budgets, cooldowns."""
