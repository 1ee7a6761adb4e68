"""Incidents: a problem from its first sight to its end, however many rounds see it."""
