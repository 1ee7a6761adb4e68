"""How often and for how much: cooldowns of services, and budgets."""
