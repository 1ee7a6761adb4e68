"""Roles and rights, login limits, and the base of the admin site."""
